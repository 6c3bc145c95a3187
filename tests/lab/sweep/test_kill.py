"""`kill -9` in the middle of a sweep, for real, and the same command again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from normgauge.cli import main
from normgauge.core import store
from normgauge.lab.sweep.attempt import Limits
from normgauge.lab.sweep.drive import Folder, drive
from normgauge.lab.sweep.engine import Local
from normgauge.lab.sweep.files import CHECKPOINT
from normgauge.lab.sweep.space import expand_trials
from tests.lab.sweep.made import CODE, HEAD, config, written

SLOW = HEAD.replace('build = "mlp"', 'build = "nets.py:slow"').replace("sizes = [64, 8, 10]", "")
PARTS = ('[grid]\n"network.options.norm" = ["none", "batch"]', '[run]\nout = "out"')


def checkpoints(out: Path) -> set[str]:
    return {path.parent.name for path in out.glob(f"trials/*/{CHECKPOINT}")}


def alive(marker: str) -> list[int]:
    """Processes that have a file below a folder open, this one left out."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                links = [os.readlink(link) for link in (process / "fd").iterdir()]
            except OSError:
                continue
            if any(link.startswith(marker) for link in links):
                found.append(int(process.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks for processes in /proc")
def test_a_killed_sweep_goes_on(tmp_path, monkeypatch, capsys):
    head = SLOW.replace("epochs = 2", "epochs = 8")
    path = written(tmp_path, *PARTS, head=head)
    trials = [trial.id for trial in expand_trials(config(tmp_path, *PARTS, head=head))]
    out = tmp_path / "out"
    monkeypatch.chdir(tmp_path)
    sweep = subprocess.Popen([sys.executable, "-m", "normgauge", "sweep", str(path)], stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120
    try:
        while not checkpoints(out) & set(trials[1:]):  # the first is done, the second has begun
            assert sweep.poll() is None and time.monotonic() < until
            time.sleep(0.02)
    finally:
        os.kill(sweep.pid, signal.SIGKILL)
        sweep.wait()
    first, second = (out / "trials" / trial for trial in trials)
    result = (first / "result.json").read_bytes()
    assert not (second / "result.json").exists()
    until = time.monotonic() + 10
    while alive(str(out)) and time.monotonic() < until:
        time.sleep(0.05)
    assert alive(str(out)) == []  # the trial did not outlive its sweep

    assert main(["sweep", str(path), "--json", "-"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [trial["status"] for trial in data["trials"]] == ["done"] * 2
    assert [trial["attempts"] for trial in data["trials"]] == [1, 2]
    assert (first / "result.json").read_bytes() == result
    run = store.read(second / "run.jsonl")
    assert len(run.resumes) == 1 and run.resumes[0]["step"] % 3 == 0 and run.resumes[0]["step"] >= 3
    assert run.end is not None and run.end["step"] == 24

    read = config(tmp_path, *PARTS, head=head)
    (tmp_path / "nets.py").write_text(CODE.replace("0.05", "0.0"))  # the same network, without its pauses
    straight = Folder(tmp_path / "straight", read.folder, {})
    with Local(1, Limits(1)) as engine:
        drive(expand_trials(read)[1:2], straight, engine)
    wanted = straight.outcome(expand_trials(read)[1]).values
    assert {**data["trials"][1]["values"], "alarms": 0} == {**wanted, "alarms": 0}
