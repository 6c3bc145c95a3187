"""Outcomes of claims made by hand: every verdict and kind of finding, numbers that are hard to draw, hostile names."""

from __future__ import annotations

import math
from dataclasses import replace

from normgauge.core.claim import OWN, Comparison, ComparisonKind, Curve, Entry, Ledger, Outcome, Verdict

ATTACK = "</script><img src=x onerror=alert(1)>"


def finding(kind: ComparisonKind, what: str, measured: float, **more: object) -> Comparison:
    values: dict[str, object] = {"predicted": None, "published": None, "passed": True, "error": 0.0, **more}
    return Comparison(kind, what, measured, **values)  # type: ignore[arg-type]


def other(outcome: Outcome, **changes: object) -> Outcome:
    """The same outcome of another claim."""
    return replace(outcome, claim=replace(outcome.claim, **changes))  # type: ignore[arg-type]


CURVE = Curve(
    "Steps by learning rate", "learning rate", "steps", (0.01, 0.1, 1.0),
    (("measured", (900.0, 90.0, 9.0)), ("printed", (1e4, math.inf, 1.0))), log_x=True, log_y=True,
)  # fmt: skip
EVEN = Curve("A flat line", "x", "y", (0.0, 1.0, 2.0), (("zero", (0.0, 0.0, 0.0)), ("gap", (1.0, math.nan, 1.0))))

HOLDS = Outcome(
    Entry("T.L2", "Than 2025", "Lemma 2", "LayerNorm's slope is at most 1/σ.", Verdict.HOLDS, "‖LN‖ ≤ 1/σ",
          instead="With equality from n = 3 on.", backs=("norm_layer.layer_norm",)),
    seed=7, seconds=0.012,
    findings=(
        finding(ComparisonKind.EQUAL, "norm of the Jacobian", 3.75, predicted=3.75),
        finding(ComparisonKind.EQUAL, "its mean", 2e-16, predicted=0.0),
        finding(ComparisonKind.SHOWN, "the rank is n − 2", 1.0, predicted=1.0),
    ),
)  # fmt: skip
WRONG = Outcome(
    Entry("T.L1", "Than 2025", "Lemma 1, first part", "BatchNorm's constant is the length of 1/σ.", Verdict.WRONG,
          "‖BN‖ = ‖1/σ‖", within="σ = (0.5, 1): 2.29 is printed, 2 is found", instead="The largest entry, 10^0.3 here.",
          survives="the upper bound.", error="batchnorm-euclidean-norm"),
    seed=7, seconds=0.003, curves=(CURVE, EVEN),
    findings=(
        finding(ComparisonKind.REFUTES, "slope of a layer", 2.0, published=2.2912878, error=0.127),
        finding(ComparisonKind.EQUAL, "slope against the largest 1/σ", 2.0, predicted=2.0),
        finding(ComparisonKind.BELOW, "slope of another", 1e-3, predicted=1e4, published=1e9, error=-1.0),
        finding(ComparisonKind.BELOW, "a bound that is no bound", 5.0, predicted=math.inf, error=-math.inf),
    ),
)  # fmt: skip
AGAIN = other(WRONG, id="S.BN", source="Than 2023", at="slide 9", words="‖1/σ‖")
GAUGE = Outcome(
    Entry("A.R1", "Akbar", "Remark 1", "‖∇L‖ measures progress.", Verdict.GAUGE, "‖∇L‖ is", instead="‖w‖·‖∇L‖ does."),
    seed=7,
    findings=(
        finding(ComparisonKind.MOVES, "‖∇L‖ after w → 10w", 0.01, published=0.1, error=0.9),
        finding(ComparisonKind.EQUAL, "loss", -2.0, predicted=-2.0),
    ),
)  # fmt: skip
LOOSE = other(HOLDS, id="S.sum", source="Than 2023", at="slide 4", verdict=Verdict.LOOSE, backs=())
READ = Outcome(
    Entry("Q.open", "summary page", "mechanism 1", "It is so.", Verdict.UNSUPPORTED, "it may be so", hedged=True),
    absent="against the text, or the work it cites",
)
TRAINED = other(HOLDS, id="T.F1", at="Figure 1", experiment="than2025/fig1", verdict=Verdict.NOT_REPRODUCED)
TAKEN = other(READ, id="A.P4", source="Akbar", verdict=Verdict.WITHDRAWN)
MINE = other(HOLDS, id="X.add", source=OWN, at="composition", words="")
ALL = Ledger((HOLDS, WRONG, TRAINED, GAUGE, LOOSE, AGAIN, READ, TAKEN, MINE))

FAILED = replace(
    other(HOLDS, id="X.bad", source=OWN),
    findings=(finding(ComparisonKind.BELOW, "a slope", 3.0, predicted=2.0, passed=False, error=0.3),),
)
BROKEN = replace(other(HOLDS, id="X.broken", source=OWN), findings=(), problem="ZeroDivisionError: division by zero")


def hostile() -> Ledger:
    """Every text is an attack."""
    curve = Curve(ATTACK, ATTACK, ATTACK, (1.0, 2.0), ((ATTACK, (1.0, 2.0)),))
    rows = (finding(ComparisonKind.EQUAL, ATTACK, 1.0, predicted=1.0),)
    texts = dict.fromkeys(
        ("source", "at", "reading", "words", "within", "instead", "survives", "error", "note"), ATTACK
    )
    made = replace(
        other(WRONG, id=f"X.{ATTACK}", backs=(ATTACK,), experiment=ATTACK, **texts),
        findings=rows,
        curves=(curve,),
        problem=ATTACK,
    )
    return Ledger((made, other(made, id=f"Y.{ATTACK}"), replace(made, absent=ATTACK)))
