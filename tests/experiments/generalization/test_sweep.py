"""The file a sweep leaves: gone on with, failures written down, nothing begun too late."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from experiments.generalization import sweep, sweep_net
from experiments.generalization.sweep_plan import Net

NETS = (
    Net("mlp", "batch", 2, 16, 0.05, 32, 0.0, 0, "made"),
    Net("cnn", "group", 3, 4, 0.05, 32, 1e-3, 0, "made"),
)


def told(net: Net, *, steps: int) -> dict[str, Any]:
    """What a network that needs no training tells."""
    seconds = {"train_seconds": 1.0, "score_seconds": 0.5}
    return {"key": net.key, "reached": True, "gap": 0.25, "steps": steps, "scores": {"params": 1.0}, **seconds}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(sweep_net, "run", told)
    monkeypatch.setattr(sweep, "plan", lambda data, seeds: list(NETS))


def test_the_file_is_gone_on_with_and_a_cut_line_is_done_again(small, tmp_path, capsys):
    path = tmp_path / "deep" / "sweep.jsonl"
    arguments = ["--out", str(path), "--workers", "0", "--steps", "7"]
    assert sweep.main([*arguments, "--limit", "1"]) == 0
    first = path.read_text(encoding="utf-8")
    path.write_text(first + '{"key": "half a li', encoding="utf-8")
    assert sweep.main(arguments) == 0
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] + "\n" == first
    assert [json.loads(line)["key"] for line in lines] == [net.key for net in NETS]
    assert "1 networks to do" in capsys.readouterr().out
    assert sweep.main(arguments) == 0
    assert path.read_text(encoding="utf-8").splitlines() == lines


def test_a_failure_is_written_down_and_costs_no_other_network(small, tmp_path, monkeypatch):
    def broken(net, *, steps):
        if net.kind == "mlp":
            raise ValueError("made up")
        return told(net, steps=steps)

    monkeypatch.setattr(sweep_net, "run", broken)
    path = tmp_path / "sweep.jsonl"
    sweep.main(["--out", str(path), "--workers", "0", "--steps", "7"])
    one, other = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert one["failed"] == "ValueError: made up" and "scores" in other


def test_nothing_is_begun_when_the_time_is_up(small, tmp_path):
    path = tmp_path / "sweep.jsonl"
    sweep.main(["--out", str(path), "--workers", "0", "--minutes", "0"])
    assert path.read_text(encoding="utf-8") == ""


def test_workers_that_are_busy_at_the_end_are_ended():
    begun = time.time()
    assert list(sweep.records(NETS, 1, time.time() + 0.2)) == []
    assert time.time() - begun < 30
