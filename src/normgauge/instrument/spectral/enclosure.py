"""What every algorithm of this folder returns: an interval, how it was found, and why it is not narrower."""

from __future__ import annotations

import math
from dataclasses import dataclass

from normgauge.core.interval import INF, LogInterval
from normgauge.core.rounding import HOUSE, UNIT, log_down, log_up


@dataclass(frozen=True, slots=True)
class Enclosure:
    """A proved interval for an operator norm.

    Attributes:
        log: natural logs of the lower and the upper end.
        method: the algorithm that gave the upper end.
        reason: why the width asked for was not reached; empty when it was.
        chance: that the upper end is too small, at most: 0 but for a proof with a random start.
    """

    log: LogInterval
    method: str
    reason: str = ""
    chance: float = 0.0

    @property
    def width(self) -> float:
        """log(upper / lower)."""
        return self.log.width


def enclose(lower: float, upper: float, exponent: int = 0) -> LogInterval:
    """The interval [lower, upper]·2^exponent with the house slack added outward.

    A lower end that is not positive, or that rounding pushed over the upper end, says nothing and becomes 0.
    """
    if math.isnan(upper) or math.isnan(lower) or math.isinf(upper):
        return LogInterval.nothing_known()
    if upper <= 0.0:
        return LogInterval(-INF, -INF)
    shift = exponent * math.log(2.0)
    room = HOUSE + 4 * UNIT * abs(shift)
    hi = log_up(upper) + shift + room
    lo = log_down(lower) + shift - room if lower > 0.0 else -INF
    return LogInterval(min(lo, hi), hi)


def shortfall(log: LogInterval, width: float, method: str) -> str:
    """The reason to state when ``log`` is wider than ``width``, else an empty string."""
    if log.width <= width:
        return ""
    return f"width {log.width:.1e} instead of {width:.1e}: {method} stops here"
