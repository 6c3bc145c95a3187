"""Outcomes of claims made by hand: every verdict and kind of finding, numbers that are hard to draw, hostile names."""

from __future__ import annotations

import math
from dataclasses import replace

from normgauge.core.claim import Curve, Finding, Kind, Ledger, Outcome, Verdict

ATTACK = "</script><img src=x onerror=alert(1)>"


def finding(kind: Kind, what: str, measured: float, **more: object) -> Finding:
    values: dict[str, object] = {"predicted": None, "published": None, "passed": True, "error": 0.0, **more}
    return Finding(kind, what, measured, **values)  # type: ignore[arg-type]


CURVE = Curve(
    "Steps by learning rate", "learning rate", "steps", (0.01, 0.1, 1.0),
    (("measured", (900.0, 90.0, 9.0)), ("printed", (1e4, math.inf, 1.0))), log_x=True, log_y=True,
)  # fmt: skip
EVEN = Curve("A flat line", "x", "y", (0.0, 1.0, 2.0), (("zero", (0.0, 0.0, 0.0)), ("gap", (1.0, math.nan, 1.0))))

HOLDS = Outcome(
    "T.L2", "Than 2025, Lemma 2", "LayerNorm's slope is at most 1/σ.", Verdict.HOLDS, "With equality from n = 3 on.",
    backs=("norm_layer.layer_norm",), seed=7, seconds=0.012,
    findings=(
        finding(Kind.EQUAL, "norm of the Jacobian", 3.75, predicted=3.75),
        finding(Kind.EQUAL, "its mean", 2e-16, predicted=0.0),
        finding(Kind.SHOWN, "the rank is n − 2", 1.0, predicted=1.0),
    ),
)  # fmt: skip
WRONG = Outcome(
    "T.L1", "Than 2025, Lemma 1, first part", "BatchNorm's constant is the length of 1/σ.", Verdict.WRONG,
    "It is the largest entry, 10^0.3 here.", seed=7, seconds=0.003, curves=(CURVE, EVEN),
    findings=(
        finding(Kind.REFUTES, "slope of a layer", 2.0, published=2.2912878, error=0.127),
        finding(Kind.EQUAL, "slope against the largest 1/σ", 2.0, predicted=2.0),
        finding(Kind.BELOW, "slope of another", 1e-3, predicted=1e4, published=1e9, error=-1.0),
        finding(Kind.BELOW, "a bound that is no bound", 5.0, predicted=math.inf, error=-math.inf),
    ),
)  # fmt: skip
GAUGE = Outcome(
    "A.R1", "Akbar, Remark 1", "‖∇L‖ measures progress.", Verdict.GAUGE, "‖w‖·‖∇L‖ does.", seed=7,
    findings=(
        finding(Kind.MOVES, "‖∇L‖ after w → 10w", 0.01, published=0.1, error=0.9),
        finding(Kind.EQUAL, "loss", -2.0, predicted=-2.0),
    ),
)  # fmt: skip
LOOSE = replace(HOLDS, id="S.sum", source="Than 2023 (slides), p. 4", verdict=Verdict.LOOSE, backs=())
READ = Outcome("Q.open", "summary page, question 1", "Is it so?", Verdict.UNSUPPORTED, "A question.", checked="reading")
TRAINED = replace(READ, id="T.F1", source="Than 2025, Figure 1", checked="than2025/fig1", verdict=Verdict.GAUGE)
ALL = Ledger((HOLDS, WRONG, TRAINED, GAUGE, LOOSE, READ))

FAILED = replace(
    HOLDS, id="X.bad", findings=(finding(Kind.BELOW, "a slope", 3.0, predicted=2.0, passed=False, error=0.3),)
)
BROKEN = replace(READ, id="X.broken", checked="here", problem="ZeroDivisionError: division by zero")


def hostile() -> Ledger:
    """Every text is an attack."""
    curve = Curve(ATTACK, ATTACK, ATTACK, (1.0, 2.0), ((ATTACK, (1.0, 2.0)),))
    rows = (finding(Kind.EQUAL, ATTACK, 1.0, predicted=1.0),)
    made = replace(
        HOLDS, id=f"X.{ATTACK}", source=f"{ATTACK}, {ATTACK}", statement=ATTACK, correction=ATTACK, backs=(ATTACK,),
        findings=rows, curves=(curve,), problem=ATTACK,
    )  # fmt: skip
    return Ledger((made, replace(made, id=f"Y.{ATTACK}")))
