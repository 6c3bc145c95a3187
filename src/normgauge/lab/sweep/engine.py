"""Engines keep several attempts running: what local processes and Ray share, and the local one."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

from normgauge.lab.sweep.attempt import PAUSE, Attempt, Ended, Limits, quickest, warm_server


class Engine(ABC):
    """Keeps some attempts going; a context manager that ends them when it is left."""

    def __init__(self, workers: int, limits: Limits) -> None:
        self.workers, self.limits = workers, limits
        self._running: dict[Any, Path] = {}  # the folder of each attempt

    @property
    def free(self) -> int:
        """How many more attempts can be started now."""
        return self.workers - len(self._running)

    @abstractmethod
    def start(self, place: Path) -> None:
        """Begin an attempt at the trial of a folder."""

    @abstractmethod
    def ended(self) -> list[Ended]:
        """The attempts that ended since the last call; waits a moment if none did."""

    @abstractmethod
    def stop(self) -> None:
        """End the attempts that still run."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._running.clear()


class Local(Engine):
    """An engine of ``workers`` processes."""

    def start(self, place: Path) -> None:
        """Begin an attempt in a process of its own."""
        self._running[Attempt(place, self.limits, quickest())] = place

    def ended(self) -> list[Ended]:
        """The attempts whose processes ended; waits a moment if none did."""
        over = {running: found for running in self._running if (found := running.poll()) is not None}
        if not over:
            time.sleep(PAUSE)
        for running in over:
            del self._running[running]
        return list(over.values())

    def stop(self) -> None:
        """Kill the processes that still run."""
        for running in self._running:
            running.kill()

    def __enter__(self) -> Self:
        warm_server()
        return self


def threads_each(workers: int) -> int:
    """Threads for each of ``workers`` processes so that together they do not ask for more cores than there are."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        cores = os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    most = int(asked) if asked.isdigit() and int(asked) > 0 else cores
    return max(1, min(most, cores // workers))
