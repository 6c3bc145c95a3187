"""Intervals of positive numbers, held by their natural logarithms and rounded outwards."""

from __future__ import annotations

import math
from dataclasses import dataclass

from normgauge.core.rounding import log_down, log_up, step_down, step_up

INF = math.inf


@dataclass(frozen=True, slots=True)
class LogInterval:
    """A positive quantity known to lie in [exp(lo), exp(hi)].

    Zero is ``-inf`` and infinity ``+inf``; the interval [0, ∞] says that nothing is known. Every operation
    rounds outwards. A product with an infinite factor is infinite even against zero, because an infinite
    gain means "no bound", not a number to be multiplied away.
    """

    lo: float
    hi: float

    def __post_init__(self) -> None:
        if math.isnan(self.lo) or math.isnan(self.hi) or self.lo > self.hi:
            raise ValueError(f"expected lo <= hi without NaN, got [{self.lo}, {self.hi}]")

    @classmethod
    def of(cls, value: float) -> LogInterval:
        """The tightest interval that certainly holds ``value`` >= 0."""
        if math.isinf(value):
            return cls(INF, INF)
        return cls(log_down(value), log_up(value))

    @classmethod
    def nothing_known(cls) -> LogInterval:
        """The interval from 0 to ∞: nothing is known."""
        return cls(-INF, INF)

    @classmethod
    def one(cls) -> LogInterval:
        """The constant of the identity."""
        return cls(0.0, 0.0)

    @property
    def width(self) -> float:
        """log(upper / lower); 0 for a degenerate interval at 0 or ∞."""
        return 0.0 if self.lo == self.hi else self.hi - self.lo

    def __mul__(self, other: LogInterval) -> LogInterval:
        if self.hi == INF or other.hi == INF:
            hi = INF
        else:
            hi = step_up(self.hi + other.hi)
        lo = -INF if -INF in (self.lo, other.lo) else step_down(self.lo + other.lo)
        return LogInterval(min(lo, hi), hi)

    def contains(self, log_value: float) -> bool:
        """Whether exp(log_value) lies in the interval."""
        return self.lo <= log_value <= self.hi
