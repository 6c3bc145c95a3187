"""Decides which numbers of a run deserve an alarm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from normgauge.monitor.signs.broken import BrokenNumbers
from normgauge.monitor.signs.data import DataScale, LabelNoise
from normgauge.monitor.signs.normalizers import Epsilon, Gains, MissingNormalizer, SigmaShift, StaleStatistics
from normgauge.monitor.signs.rate import EffectiveRate, LearningRate, Momentum, StandsStill
from normgauge.monitor.signs.sign import Alarm, Place, Seen, Sign
from normgauge.monitor.signs.weights import Capacity, Gradients, WeightScale
from normgauge.monitor.thresholds import QUIET

CAUSES: tuple[type[Sign], ...] = (
    BrokenNumbers, DataScale, Momentum, LearningRate, MissingNormalizer, WeightScale, Epsilon, Gains, StaleStatistics,
    StandsStill,
)  # fmt: skip

LAST_CAUSES: tuple[type[Sign], ...] = (LabelNoise,)  # causes inferred from nothing else having happened

SYMPTOMS: tuple[type[Sign], ...] = (SigmaShift, EffectiveRate, Gradients, Capacity)


class AlarmWatch:
    """Looks at every reading and remembers what it needs of the past; plain numbers only.

    An alarm comes once for each kind and layer, and again only after its sign was absent for ``QUIET`` readings. While
    a cause is known, its symptoms are left unsaid.

    Args:
        places: the layers, in the order of the rows.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._signs = [[sign(places) for sign in kind] for kind in (CAUSES, LAST_CAUSES, SYMPTOMS)]
        self._shown: dict[tuple[str, str], int] = {}  # kind and layer to the last reading that showed it
        self._readings = 0
        self._cause_at = -QUIET

    def observe(self, seen: Seen) -> list[Alarm]:
        """Take in one reading; returns the alarms that are new."""
        self._readings += 1
        causes, last, symptoms = ([alarm for sign in kind for alarm in sign.look(seen)] for kind in self._signs)
        new = self._new(causes)
        if new:
            self._cause_at = self._readings
        known = self._readings - self._cause_at < QUIET
        if not known:
            new += self._new(last)
        if not known and not last:
            new += self._new(symptoms)
        return new

    def _new(self, alarms: Iterable[Alarm]) -> list[Alarm]:
        """The alarms that were not shown lately; all are noted as shown."""
        new = []
        for alarm in alarms:
            key = (alarm.alarm, alarm.layer)
            if self._readings - self._shown.get(key, -QUIET) >= QUIET:
                new.append(alarm)
            self._shown[key] = self._readings
        return new
