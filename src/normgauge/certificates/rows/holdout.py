"""The plain hold-out rows: always printed, nearly always the smallest."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.certificates.bounds.holdout import clopper_pearson, group_mean, hoeffding, kl_holdout
from normgauge.certificates.case import Case
from normgauge.certificates.conditions import GROUPS, HOLDOUT
from normgauge.core.certificate import Consumed, Row, RowKind, promised_row

ABSENT = "no labelled hold-out was given; with one (holdout=) this row is nearly always the smallest"
GROUPED = "its count needs independent samples, and these come in groups; the rows beside it count the groups"

MEANS = {"kl": kl_holdout, "hoeffding": hoeffding}  # these hold for means of groups too


def holdout_rows(case: Case) -> Iterator[Row]:
    """Clopper-Pearson, kl and Hoeffding on the same hold-out labels, by groups if there are groups."""
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
            kind=RowKind.NOT_APPLICABLE,
            reason=ABSENT,
            confidence=1 - case.delta,
            consumed=(Consumed.HOLDOUT_LABELS,),
            formula=formula,
            source=source,
        )
        yield blank if case.held is None else _row(blank, key, case.held <= 0, case)


def _row(blank: Row, key: str, wrong: Tensor, case: Case) -> Row:
    n, errors = len(wrong), int(wrong.sum())
    mean, told, seen, price = errors / n, f"{errors:,} of {n:,} wrong", "error on the hold-out", "price of its size"
    if case.groups is not None:
        sizes = torch.bincount(case.groups)
        mean = group_mean(torch.bincount(case.groups[wrong], minlength=len(sizes)).tolist(), sizes.tolist())
        n, seen, price = len(sizes), "mean error of the groups", "price of their number"
        told += f", in {n:,} groups"
    if key in MEANS:
        value = MEANS[key](mean, n, case.delta)
    elif case.groups is None:
        value = clopper_pearson(errors, n, math.log(case.delta))
    else:
        return dataclasses.replace(blank, reason=GROUPED)
    condition, terms = HOLDOUT if case.groups is None else GROUPS, ((seen, mean), (price, value - mean))
    return promised_row(blank, value=value, terms=terms, additive=True, condition=condition, reason=told)


def per_class(case: Case, plain: Row) -> Row:
    """Clopper-Pearson on the samples of each class with δ over the number of classes.

    Given the labels, the samples of class c are independent draws of P(x | y = c), so the mistakes among them are
    binomial; by a union bound all classes hold together. The value is the largest over the classes met.

    Args:
        case: the network and its data.
        plain: the hold-out row by Clopper and Pearson: where it does not apply, neither does this one.

    Returns:
        ``holdout.per_class``; its terms are the bounds of the classes.
    """
    blank = dataclasses.replace(
        plain,
        key="holdout.per_class",
        name="Hold-out, class by class",
        quantity="error of the worst class",
        terms=(),
        additive=False,
        formula="for each class c: largest p with P(Bin(n_c, p) ≤ k_c) ≥ δ/classes",
        source="Clopper & Pearson 1934; union bound",
    )
    if plain.kind is RowKind.NOT_APPLICABLE:
        return blank
    assert case.holdout is not None and case.held is not None
    labels, wrong = case.holdout.truth, case.held <= 0
    sizes = torch.bincount(labels, minlength=case.classes).tolist()
    mistakes = torch.bincount(labels[wrong], minlength=case.classes).tolist()
    log_delta = math.log(case.delta / case.classes)
    bounds = [clopper_pearson(k, n, log_delta) for k, n in zip(mistakes, sizes, strict=True)]
    told = [
        f"class {c}: {k:,} of {n:,} wrong" if n else f"class {c}: no sample, so nothing is said"
        for c, (k, n) in enumerate(zip(mistakes, sizes, strict=True))
    ]
    met = [c for c, n in enumerate(sizes) if n]
    worst = max(met, key=bounds.__getitem__)
    absent = "" if len(met) == case.classes else f"; nothing about {case.classes - len(met)} of {case.classes} classes"
    return promised_row(
        blank,
        value=bounds[worst],
        quantity="error of the worst class" if not absent else "error of the worst class met",
        terms=tuple(zip(told, bounds, strict=True)),
        reason=told[worst] + absent,
    )
