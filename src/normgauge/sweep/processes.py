"""Two ways to begin a trial's process: a fresh interpreter, or a fork of a server that has torch loaded already.

Loading torch takes seconds; a fork takes milliseconds, and is a process of its own all the same. Either ends when the
process that began it does.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from normgauge.sweep.files import LOG

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext  # not on every system

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Process(Protocol):
    """A process that was begun."""

    def poll(self) -> int | None:
        """Its exit code, minus the signal that killed it; None while it runs."""

    def kill(self) -> None:
        """End it now, wait for that, and give back what it held here."""


class Fresh:
    """A fresh interpreter; its standard input is a pipe that closes when this process ends."""

    def __init__(self, place: Path, threads: int) -> None:
        environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
        command = [sys.executable, "-m", "normgauge.sweep.child", str(place)]
        with (place / LOG).open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
            )

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End it now."""
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


def _forked(place: str, threads: int) -> None:
    from normgauge.sweep.child import run_forked

    sys.exit(run_forked(Path(place), threads))


def _nothing() -> None:
    """The first fork: it is there when the server has loaded everything."""


def warm() -> None:
    """Begin the server of forks and wait until it has loaded everything, so that no trial's time is spent on it."""
    if quickest() is Forked:
        first = _context().Process(target=_nothing)
        first.start()
        first.join()
        first.close()


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["normgauge.sweep.preload"])
    return context


def quickest() -> type[Fresh] | type[Forked]:
    """Forks where the system has them."""
    return Forked if "forkserver" in multiprocessing.get_all_start_methods() else Fresh
