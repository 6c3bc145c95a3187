"""The error on each class, all classes at once."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import normgauge as ng
from normgauge.certificates.bounds.holdout import clopper_pearson
from normgauge.certificates.rows.holdout import per_class
from normgauge.core.certificate import RowKind
from tests.certificates.rows.made import cut, held_out, points


def test_each_class_is_bounded_from_its_own_samples() -> None:
    x, y = points(300, 0)
    wrong = cut()(x).argmax(1) != y
    row = ng.certify(cut(), points(60, 1), (x, y), epochs=0).row("holdout.per_class")
    expected = [clopper_pearson(int(wrong[y == c].sum()), int((y == c).sum()), math.log(0.05 / 2)) for c in (0, 1)]
    assert row.kind is RowKind.BOUND and [value for _, value in row.terms] == pytest.approx(expected)
    worst = expected.index(max(expected))
    assert row.value == row.terms[worst][1] and row.reason == row.terms[worst][0]
    assert row.reason.startswith(f"class {worst}: ") and row.reason.endswith(" wrong")
    assert row.confidence == 0.95 and row.quantity == "error of the worst class"


def test_a_class_without_samples_is_named_and_nothing_is_said_of_it() -> None:
    three = nn.Sequential(cut(), nn.Linear(2, 3))
    with torch.no_grad():
        three[1].weight.copy_(torch.eye(3)[:, :2])
        three[1].bias.copy_(torch.tensor([0.0, 0.0, -100.0]))
    row = per_class(*held_out(three, points(300, 0)))
    assert row.terms[2] == ("class 2: no sample, so nothing is said", 1.0)
    assert row.kind is RowKind.BOUND and row.value < 0.5  # type: ignore[operator]
    assert row.quantity == "error of the worst class met" and row.reason.endswith("nothing about 1 of 3 classes")


def test_without_a_hold_out_there_is_none() -> None:
    row = ng.certify(cut(), points(60, 1), epochs=0).row("holdout.per_class")
    assert row.kind is RowKind.NOT_APPLICABLE and row.terms == () and "holdout=" in row.reason


def test_all_classes_hold_at_once_as_often_as_they_say() -> None:
    """In both classes a tenth is wrong: its label was flipped."""
    rows = [per_class(*held_out(cut(), points(80, seed, noise=0.1))) for seed in range(300)]
    missed = sum(any(value < 0.1 for _, value in row.terms) for row in rows)
    assert 0 < missed <= 25, "above 25 of 300 with a chance below 1 %"
    assert all(row.value < 0.7 for row in rows)  # type: ignore[operator]
