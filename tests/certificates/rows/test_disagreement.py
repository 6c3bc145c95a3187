"""The disagreement row: valid for the network itself, and honest about what it needs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from normgauge.certificates.bounds.holdout import clopper_pearson
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.rows.disagreement import disagreement_rows
from normgauge.core.certificate import NETWORK, Consumed, Row, RowKind
from tests.certificates.rows.made import case_of, points, small, trained

TRAIN = points(600, 0)


UNLABELED = DataSample.of(points(500, 1)[0], "unlabeled", labelled=False)


def one(*args: object, **options: object) -> Row:
    (row,) = disagreement_rows(*args, **options)  # type: ignore[arg-type]
    return row


class Says(nn.Module):
    """The class of the first column, or the other one: a network whose errors are known."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.sign = sign

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([-self.sign * x[:, 0], self.sign * x[:, 0]], 1)


def test_both_terms_are_clopper_pearson_with_half_of_delta() -> None:
    same, other = Says(1.0), Says(-1.0)
    inputs = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    labels = (inputs[:, 0] > 0).long()
    sample = DataSample.of((inputs, labels), "sample")
    case = case_of(same, (inputs, labels), unlabeled=DataSample.of(torch.randn(50, 2), "u", labelled=False))
    agreeing, opposed = one(case, surrogate=(same, sample)), one(case, surrogate=(other, sample))
    spent = math.log(0.025)
    assert agreeing.kind is RowKind.BOUND
    assert agreeing.value == pytest.approx(clopper_pearson(0, 100, spent) + clopper_pearson(0, 50, spent))
    assert agreeing.about == NETWORK
    assert agreeing.consumed == (Consumed.SURROGATE_LABELS, Consumed.UNLABELED)
    assert opposed.kind is RowKind.VACUOUS
    assert dict(opposed.terms)["disagreement"] == 1.0
    assert opposed.needed is None, "no number of samples helps"


def test_too_few_samples_are_told_how_many_more_it_takes() -> None:
    inputs = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    labels = (inputs[:, 0] > 0).long()
    few = DataSample.of((inputs, labels), "few")
    row = one(case_of(Says(1.0), (inputs, labels), unlabeled=few), surrogate=(Says(1.0), few))
    assert row.kind is RowKind.VACUOUS
    assert row.needed is not None
    assert 2 * clopper_pearson(0, row.needed, math.log(0.025)) < 1 <= 2 * clopper_pearson(0, 5, math.log(0.025))


def test_the_bound_holds_and_says_what_it_trained() -> None:
    case = case_of(trained(TRAIN), TRAIN, unlabeled=UNLABELED, epochs=8)
    row = one(case)
    inputs, labels = points(20_000, 2)
    truth = float((case.model(inputs).argmax(1) != labels).float().mean())
    assert row.kind is RowKind.BOUND
    assert row.value is not None
    assert truth < row.value < truth + 0.35
    assert Consumed.TRAINING in row.consumed
    assert row == one(case), "two runs give the same certificate"


def test_hold_out_inputs_serve_where_nothing_else_is_there() -> None:
    holdout = DataSample.of(points(300, 3), "holdout")
    case = case_of(trained(TRAIN), TRAIN, holdout=holdout, epochs=8)
    row = one(case)
    assert row.kind is RowKind.BOUND
    assert Consumed.HOLDOUT_LABELS not in row.consumed
    assert Consumed.UNLABELED in row.consumed


def test_what_is_missing_is_named() -> None:
    model = trained(TRAIN)
    without = one(case_of(model, TRAIN))
    still = one(case_of(model, TRAIN, unlabeled=UNLABELED, epochs=0))
    assert without.kind is still.kind is RowKind.NOT_APPLICABLE
    assert "unlabeled=" in without.reason
    assert "epochs is 0" in still.reason
    assert "surrogate=" in still.reason


def test_a_surrogate_needs_labels_to_be_certified() -> None:
    row = one(case_of(small(), TRAIN, unlabeled=UNLABELED), surrogate=(small(), UNLABELED))
    assert row.kind is RowKind.NOT_APPLICABLE
    assert "no labels" in row.reason
