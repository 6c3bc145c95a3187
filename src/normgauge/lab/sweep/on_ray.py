"""Attempts as Ray tasks, on a cluster that runs already or on a small one begun here.

Each task begins the same process as the local engine does, so a crash, a limit or an error looks the same. The sweep's
folder and the config's must be at the same place on every machine (a shared disk).
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from normgauge.core.errors import InputError
from normgauge.lab.sweep.attempt import Ended, Limits, run_attempt
from normgauge.lab.sweep.engine import Engine

MOMENT = 0.2  # seconds to wait for a task to end
ANSWER = 3.0  # seconds for a cluster to take a connection: Ray itself tries for two minutes


class OnRay(Engine):
    """An engine of Ray tasks."""

    def __init__(self, workers: int, limits: Limits, address: str | None = None, gpus: float = 0.0) -> None:
        super().__init__(workers, limits)
        self._ray, self._own = _connected(workers * limits.threads, address)
        # Ray must not try again by itself: attempts are counted, and each is written down.
        remote = self._ray.remote(max_retries=0, num_cpus=limits.threads, num_gpus=gpus)
        self._task: Any = remote(_attempt_there)

    def start(self, place: Path) -> None:
        """Begin an attempt as a Ray task."""
        place = place.resolve()
        self._running[self._task.remote(str(place), self.limits.threads, self.limits.timeout)] = place

    def ended(self) -> list[Ended]:
        """The attempts whose tasks ended; waits a moment for one."""
        if not self._running:
            return []
        over, _ = self._ray.wait(list(self._running), num_returns=1, timeout=MOMENT)
        return [self._outcome(reference, self._running.pop(reference)) for reference in over]

    def _outcome(self, reference: Any, place: Path) -> Ended:
        try:
            seconds, error = self._ray.get(reference)
        except self._ray.exceptions.RayError as failure:
            return Ended(place, 0.0, f"Ray: {' '.join(str(failure).split())[:400]}")
        return Ended(place, seconds, error)

    def stop(self) -> None:
        """Cancel the tasks that still run, and end a Ray that was started here."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        if self._own:
            self._ray.shutdown()


def _attempt_there(place: str, threads: int, timeout: float | None) -> tuple[float, str]:
    """What a Ray worker runs; it is given and returns plain values only."""
    folder = Path(place)
    if not folder.is_dir():
        return 0.0, f"{place} is not there on this machine; the sweep's folder must be on a disk that all share"
    found = run_attempt(folder, Limits(threads, timeout))
    return found.seconds, found.error


def _connected(cpus: int, address: str | None) -> tuple[ModuleType, bool]:
    """Ray, and whether it was begun here.

    Raises:
        InputError: when it is not installed, or there is no such cluster.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is sent anywhere
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray needs Ray: pip install 'normgauge[ray]'") from None
    if ray.is_initialized():
        return ray, False
    _check_address(address)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    before = signal.getsignal(signal.SIGTERM)
    try:
        if address is not None:
            ray.init(address=address, **quiet)
        else:
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        told = " ".join(str(error).split())[:300]
        where = f"no Ray cluster at {address}" if address else "Ray did not start here"
        raise InputError(f"{where}: {told}") from None
    if threading.current_thread() is threading.main_thread() and before is not None:
        signal.signal(signal.SIGTERM, before)  # Ray has put its own in its place, which ends this process with a dump
    return ray, True


def _check_address(address: str | None) -> None:
    """Refuse an address at which nothing listens, before Ray tries it again and again.

    Raises:
        InputError: when there is none.
    """
    place = re.fullmatch(r"(?:ray://)?(?:\[([^\]]+)\]|([^:/]+)):(\d{1,5})", address or "")
    if place is None:
        return  # auto, or another form that Ray knows
    try:
        socket.create_connection((place[1] or place[2], int(place[3])), ANSWER).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(
            f"no Ray cluster at {address}: {why}; give the address that `ray start --head` printed, or none for a "
            "small cluster begun here"
        ) from None
