"""Signs of trouble, by subject; plain numbers in, alarms out.

Causes name what to change. Symptoms name where it shows, and are left unsaid while a cause is known.
"""

from __future__ import annotations

from normgauge.monitor.signs.broken import Broken
from normgauge.monitor.signs.data import DataScale, LabelNoise
from normgauge.monitor.signs.normalizers import Epsilon, Gains, MissingNormalizer, Sigma, StaleStatistics
from normgauge.monitor.signs.rate import EffectiveRate, LearningRate, Momentum, StandsStill
from normgauge.monitor.signs.sign import Alarm, Place, Seen, Sign
from normgauge.monitor.signs.weights import Capacity, Gradients, WeightScale

CAUSES: tuple[type[Sign], ...] = (
    Broken, DataScale, Momentum, LearningRate, MissingNormalizer, WeightScale, Epsilon, Gains, StaleStatistics,
    StandsStill,
)  # fmt: skip

LAST_CAUSES: tuple[type[Sign], ...] = (LabelNoise,)
"""Causes inferred from nothing else having happened."""

SYMPTOMS: tuple[type[Sign], ...] = (Sigma, EffectiveRate, Gradients, Capacity)

__all__ = ["CAUSES", "LAST_CAUSES", "SYMPTOMS", "Alarm", "Place", "Seen", "Sign"]
