"""The plain hold-out rows: always printed, nearly always the smallest."""

from __future__ import annotations

import math
from collections.abc import Iterator

from normgauge.core.certificate import Consumed, Kind, Row, promised
from normgauge.generalization.bounds.holdout import clopper_pearson, hoeffding, kl_holdout
from normgauge.generalization.case import Case
from normgauge.generalization.conditions import HOLDOUT
from normgauge.generalization.facts.space import margins_of

ABSENT = "no labelled hold-out was given; with one (holdout=) this row is nearly always the smallest"


def rows(case: Case) -> Iterator[Row]:
    """Clopper-Pearson, kl and Hoeffding on the same hold-out labels."""
    forms = (
        ("clopper_pearson", "Hold-out, Clopper-Pearson", "largest p with P(Bin(n, p) ≤ k) ≥ δ", "Langford 2005"),
        ("kl", "Hold-out, kl", "kl⁻¹(F(V), ln(1/δ)/n)", "Chernoff; Hoeffding 1963"),
        ("hoeffding", "Hold-out, Hoeffding", "F(V) + √(ln(1/δ)/(2n))", "Hoeffding 1963"),
    )
    for key, name, formula, source in forms:
        shared = {
            "key": f"holdout.{key}",
            "name": name,
            "family": "hold-out",
            "confidence": 1 - case.delta,
            "consumed": (Consumed.HOLDOUT_LABELS,),
            "formula": formula,
            "source": source,
        }
        if case.holdout is None or case.holdout_logits is None or case.holdout.labels is None:
            yield Row(kind=Kind.NOT_APPLICABLE, reason=ABSENT, **shared)  # type: ignore[arg-type]
            continue
        wrong = int((margins_of(case.holdout_logits, case.holdout.labels) <= 0).sum())
        n = len(case.holdout)
        value = _value(key, wrong, n, case.delta)
        terms = (("error on the hold-out", wrong / n), ("price of its size", value - wrong / n))
        row = Row(kind=Kind.SCORE, value=value, terms=terms, additive=True, **shared)  # type: ignore[arg-type]
        yield promised(row, condition=HOLDOUT)


def _value(key: str, wrong: int, n: int, delta: float) -> float:
    if key == "clopper_pearson":
        return clopper_pearson(wrong, n, math.log(delta))
    return kl_holdout(wrong / n, n, delta) if key == "kl" else hoeffding(wrong / n, n, delta)
