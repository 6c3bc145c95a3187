"""Weights that do not move although they should."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from normgauge.monitor.alarms import Alarm
from normgauge.monitor.seen import Place, Seen
from normgauge.monitor.thresholds import STILL_READINGS


class StandsStill:
    """No weight moved in several readings, with gradients there and a learning rate that is not known to be 0."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._count = len(places)
        self._still = 0

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Count the readings in which every weight with a gradient stayed where it was."""
        moving = [row for row in seen.rows[: self._count] if row.get("gradient", 0.0) > 0.0 and "update" in row]
        still = bool(moving) and seen.rate != 0.0 and all(row["update"] == 0.0 for row in moving)
        self._still = self._still + 1 if still else 0
        if self._still >= STILL_READINGS:
            sentence = (
                f"no weight moved in the last {self._still} readings although there are gradients: is optimizer.step() "
                "called before monitor.step(), and does the optimizer hold these parameters?"
            )
            yield Alarm(seen.step, "no_update", "", sentence, float(self._still), float(STILL_READINGS))
