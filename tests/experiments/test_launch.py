"""The launcher: from a plan to an archive of results, after a kill too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.than2025 import collect, data, lane, launch, mps, plan, results, spool, store
from experiments.than2025.run import Run
from tests.experiments.conftest import drive

pytestmark = pytest.mark.usefixtures("own_signals")
ONLY = ["nets/mlp-adam", "count/normalizers0-seed0"]


@pytest.fixture
def own_signals() -> Iterator[None]:
    """A lane takes SIGTERM for itself; give it back."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_being_told() -> None:
    told = lane.Told()
    assert not told()
    os.kill(os.getpid(), signal.SIGTERM)
    assert told()


def command(config: Path, state: Path, out: Path) -> list[str]:
    given = {"--plan": config, "--state": state, "--out": out, "--device": "cpu", "--jobs": 1, "--workers": 1}
    return [str(part) for pair in given.items() for part in pair] + ["--nice", "0", "--minutes", "20", "--only", *ONLY]


def test_a_killed_lane_is_made_good(config: Path, tmp_path: Path, finished: Path) -> None:
    state = tmp_path / "state"
    launch.begin(state, plan.select(plan.load(config), ONLY))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    doomed = subprocess.Popen(
        [sys.executable, "-m", "experiments.than2025.lane", str(state), "--device", "cpu"],
        cwd=launch.ROOT,
        env={**environment, "PYTHONPATH": f"{launch.ROOT}{os.pathsep}{launch.ROOT / 'src'}"},
    )
    end = time.monotonic() + 120
    while time.monotonic() < end and not list((state / "claims").glob("*")) and doomed.poll() is None:
        time.sleep(0.02)
    doomed.kill()
    doomed.wait()
    assert list((state / "claims").glob("*"))
    assert launch.main(command(config, state, tmp_path / "out")) == 0
    with tarfile.open(tmp_path / "out" / "results.tar.gz") as archive:
        archive.extractall(tmp_path / "out", filter="data")
    got, wanted = results.load(tmp_path / "out" / "results"), results.load(finished)
    assert set(got) == set(ONLY)
    for name in ONLY:
        assert [e["test"] for e in got[name].epochs] == [e["test"] for e in wanted[name].epochs]
        assert [epoch for epoch, _ in got[name].reading("point")] == list(got[name].spec.readings)
    assert (state / collect.FINISHED).exists()
    assert spool.waiting(state / "spool") == 0


def test_a_lane_stops_when_told_and_goes_on(
    config: Path, tmp_path: Path, digits: data.Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = plan.select(plan.load(config), ONLY)
    launch.begin(tmp_path, specs)
    answers = iter([False])  # when it looks for a run; True after its first epoch and from then on
    with monkeypatch.context() as patch:
        patch.setattr(lane.Told, "__call__", lambda self: next(answers, True))
        assert lane.main([str(tmp_path), "--device", "cpu"]) == lane.UNFINISHED
    assert not list((tmp_path / "claims").glob("*"))
    assert lane.main([str(tmp_path), "--device", "cpu"]) == 0
    log = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert "stopped after epoch 1, to be continued" in log
    assert "goes on after epoch 1" in log
    assert all((tmp_path / "done" / spec.slug).exists() for spec in specs)
    assert "2 of 2 runs done" in collect.status(tmp_path)


def test_missing_data_and_failures_are_written_down(
    config: Path, tmp_path: Path, digits: data.Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad, absent = (replace(s, readings=()) for s in plan.load(config)[:3])
    launch.begin(tmp_path, [replace(absent, data="cifar10"), replace(bad, init="none"), good])
    assert lane.main([str(tmp_path), "--device", "cpu", "--data-dir", str(tmp_path)]) == 0
    log = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert f"{absent.name}: no data yet: cifar10: found no" in log
    assert f"{bad.name}: failed: PlanError" in log
    assert f"{good.name}: done" in log
    assert not (tmp_path / "claims" / absent.slug).exists()


def test_claims_of_a_broken_lane_are_given_back(tmp_path: Path) -> None:
    crew = launch.Crew(tmp_path, ["-c"], dict(os.environ))
    broken = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    broken.wait()
    crew.lanes = [broken]
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "mine").write_text(str(broken.pid), encoding="utf-8")
    (tmp_path / "claims" / "other").write_text("1", encoding="utf-8")
    crew.lane = ["experiments"]  # a package cannot be run: it breaks again
    for _ in range(4):
        crew.mend()
        crew.lanes[0].wait()
    assert crew.restarts == launch.RESTARTS
    assert [path.name for path in (tmp_path / "claims").glob("*")] == ["other"]


def test_the_time_limit_ends_everything(config: Path, tmp_path: Path, digits: data.Data) -> None:
    begun = time.monotonic()
    assert launch.main([*command(config, tmp_path / "s", tmp_path / "o"), "--minutes", "0.005"]) == lane.UNFINISHED
    assert time.monotonic() - begun < 60
    assert (tmp_path / "o" / "results.tar.gz").exists()


def test_more_epochs_may_be_added_to_a_run(tmp_path: Path, specs: dict[str, plan.Spec], digits: data.Data) -> None:
    spec = replace(specs["nets/mlp-adam"], readings=())
    assert not drive(Run(spec, tmp_path, digits, stop=lambda: True))
    longer = Run(replace(spec, epochs=3), tmp_path, digits)
    assert drive(longer) and len(longer.epochs) == 4


def test_no_service_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert mps.start(tmp_path, os.environ) == {}
    mps.stop({"CUDA_MPS_PIPE_DIRECTORY": "x"})
    fake = tmp_path / mps.CONTROL
    fake.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    fake.chmod(0o755)
    assert mps.start(tmp_path, os.environ) == {}
    assert "does not work here" in (tmp_path / "log.txt").read_text(encoding="utf-8")


def test_collect_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.write_json(tmp_path / "plan.json", [])
    assert collect.main([str(tmp_path), str(tmp_path / "out"), "--wait", "0.01"]) == 0
    assert "0 of 0 runs done" in capsys.readouterr().out
