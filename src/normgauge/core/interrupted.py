"""Ctrl-C, or a request to end, in the middle of work: no mistake of anybody's, so no `NormgaugeError`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from normgauge.core.spelled import ceil_log10

if TYPE_CHECKING:
    from normgauge.core.reading import Reading


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a model was measured; the model is as it was.

    Attributes:
        stage: what was going on.
        readings: what was known by then, a reading for each scope that had any numbers.
    """

    def __init__(self, stage: str, readings: Sequence[Reading]) -> None:
        self.stage, self.readings = stage, tuple(readings)
        known = "; ".join(f"{reading.scope}: at most {ceil_log10(reading.log_upper)}" for reading in self.readings)
        super().__init__(f"stopped ({stage}); known so far: {known}. What is missing was not looked for")


class Stopped(KeyboardInterrupt):
    """A signal ended work that goes on when the same command is given again.

    Attributes:
        code: the exit code a shell gives a process that this signal ends.
    """

    def __init__(self, told: str, signal: int) -> None:
        self.code = 128 + signal
        super().__init__(told)
