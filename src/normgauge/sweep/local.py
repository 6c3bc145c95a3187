"""Attempts as processes of this machine, so many at a time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from normgauge.sweep.attempt import PAUSE, Attempt, Ended, Limits
from normgauge.sweep.processes import quickest, warm


class Local:
    """An engine of ``workers`` processes."""

    def __init__(self, workers: int, limits: Limits) -> None:
        self.workers, self.limits = workers, limits
        self._running: list[Attempt] = []

    @property
    def free(self) -> int:
        """How many more attempts it takes now."""
        return self.workers - len(self._running)

    def start(self, place: Path) -> None:
        """Begin an attempt at the trial of a folder."""
        self._running.append(Attempt(place, self.limits, quickest()))

    def ended(self) -> list[Ended]:
        """Those that ended since the last call; waits a moment where there are none."""
        over = [(running, found) for running in self._running if (found := running.poll()) is not None]
        if not over:
            time.sleep(PAUSE)
        gone = {id(running) for running, _ in over}
        self._running = [running for running in self._running if id(running) not in gone]
        return [found for _, found in over]

    def __enter__(self) -> Self:
        warm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for running in self._running:
            running.kill()
        self._running = []


def threads_each(workers: int) -> int:
    """Threads for each of ``workers`` processes so that together they do not ask for more cores than there are."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        cores = os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    most = int(asked) if asked.isdigit() and int(asked) > 0 else cores
    return max(1, min(most, cores // workers))
