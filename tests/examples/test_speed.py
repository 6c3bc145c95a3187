"""What measuring costs: a small slice of benchmarks/speed.py, its slopes, and what it says beside the last run."""

from __future__ import annotations

import json
import multiprocessing
import sys

import pytest

if "forkserver" not in multiprocessing.get_all_start_methods():
    pytest.skip("benchmarks/speed.py counts the CPU time of forked processes", allow_module_level=True)

from benchmarks import speed
from benchmarks.speed_nets import MODELS, SWEEPS, Absent, build, calibrated

ROW = {
    "seconds": 10.0, "parts": {"trace": 1.0, "rules": 9.0}, "megabytes": 5.0, "parameters": 100,
    "log10_upper": 2.0, "log10_folded": 2.5, "log10_lower": 1.0,
}  # fmt: skip


def test_the_quick_slice(tmp_path, capsys):
    target = tmp_path / "speed.json"
    assert speed.main(["--quick", "--json", str(target)]) == 0
    data, printed = json.loads(target.read_text(encoding="utf-8")), capsys.readouterr().out
    assert set(data["rows"]) == set(speed.chosen_rows((), quick=True)) and len(data["rows"]) == 2 * len(SWEEPS) + 4
    for key, row in data["rows"].items():
        assert 0 < sum(row["parts"].values()) <= row["seconds"] + 0.01 and row["megabytes"] >= 0, key
        assert row["log10_lower"] <= row["log10_upper"] + 1e-6 <= row["log10_folded"] + 2e-6, key
        assert f"{key} " in printed
    assert set(data["slopes"]) == {f"{name}, point" for name in SWEEPS} | {"width, quick", "width, default"}
    assert "slope by width, default" in printed and "(goal 2.2" in printed


@pytest.mark.parametrize("power", [0.0, 1.1, 3.0])
def test_the_slope_of_a_power_law_is_its_power(power):
    assert speed.slope((n, 0.1 * n**power) for n in (16, 32, 64, 128)) == pytest.approx(power, abs=1e-12)


def test_the_slope_is_that_of_the_upper_half():
    overhead = [(1, 7.0), (2, 7.0)]
    assert speed.slope([(16, 16.0**2), *overhead, (8, 8.0**2)]) == pytest.approx(2)
    assert speed.slope([(32, 32.0**2), (16, 16.0**2), *overhead, (8, 8.0**2)]) == pytest.approx(2)


@pytest.mark.parametrize("points", [[], [(4, 1.0)], [(4, 1.0), (4, 2.0)], [(4, 1.0), (8, 0.0)]])
def test_no_slope_without_two_sizes(points):
    assert speed.slope(points) is None


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, ["1.00×"]),
        ({"seconds": 12.9}, ["1.29×"]),
        ({"seconds": 13.1}, ["1.31×", "slower"]),
        ({"seconds": 5.0, "log10_upper": 2.009}, ["0.50×"]),
        ({"log10_upper": 2.02}, ["1.00×", "looser"]),
        ({"log10_folded": "inf"}, ["1.00×", "looser"]),
        ({"seconds": 20.0, "log10_folded": 2.6}, ["2.00×", "slower", "looser"]),
        ({"log10_upper": 1.0, "log10_lower": 0.5}, ["1.00×"]),
    ],
)
def test_marks(change, found):
    assert speed.marks({**ROW, **change}, ROW) == found


def test_marks_of_rows_that_are_not_there():
    assert speed.marks(ROW, None) == speed.marks(ROW, {"stopped": "over 1 s"}) == []
    assert speed.marks({"stopped": "over 1 s"}, ROW) == speed.marks({"failed": "why"}, ROW) == ["lost"]
    assert speed.marks({"skipped": "no data"}, ROW) == []
    both_infinite = {**ROW, "log10_upper": "inf", "log10_folded": "inf"}
    assert speed.marks(both_infinite, both_infinite) == ["1.00×"]
    assert speed.marks({**ROW, "seconds": 0.02}, {**ROW, "seconds": 0.01}) == ["2.00×"]  # within a tick of the clock


def test_a_run_is_held_against_the_last_and_takes_its_place(tmp_path, capsys, monkeypatch):
    target = tmp_path / "speed.json"
    asked = ["--only", "lstm", "gpt2", "--json", str(target)]
    monkeypatch.setattr(speed, "run_row", lambda name, kind, limit: dict(ROW))
    assert speed.main(asked) == 0
    assert "×" not in capsys.readouterr().out
    worse = {"lstm": {**ROW, "seconds": 14.0, "log10_upper": 2.4}, "gpt2": {"skipped": "transformers is not installed"}}
    monkeypatch.setattr(speed, "run_row", lambda name, kind, limit: worse[name])
    assert speed.main(asked) == 0
    said = capsys.readouterr().out
    assert "1.40× | slower | looser" in said and "skipped: transformers is not installed" in said
    assert "slower, beside the last run: lstm, point; lstm, quick; lstm, default" in said
    stored = json.loads(target.read_text(encoding="utf-8"))
    rows = stored["rows"]
    assert rows["lstm, default"] == worse["lstm"] and rows["gpt2, default"] == ROW  # what was skipped is still known
    stored["environment"]["torch"] = "1.0"
    target.write_text(json.dumps(stored), encoding="utf-8")
    monkeypatch.setattr(speed, "run_row", lambda name, kind, limit: {"failed": "ValueError: no"})
    assert speed.main(asked) == 1
    said = capsys.readouterr().out
    assert "failed: ValueError: no; lost" in said and "the last run was elsewhere (torch 1.0)" in said


def test_rows_without_a_result_say_why():
    assert speed.run_row("tokens 16", "default", 1) == {"stopped": "over 1 s"}
    assert speed.run_row("no-such-net", "point", 60) == {"failed": "KeyError: 'no-such-net'"}


def test_without_the_data_the_case_is_left_out(monkeypatch, tmp_path):
    monkeypatch.delenv("NORMGAUGE_DATA", raising=False)
    with pytest.raises(Absent, match="set NORMGAUGE_DATA"):
        build("resnet20")
    monkeypatch.setenv("NORMGAUGE_DATA", str(tmp_path))
    with pytest.raises(Absent):
        build("resnet20")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(Absent, match="not installed"):
        build("gpt2")


def test_normalizers_get_the_statistics_of_the_batch():
    model, batch = build("channels 2")
    norm = model[1]
    seen = model[0](batch).detach()
    assert norm.momentum == 0.1 and not model.training
    assert float((norm.running_var - seen.var((0, 2, 3))).abs().max()) < 0.5 * float(norm.running_var.max())
    calibrated(model, batch)
    assert norm.running_mean.allclose(seen.mean((0, 2, 3)), atol=1e-5)


def test_the_stored_run_is_one_of_the_rows_that_are_asked_for():
    """The families are all there, so that the next run has something to be held against; a model may be missing."""
    stored = json.loads(speed.RESULTS.read_text(encoding="utf-8"))
    asked = speed.chosen_rows((), quick=False)
    families = {key for key in asked if " " in key.partition(", ")[0]}
    assert families <= set(stored["rows"]) <= set(asked)
    made = speed.all_slopes(stored["rows"])
    assert {name: pytest.approx(slopes, abs=1e-9) for name, slopes in made.items()} == stored["slopes"]
    assert {f"{name}, {kind}" for name in (*SWEEPS, "parameters") for kind in speed.KINDS} <= set(stored["slopes"])
    assert {kind for model in MODELS.values() for kind in model.goals} <= set(speed.KINDS)
