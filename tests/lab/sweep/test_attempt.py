"""One attempt as a real process: killed, orphaned, waited for, and its exit code in words."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from normgauge.lab.sweep import attempt, child
from normgauge.lab.sweep.attempt import ORPHANED, Attempt, Forked, Fresh, Limits, ending, quickest, run_attempt
from normgauge.lab.sweep.files import LOG
from tests.lab.sweep.made import begun


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


def test_a_trial_ends_with_its_pipe_or_its_parent(monkeypatch):
    ends: list[int] = []
    given = [b"x", b""]
    monkeypatch.setattr(attempt.os, "_exit", ends.append)
    monkeypatch.setattr(attempt.os, "read", lambda *_: given.pop(0))
    attempt._end_with_the_pipe()
    assert ends == [ORPHANED] and given == []
    attempt._end_with_the_parent()  # a main process has none
    assert ends == [ORPHANED]

    class Parent:
        def join(self) -> None:
            given.append(b"joined")

    monkeypatch.setattr(attempt.multiprocessing, "parent_process", Parent)
    attempt._end_with_the_parent()
    assert ends == [ORPHANED] * 2 and given == [b"joined"]


def test_both_ways_to_begin_a_trial_run_it(tmp_path, monkeypatch):
    ran, turned, threads = [], [], []
    monkeypatch.setattr(child, "run_folder", lambda place: ran.append(place) or 5)
    monkeypatch.setattr(attempt, "_end_with_the_pipe", lambda: None)
    monkeypatch.setattr(attempt, "_end_with_the_parent", lambda: None)
    monkeypatch.setattr(attempt.os, "dup2", lambda _, stream: turned.append(stream))
    monkeypatch.setattr(child.torch, "set_num_threads", threads.append)
    assert attempt._fresh(tmp_path) == 5
    with pytest.raises(SystemExit) as left:
        attempt._forked(str(tmp_path), 3)
    assert left.value.code == 5 and ran == [tmp_path, tmp_path] and turned == [1, 2] and threads == [3]
