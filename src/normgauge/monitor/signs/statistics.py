"""Running statistics of batch normalization against those of the batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from normgauge.monitor.alarms import Alarm
from normgauge.monitor.seen import Place, Seen
from normgauge.monitor.sheet import Row
from normgauge.monitor.thresholds import (
    STATISTICS,
    STATISTICS_FROZEN,
    STATISTICS_READINGS,
    STATISTICS_STEPS,
    STATISTICS_STILL,
)


class StaleStatistics:
    """Running σ² that stand still, or that belong to other data."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = list(places)
        self._apart: dict[int, int] = defaultdict(int)
        self._still: dict[int, int] = defaultdict(int)
        self._last: dict[int, float] = {}

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare every normalizer that keeps statistics."""
        for row, place in enumerate(self._places):
            if place.role == "norm" and "running" in seen.rows[row]:
                yield from self._one(seen, row, place.name, seen.rows[row])

    def _one(self, seen: Seen, row: int, name: str, numbers: Row) -> Iterator[Alarm]:
        running, frozen = numbers["running"], "batch" in numbers
        batch = numbers["batch"] if frozen else numbers.get("sigma_rms", 0.0) ** 2 - numbers.get("eps", 0.0)
        moved = frozen or running != self._last.get(row)
        self._last[row] = running
        self._still[row] = 0 if moved else self._still[row] + 1
        if batch > 0.0:
            apart = not 1 / STATISTICS < running / batch < STATISTICS and (frozen or seen.step >= STATISTICS_STEPS)
            self._apart[row] = self._apart[row] + 1 if apart else 0
        if self._apart[row] >= (STATISTICS_FROZEN if frozen else STATISTICS_READINGS):
            use = (
                "it normalizes with the running ones (eval mode while training)"
                if frozen
                else "evaluation will use them"
            )
            sentence = (
                f"{name}: the running σ² is {running:.3g}, that of the batch {batch:.3g}; {use}. They belong to other "
                "data or are not updated: put it in train mode, give momentum about 0.1, or recompute them."
            )
            yield Alarm(seen.step, "stale_statistics", name, sentence, running / batch, STATISTICS)
        elif self._still[row] >= STATISTICS_STILL:
            sentence = (
                f"{name}: the running statistics have not moved in {self._still[row]} readings although it trains; "
                f"evaluation will use σ² = {running:.3g} where the batch has {batch:.3g}. Is its momentum 0?"
            )
            yield Alarm(seen.step, "stale_statistics", name, sentence, float(self._still[row]), float(STATISTICS_STILL))
