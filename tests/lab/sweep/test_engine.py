"""The engine of local processes: what ends well, what does not, and how many threads each gets."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from normgauge.lab.sweep.attempt import Ended, Forked, Limits
from normgauge.lab.sweep.engine import Engine, Local, threads_each
from normgauge.lab.sweep.files import read_result
from tests.lab.sweep.made import begun


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
