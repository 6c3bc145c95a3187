"""How fast the folded product grows."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence

from normgauge.monitor.alarms import Alarm
from normgauge.monitor.seen import Place, Seen
from normgauge.monitor.thresholds import CAPACITY_DECADES, CAPACITY_READINGS, CAPACITY_STEPS, MEMORY


class Capacity:
    """The product of the folded gains, free of the scale in front of normalizers, over the last readings."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = list(places)
        self._readings = 0
        self._past: deque[tuple[int, float, list[float | None]]] = deque(maxlen=MEMORY)

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare with the lowest of the last readings."""
        total = seen.totals.get("log10_folded")
        self._readings += 1
        if total is None or not math.isfinite(total) or self._readings <= CAPACITY_READINGS:
            return
        while self._past and self._past[0][0] < seen.step - CAPACITY_STEPS:
            self._past.popleft()
        gains = [row.get("folded") for row in seen.rows[: len(self._places)]]
        since, before, then = min(self._past, key=lambda past: past[1], default=(seen.step, total, gains))
        self._past.append((seen.step, total, gains))
        factors = sum(gain is not None for gain in gains)
        limit = CAPACITY_DECADES * max(factors, 2)
        if total - before <= limit:
            return
        layer, decades = self._fastest(gains, then)
        sentence = (
            f"the folded product grew by {total - before:.1f} decades between steps {since} and {seen.step}, most in "
            f"{layer or 'no single layer'} ({decades:.1f}). The network becomes steeper far faster than training "
            "needs: lower the learning rate, or clip the gradient."
        )
        yield Alarm(seen.step, "capacity_growth", layer, sentence, total - before, limit)

    def _fastest(self, gains: Sequence[float | None], then: Sequence[float | None]) -> tuple[str, float]:
        growth = [
            (math.log10(now / old), place.name)
            for now, old, place in zip(gains, then, self._places, strict=False)
            if now and old
        ]
        decades, name = max(growth, default=(0.0, ""))
        return name, decades
