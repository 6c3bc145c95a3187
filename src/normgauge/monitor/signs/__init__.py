"""Signs of trouble, one kind a file; plain numbers in, alarms out.

Causes name what to change. Symptoms name where it shows, and are left unsaid while a cause is known.
"""

from __future__ import annotations

from normgauge.monitor.signs.broken import Broken
from normgauge.monitor.signs.capacity import Capacity
from normgauge.monitor.signs.data import DataScale
from normgauge.monitor.signs.gamma import Gains
from normgauge.monitor.signs.gradient import Gradients
from normgauge.monitor.signs.labels import LabelNoise
from normgauge.monitor.signs.missing import MissingNormalizer
from normgauge.monitor.signs.rate import EffectiveRate, LearningRate, Momentum
from normgauge.monitor.signs.scale import WeightScale
from normgauge.monitor.signs.sigma import Epsilon, Sigma
from normgauge.monitor.signs.sign import Sign
from normgauge.monitor.signs.statistics import StaleStatistics
from normgauge.monitor.signs.still import StandsStill

CAUSES: tuple[type[Sign], ...] = (
    Broken, DataScale, Momentum, LearningRate, MissingNormalizer, WeightScale, Epsilon, Gains, StaleStatistics,
    StandsStill,
)  # fmt: skip

LAST_CAUSES: tuple[type[Sign], ...] = (LabelNoise,)
"""Causes inferred from nothing else having happened."""

SYMPTOMS: tuple[type[Sign], ...] = (Sigma, EffectiveRate, Gradients, Capacity)

__all__ = ["CAUSES", "LAST_CAUSES", "SYMPTOMS", "Sign"]
