"""The size of the input."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from normgauge.monitor.alarms import Alarm
from normgauge.monitor.seen import Place, Seen
from normgauge.monitor.signs.sign import Level
from normgauge.monitor.thresholds import DATA_JUMP, DATA_LARGE, DATA_SMALL


class DataScale:
    """Inputs of a size no network is made for, or of another size than before."""

    def __init__(self, places: Sequence[Place]) -> None:
        del places
        self._level = Level()

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare the root mean square of the batch."""
        size = seen.given
        if size is None or not math.isfinite(size):
            return
        factor = self._level.factor(size)
        if factor > DATA_JUMP or factor < 1 / DATA_JUMP:
            sentence = (
                f"the input's root mean square is {size:.3g} at step {seen.step}; it was {self._level.value:.3g} "
                "before. The data changed scale: look at how this batch is loaded and normalized (a missing division "
                "by 255?)."
            )
            yield Alarm(seen.step, "data_scale", "", sentence, factor, DATA_JUMP)
            return
        self._level.see(size)
        if size > DATA_LARGE or 0.0 < size < DATA_SMALL:
            sentence = (
                f"the input's root mean square is {size:.3g}; networks are initialized for inputs near 1. Scale the "
                "data (divide images by 255, or subtract the mean and divide by the standard deviation)."
            )
            yield Alarm(seen.step, "data_scale", "", sentence, size, DATA_LARGE if size > 1 else DATA_SMALL)
