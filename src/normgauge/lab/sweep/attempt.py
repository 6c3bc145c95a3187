"""The process of one attempt: begun, looked at, ended; why it failed in its own last words.

There are two ways to begin it: a fresh interpreter, or a fork of a server that has torch loaded already. Loading torch
takes seconds; a fork takes milliseconds, and is a process of its own all the same. Either ends when the process that
began it does, however that ended: a thread waits for it, begun before torch is loaded.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

from normgauge.lab.sweep.files import LOG, RESULT

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext  # not on every system

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
LAST_LINES, LAST_LETTERS = 4, 600
PAUSE = 0.05
ORPHANED = 70  # the exit code of an attempt whose sweep has ended


@dataclass(frozen=True, slots=True)
class Limits:
    """What an attempt may use.

    Attributes:
        threads: for arithmetic.
        timeout: seconds of wall clock; None for no limit.
    """

    threads: int
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that is over.

    Attributes:
        place: the trial's folder.
        seconds: how long it took.
        error: why it failed; "" where it did not.
    """

    place: Path
    seconds: float
    error: str = ""


class Fresh:
    """A fresh interpreter; its standard input is a pipe that closes when this process ends."""

    def __init__(self, place: Path, threads: int) -> None:
        environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
        command = [sys.executable, "-m", "normgauge.lab.sweep.attempt", str(place)]
        with (place / LOG).open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
            )

    def poll(self) -> int | None:
        """Its exit code, negative for the signal that killed it; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End it now, wait for that, and give back what it held here."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


class Forked:
    """A fork of the server; it watches the process that asked for it and ends with that."""

    def __init__(self, place: Path, threads: int) -> None:
        (place / LOG).touch()
        self._process: BaseProcess = _context().Process(target=_forked, args=(str(place), threads))
        self._process.start()
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        if self._code is None:
            self._code = self._process.exitcode
        return self._code

    def kill(self) -> None:
        """End it now."""
        if self.poll() is None:
            self._process.kill()
        if self._code is None:
            self._process.join()
            self._code = self._process.exitcode
        self._process.close()


def _fresh(place: Path) -> int:
    """Run the trial of a folder in this interpreter, which was begun for it; returns the exit code."""
    threading.Thread(target=_end_with_the_pipe, daemon=True).start()
    from normgauge.lab.sweep.child import run_folder

    return run_folder(place)


def _forked(place: str, threads: int) -> None:
    """Run the trial of a folder in this fork; what it prints goes to its log."""
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    import torch

    from normgauge.lab.sweep.child import run_folder

    with (Path(place) / LOG).open("ab") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    torch.set_num_threads(threads)
    sys.exit(run_folder(Path(place)))


def _end_with_the_pipe() -> None:
    while os.read(0, 1):  # ends when the pipe is closed
        pass
    os._exit(ORPHANED)


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(ORPHANED)


def _nothing() -> None:
    """The work of the first fork, which runs once the server has loaded everything."""


def warm_server() -> None:
    """Begin the server of forks and wait until it has loaded everything, so that no trial's time is spent on it."""
    if quickest() is Forked:
        first = _context().Process(target=_nothing)
        first.start()
        first.join()
        first.close()


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["normgauge.lab.sweep.preload"])
    return context


def quickest() -> type[Fresh] | type[Forked]:
    """The quickest way to begin an attempt: a fork, where the system has them."""
    return Forked if "forkserver" in multiprocessing.get_all_start_methods() else Fresh


class Attempt:
    """A running trial, to be polled until it ends, or killed."""

    def __init__(self, place: Path, limits: Limits, process: Callable[[Path, int], Fresh | Forked] = Fresh) -> None:
        self.place, self.limits = place, limits
        self._begun = time.monotonic()
        self._log = place / LOG
        self._before = self._log.stat().st_size if self._log.exists() else 0
        self._process = process(place, limits.threads)

    def poll(self) -> Ended | None:
        """How it ended; None while it runs. One that took too long is killed."""
        seconds = time.monotonic() - self._begun
        code = self._process.poll()
        if code is None:
            if self.limits.timeout is None or seconds < self.limits.timeout:
                return None
            self.kill()
            return Ended(self.place, seconds, f"timed out: killed after {self.limits.timeout:g} s (run.timeout)")
        self.kill()
        if code == 0 and (self.place / RESULT).exists():
            return Ended(self.place, seconds)
        return Ended(self.place, seconds, "\n".join(part for part in (ending(code), self._last_words()) if part))

    def kill(self) -> None:
        """End it now."""
        self._process.kill()

    def _last_words(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._before)
            lines = log.read().decode("utf-8", errors="replace").splitlines()
        kept = [line.rstrip() for line in lines if line.strip()][-LAST_LINES:]
        return "\n".join(kept)[-LAST_LETTERS:]


def ending(code: int) -> str:
    """An exit code in words; "" for 1, where the log says more."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    if code == 1:
        return ""
    return f"ended with exit code {code}" + (" and without a result" if code == 0 else "")


def run_attempt(place: Path, limits: Limits) -> Ended:
    """Begin an attempt and wait for its end."""
    running = Attempt(place, limits)
    try:
        while (ended := running.poll()) is None:
            time.sleep(PAUSE)
    except BaseException:
        running.kill()
        raise
    return ended


if __name__ == "__main__":
    sys.exit(_fresh(Path(sys.argv[1])))
