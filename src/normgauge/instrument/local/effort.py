"""How much work an effort allows, in one table; it is counted, not clocked, so that two runs do the same."""

from __future__ import annotations

from dataclasses import dataclass

from normgauge.instrument.local.sweep import MOST_OPEN
from normgauge.instrument.loop import LoopEffort
from normgauge.instrument.session import Session


@dataclass(frozen=True, slots=True)
class MarginSpending:
    """What may be spent on a certified radius, at each sample.

    Attributes:
        tries: radii at which gains are composed anew.
        balls: radii at which open units are followed.
        seconds: of counted work in one ball, at most.
        units: open at most.
        gap: relative, between multipliers and the best ones.
        steps: of the search for multipliers, at most.
        loop: what the loop transformation may take for one pair of classes; None where it is not tried.
    """

    tries: int
    balls: int
    seconds: float
    units: int
    gap: float
    steps: int
    loop: LoopEffort | None = None


@dataclass(frozen=True, slots=True)
class Spending:
    """What may be spent on one scope beyond the balanced bound.

    Attributes:
        seconds: of counted work.
        gap: relative, between multipliers and the best ones.
        steps: of the search for multipliers, at most.
        units: open at most, where all inputs are meant and all are open.
        rows: of open units in a ball, at most.
        lanczos: steps towards a Jacobian's norm, whatever they cost: eight give it to a half, sixteen to a tenth.
        loop: what the loop transformation may take; None where it is not tried.
        margins: what a certified radius may take.
    """

    seconds: float
    gap: float
    steps: int
    units: int
    rows: int
    lanczos: int
    loop: LoopEffort | None
    margins: MarginSpending


# all pairs of ten classes are 45: a second each
QUICK = MarginSpending(3, 3, 30.0, 256, 1e-2, 6)
USUAL = MarginSpending(8, 5, 30.0, 256, 1e-2, 15, LoopEffort(200, most_work=5e6))
LONG = MarginSpending(12, 6, 600.0, 2000, 1e-3, 40, LoopEffort(400, most_work=5e7))
SPENDINGS = {
    "quick": Spending(1.0, 1e-2, 30, 64, 100, 8, None, QUICK),
    "default": Spending(10.0, 1e-3, 60, 320, 700, 16, LoopEffort(200, most_work=1e8), USUAL),
    "long": Spending(600.0, 1e-4, 150, 1200, MOST_OPEN, 32, LoopEffort(400, most_work=1e9), LONG),
}


def spending_of(session: Session) -> Spending:
    """What the effort asked for allows."""
    return SPENDINGS[session.options.effort]
