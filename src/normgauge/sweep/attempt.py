"""The process of one attempt, seen from outside: begun, looked at, ended; why it failed in its own last words."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from normgauge.sweep.files import LOG, RESULT
from normgauge.sweep.processes import Fresh, Process

LAST_LINES, LAST_LETTERS = 4, 600
PAUSE = 0.05


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


class Attempt:
    """A running trial; kill it or ask until it has ended."""

    def __init__(self, place: Path, limits: Limits, process: Callable[[Path, int], Process] = Fresh) -> None:
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
    """An exit code in words; "" for 1, where the last words say more."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    if code == 1:
        return ""
    return f"ended with exit code {code}" + (" and without a result" if code == 0 else "")


def attempt(place: Path, limits: Limits) -> Ended:
    """Begin an attempt and wait for its end."""
    running = Attempt(place, limits)
    try:
        while (ended := running.poll()) is None:
            time.sleep(PAUSE)
    except BaseException:
        running.kill()
        raise
    return ended
