"""The watch kept over a run's numbers: which of them deserve an alarm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from normgauge.monitor.alarms import Alarm
from normgauge.monitor.columns import Row


class Watch:
    """Looks at every reading and remembers what it needs of the past; plain numbers only."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._fired: set[tuple[str, str]] = set()

    def observe(
        self, step: int, losses: Sequence[tuple[int, float]], rows: Sequence[Row], totals: Mapping[str, float | None]
    ) -> list[Alarm]:
        """The new alarms of one reading.

        Args:
            step: of the reading.
            losses: (step, loss) of every step since the reading before.
            rows: the numbers of each layer.
            totals: of the reading.
        """
        del rows, totals
        found = [
            Alarm(at, "nan", "", f"the loss is {loss} at step {at}.", loss, math.inf)
            for at, loss in losses
            if not math.isfinite(loss)
        ]
        return [alarm for alarm in found if self._first(alarm)]

    def _first(self, alarm: Alarm) -> bool:
        key = (alarm.alarm, alarm.layer)
        new = key not in self._fired
        self._fired.add(key)
        return new
