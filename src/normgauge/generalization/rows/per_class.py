"""The error on each class, from the same hold-out labels, for all classes at once."""

from __future__ import annotations

import dataclasses
import math

import torch

from normgauge.core.certificate import Kind, Row, promised
from normgauge.generalization.bounds.holdout import clopper_pearson
from normgauge.generalization.case import Case


def row(case: Case, plain: Row) -> Row:
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
    if plain.kind is Kind.NOT_APPLICABLE:
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
    return promised(
        blank,
        value=bounds[worst],
        quantity="error of the worst class" if not absent else "error of the worst class met",
        terms=tuple(zip(told, bounds, strict=True)),
        reason=told[worst] + absent,
    )
