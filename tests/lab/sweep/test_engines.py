"""Real processes: a trial that ends well, and all the ways in which one does not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from normgauge.lab.sweep.attempt import Attempt, Ended, Forked, Fresh, Limits, ending, quickest, run_attempt
from normgauge.lab.sweep.child import ORPHANED
from normgauge.lab.sweep.drive import Folder
from normgauge.lab.sweep.engine import Engine, Local, threads_each
from normgauge.lab.sweep.files import LOG, read_result
from normgauge.lab.sweep.space import expand_trials
from tests.lab.sweep.made import HEAD, config

OWN = HEAD.replace('build = "mlp"', 'build = "nets.py:build"').replace("sizes = [64, 8, 10]", "")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def begun(folder: Path, *values: str, key: str = "how") -> list[Path]:
    """Trials of the network of nets.py."""
    read = config(folder, f'[grid]\n"network.options.{key}" = [{", ".join(values)}]', head=OWN, top="monitor = false")
    places = Folder(folder / "out", read.folder, {})
    return [places.begin(trial) for trial in expand_trials(read)]


def all_ended(engine: Engine, count: int) -> dict[Path, Ended]:
    found: dict[Path, Ended] = {}
    until = time.monotonic() + 60
    while len(found) < count and time.monotonic() < until:
        found |= {ended.place: ended for ended in engine.ended()}
    return found


def test_some_end_well_and_others_do_not(tmp_path):
    well, raising, leaving, other = begun(tmp_path, '"well"', '"raise"', '"exit"', '"number"')
    with Local(2, Limits(1)) as engine:
        engine.start(well)
        engine.start(raising)
        assert engine.free == 0
        ended = all_ended(engine, 2)
        assert engine.free == 2
        engine.start(leaving)
        engine.start(other)
        ended |= all_ended(engine, 2)
    assert ended[well].error == "" and read_result(well) is not None and ended[well].seconds > 0
    assert ended[raising].error.endswith("ValueError: no such network today")
    assert ended[leaving].error == "ended with exit code 7\nabout to leave" and read_result(leaving) is None
    assert "LoadError: nets.py:build: expected a torch.nn.Module, got int" in ended[other].error
    assert "Traceback" not in ended[other].error


def test_one_that_takes_too_long_is_killed(tmp_path):
    (slow,) = begun(tmp_path, "30.0", key="seconds")
    with Local(1, Limits(1, 1.0)) as engine:
        engine.start(slow)
        ended = all_ended(engine, 1)[slow]
    assert ended.error == "timed out: killed after 1 s (run.timeout)" and 1.0 <= ended.seconds < 10


def test_leaving_the_engine_ends_what_runs(tmp_path):
    (slow,) = begun(tmp_path, "30.0", key="seconds")
    with Local(1, Limits(1)) as engine:
        engine.start(slow)
        process = next(iter(engine._running))._process
        assert isinstance(process, Forked)
        pid = process._process.pid
        assert pid is not None
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_one_that_is_killed_from_outside(tmp_path):
    (slow,) = begun(tmp_path, "30.0", key="seconds")
    running = Attempt(slow, Limits(1), quickest())
    assert running.poll() is None and isinstance(running._process, Forked)
    running._process._process.kill()
    until = time.monotonic() + 10
    while (ended := running.poll()) is None and time.monotonic() < until:
        time.sleep(0.02)
    assert ended is not None and ended.error.startswith("killed by SIGKILL (out of memory?)")


def test_a_fresh_interpreter_ends_with_the_process_that_began_it(tmp_path):
    (slow,) = begun(tmp_path, "30.0", key="seconds")
    running = Attempt(slow, Limits(1))
    assert running.poll() is None and isinstance(running._process, Fresh)
    inner = running._process._process
    assert inner.stdin is not None
    inner.stdin.close()  # what the system does when this process ends
    assert inner.wait(60) == ORPHANED
    ended = running.poll()
    assert ended is not None and ended.error == f"ended with exit code {ORPHANED}"


class Patient:
    """A process that ends when it was asked three times, or is interrupted."""

    def __init__(self, place: Path, threads: int) -> None:
        self.asked, self.killed, Patient.last = 0, False, self

    last: Patient | None = None
    interrupted = False

    def poll(self) -> int | None:
        self.asked += 1
        if Patient.interrupted:
            raise KeyboardInterrupt
        return 4 if self.asked == 3 else None

    def kill(self) -> None:
        self.killed = True


def test_an_attempt_can_be_waited_for(tmp_path, monkeypatch):
    (tmp_path / LOG).write_text("last words\n")
    monkeypatch.setattr(Attempt.__init__, "__defaults__", (Patient,))
    ended = run_attempt(tmp_path, Limits(1))
    assert ended.error == "ended with exit code 4"  # what stood in the log before is not of this attempt
    assert Patient.last is not None and Patient.last.asked == 3
    monkeypatch.setattr(Patient, "interrupted", True)
    with pytest.raises(KeyboardInterrupt):
        run_attempt(tmp_path, Limits(1))
    assert Patient.last.killed


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, ""),
        (3, "ended with exit code 3"),
        (0, "ended with exit code 0 and without a result"),
        (-9, "killed by SIGKILL (out of memory?)"),
        (-11, "killed by SIGSEGV"),
        (-200, "killed by signal 200"),
    ],
)
def test_exit_codes_in_words(code, words):
    assert ending(code) == words


@pytest.fixture
def cores(monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_threads_do_not_ask_for_more_cores_than_there_are(cores, monkeypatch):
    assert [threads_each(workers) for workers in (1, 2, 3, 8, 20)] == [8, 4, 2, 1, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert [threads_each(workers) for workers in (1, 4)] == [3, 2]
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert threads_each(2) == 2
