"""The plain hold-out rows: always printed, nearly always the smallest."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.core.certificate import Consumed, Kind, Row, promised
from normgauge.generalization.bounds.holdout import clopper_pearson, group_mean, hoeffding, kl_holdout
from normgauge.generalization.case import Case
from normgauge.generalization.conditions import GROUPS, HOLDOUT
from normgauge.generalization.facts.space import margins_of

ABSENT = "no labelled hold-out was given; with one (holdout=) this row is nearly always the smallest"
GROUPED = "its count needs independent samples, and these come in groups; the rows beside it count the groups"


def rows(case: Case) -> Iterator[Row]:
    """Clopper-Pearson, kl and Hoeffding on the same hold-out labels; by groups where there are any."""
    forms = (
        ("clopper_pearson", "Hold-out, Clopper-Pearson", "largest p with P(Bin(n, p) ≤ k) ≥ δ", "Langford 2005"),
        ("kl", "Hold-out, kl", "kl⁻¹(F(V), ln(1/δ)/n)", "Chernoff; Hoeffding 1963"),
        ("hoeffding", "Hold-out, Hoeffding", "F(V) + √(ln(1/δ)/(2n))", "Hoeffding 1963"),
    )
    for key, name, formula, source in forms:
        blank = Row(
            key=f"holdout.{key}",
            name=name,
            family="hold-out",
            kind=Kind.NOT_APPLICABLE,
            reason=ABSENT,
            confidence=1 - case.delta,
            consumed=(Consumed.HOLDOUT_LABELS,),
            formula=formula,
            source=source,
        )
        if case.holdout is None or case.holdout_logits is None or case.holdout.labels is None:
            yield blank
            continue
        wrong = margins_of(case.holdout_logits, case.holdout.labels) <= 0
        yield _alone(blank, key, wrong, case.delta) if case.groups is None else _grouped(blank, key, wrong, case)


def _alone(blank: Row, key: str, wrong: Tensor, delta: float) -> Row:
    n, errors = len(wrong), int(wrong.sum())
    value = (
        clopper_pearson(errors, n, math.log(delta)) if key == "clopper_pearson" else _mean(key, errors / n, n, delta)
    )
    terms = (("error on the hold-out", errors / n), ("price of its size", value - errors / n))
    told = f"{errors:,} of {n:,} wrong"
    return promised(blank, value=value, terms=terms, additive=True, condition=HOLDOUT, reason=told)


def _grouped(blank: Row, key: str, wrong: Tensor, case: Case) -> Row:
    assert case.groups is not None
    if key == "clopper_pearson":
        return dataclasses.replace(blank, reason=GROUPED)
    sizes = torch.bincount(case.groups)
    mean = group_mean(torch.bincount(case.groups[wrong], minlength=len(sizes)).tolist(), sizes.tolist())
    value = _mean(key, mean, len(sizes), case.delta)
    terms = (("mean error of the groups", mean), ("price of their number", value - mean))
    told = f"{int(wrong.sum()):,} of {len(wrong):,} wrong, in {len(sizes):,} groups"
    return promised(blank, value=value, terms=terms, additive=True, condition=GROUPS, reason=told)


def _mean(key: str, mean: float, n: int, delta: float) -> float:
    return kl_holdout(mean, n, delta) if key == "kl" else hoeffding(mean, n, delta)
