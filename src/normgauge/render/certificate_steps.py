"""What a row is made of, as the bars of a waterfall: terminal and page draw the same ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from normgauge.core.certificate import Kind, Row
from normgauge.render.certificate_families import ordered
from normgauge.render.certificate_words import adds_up

EVEN = 4.0  # totals up to so many times the limit are drawn on an even axis
FAR = 0.25  # totals below this share of the limit are drawn without it
FAINTEST = 1e-6  # shares of the limit below this sit at the start of a logarithmic axis
TOTAL = "total"


@dataclass(frozen=True, slots=True)
class Step:
    """One bar, in shares of the limit: from 1 on a row says nothing.

    Attributes:
        name: of the term; ``total`` for the last bar.
        value: of the term.
        start: where the bar begins; 0 on a logarithmic axis, which has no place for sums.
        end: where it ends.
        culprit: this term alone reaches the limit, or it is the largest of a row that says nothing.
    """

    name: str
    value: float
    start: float
    end: float
    culprit: bool = False


@dataclass(frozen=True, slots=True)
class Track:
    """Shares of the limit to places between 0 and 1.

    Attributes:
        low: the smallest share, or its decimal logarithm.
        high: the largest likewise.
        even: whether the axis is even or logarithmic.
        limited: whether the limit has a place on it.
    """

    low: float
    high: float
    even: bool
    limited: bool = True

    def at(self, share: float) -> float:
        """The place of a share; what lies outside, infinity above all, is at the edge."""
        if self.even:
            return min(max((share - self.low) / (self.high - self.low), 0.0), 1.0)
        log = math.log10(share) if share > 0 else -math.inf
        return (min(max(log, self.low), self.high) - self.low) / (self.high - self.low)


def stacked(rows: Sequence[Row]) -> list[Row]:
    """Rows whose terms add up to them, best first."""
    told = (Kind.BOUND, Kind.VACUOUS, Kind.ESTIMATE)
    return ordered([row for row in rows if row.kind in told and len(row.terms) > 1 and adds_up(row)])


def is_even(row: Row) -> bool:
    """Whether the terms can be seen on an even axis together with the limit."""
    size = sum(abs(value) for _, value in row.terms)
    return math.isfinite(size) and size <= EVEN * row.limit


def steps(row: Row) -> list[Step]:
    """The terms on top of each other, or each from the start where they span decades; the last bar is the total."""
    even, level = is_even(row), 0.0
    found = []
    for name, value in row.terms:
        culprit = value >= row.limit or (row.kind is Kind.VACUOUS and name == row.heaviest)
        start = level if even else 0.0
        found.append(Step(name, value, start / row.limit, (start + value) / row.limit, culprit))
        level += value
    total = level if row.value is None else row.value
    return [*found, Step(TOTAL, total, 0.0, total / row.limit)]


def track(row: Row) -> Track:
    """The axis of a row's bars; the limit has a place on it unless it is so far away that the bars would be hairs."""
    ends = [place for step in steps(row) for place in (step.start, step.end) if math.isfinite(place)]
    if is_even(row) and 0 < max(ends) < FAR:
        return Track(min(0.0, *ends), 1.04 * max(ends), even=True, limited=False)
    ends.append(1.0)
    if is_even(row):
        return Track(min(0.0, *ends), 1.04 * max(ends), even=True)
    logs = [math.log10(share) for share in ends if share > FAINTEST]
    return Track(min(logs) - 0.5, max(logs) + 0.5, even=False)
