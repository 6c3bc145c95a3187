"""Disagreement: the error of this very network through another one whose error is certified."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import partial

from torch import nn

from normgauge.certificates.bounds.holdout import clopper_pearson, disagreement
from normgauge.certificates.bounds.parts import Parts
from normgauge.certificates.bounds.roots import FEW, samples_needed
from normgauge.certificates.case import Case
from normgauge.certificates.conditions import CODE, FREE, SURROGATE, TRAIN, UNLABELED, joined_conditions
from normgauge.certificates.facts.sample import DataSample, model_outputs
from normgauge.certificates.surrogate import Half, train_half
from normgauge.core.certificate import Consumed, Row, RowKind, promised_row
from normgauge.core.errors import InputError

DISAGREEMENT = Row(
    key="disagreement.surrogate",
    name="Disagreement with a certified surrogate",
    family="disagreement",
    kind=RowKind.NOT_APPLICABLE,
    consumed=(Consumed.TRAIN_LABELS, Consumed.UNLABELED, Consumed.TRAINING),
    additive=True,
    reason="it needs inputs the network never saw; give unlabeled= or holdout=",
    source="Bazinet et al. 2026, Theorem 4; Clopper & Pearson 1934",
    formula="R(f) ≤ Bin⁻¹(errors of h on D₂, |D₂|, δ/2) + Bin⁻¹(#{f ≠ h on U}, |U|, δ/2),  h trained on D₁ = D ∖ D₂",
)


def disagreement_rows(
    case: Case,
    *,
    surrogate: tuple[nn.Module, DataSample] | None = None,
    prepared: Callable[[], Half] | None = None,
) -> Iterator[Row]:
    """The one row of this family.

    Args:
        case: the network and its data; ``unlabeled`` is read, or else the inputs of ``holdout``.
        surrogate: a network at hand and a labelled sample that it never saw; otherwise one is trained on half of D.
        prepared: gives the network trained on half of D, where other rows use it too.

    Yields:
        ``disagreement.surrogate``.
    """
    try:
        yield _row(case, surrogate, prepared or partial(train_half, case))
    except InputError as error:
        yield dataclasses.replace(DISAGREEMENT, reason=f"{error}; or give surrogate=(network, sample it never saw)")


def _row(case: Case, surrogate: tuple[nn.Module, DataSample] | None, prepared: Callable[[], Half]) -> Row:
    fresh = case.unseen
    if fresh is None:
        return DISAGREEMENT
    other = prepared() if surrogate is None else Half(*surrogate)
    mistakes = int((model_outputs(other.model, other.unseen).argmax(1) != other.unseen.truth).sum())
    apart = int((model_outputs(other.model, fresh).argmax(1) != case.answers(fresh).argmax(1)).sum())
    at = partial(_at, case, (mistakes, len(other.unseen)), (apart, len(fresh)))
    parts, learnt = at(case.m), (CODE, FREE if case.data_free else "")
    return promised_row(
        DISAGREEMENT,
        reason="",
        value=parts.value,
        confidence=1 - case.delta,
        consumed=DISAGREEMENT.consumed if surrogate is None else (Consumed.SURROGATE_LABELS, Consumed.UNLABELED),
        terms=parts.terms,
        condition=joined_conditions(TRAIN, UNLABELED, *learnt)
        if surrogate is None
        else joined_conditions(SURROGATE, UNLABELED),
        needed=None if parts.value < 1 else samples_needed(lambda m: at(m).value, case.m, 1.0, FEW),
    )


def _at(case: Case, mistakes: tuple[int, int], apart: tuple[int, int], m: int) -> Parts:
    """The bound with m training samples, and as many more of the others, at the shares met."""
    wrong, checked, differ, asked = (-(-count * m // case.m) for count in (*mistakes, *apart))
    risk = clopper_pearson(wrong, checked, math.log(case.delta / 2))
    return disagreement(risk, differ, asked, case.delta / 2)
