from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import Tensor, nn

import normgauge as ng
from normgauge.certificates.bounds.holdout import clopper_pearson, kl_holdout
from normgauge.certificates.case import Case
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.rows.holdout import holdout_rows, per_class
from normgauge.core.certificate import Certificate, RowKind
from normgauge.core.errors import InputError
from tests.certificates.rows.made import case_of, cut, held_out, points

GROUPS = [0, 0, 0, 1, 2, 2]


class Positive(nn.Module):
    """Names class 1 where the first number is positive."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([-x[:, 0], x[:, 0]], 1)


def holdout(right: list[int]) -> tuple[Tensor, Tensor]:
    """Samples that `Positive` answers rightly or not."""
    inputs = points(len(right), 1)[0]
    return inputs, ((inputs[:, 0] > 0) ^ (torch.tensor(right) == 0)).long()


def certified(groups: Any, given: Any = None) -> Certificate:
    return ng.certify(Positive(), points(60, 0), given or holdout([1, 0, 1, 0, 1, 1]), groups=groups, epochs=0)


@pytest.mark.parametrize(
    "groups",
    [GROUPS, tuple("aaabcc"), torch.tensor(GROUPS), np.array(GROUPS), [("s", g) for g in GROUPS]],
    ids=["list", "names", "tensor", "array", "pairs"],
)
def test_groups_count_once_whatever_their_size(groups: Any) -> None:
    found = certified(groups)
    assert found.row("holdout.clopper_pearson").kind is RowKind.NOT_APPLICABLE
    assert "come in groups" in found.row("holdout.clopper_pearson").reason
    row = found.row("holdout.kl")
    assert row.value == pytest.approx(kl_holdout((1 / 3 + 1 + 0) / 3, 3, 0.05))
    assert "random sample of a random group" in row.condition
    assert found.facts["hold-out groups"] == 3 and found.holdout == 6
    assert "6 hold-out samples in 3 groups" in str(found)


def test_without_groups_samples_count() -> None:
    row = certified(None).row("holdout.clopper_pearson")
    assert row.value == clopper_pearson(2, 6, math.log(0.05)) and "independent draws" in row.condition


def test_other_rows_take_one_sample_of_each_group() -> None:
    given = Positive(), points(50, 3)
    found = ng.certify(Positive(), points(60, 0), holdout([1] * 6), groups=GROUPS, surrogate=given, epochs=0)
    terms = dict(found.row("disagreement.surrogate").terms)
    assert terms["disagreement"] == clopper_pearson(0, 3, math.log(0.025))


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([0, 1], "a label for each of the 6 samples of holdout=, got 2"),
        ([[0]] * 6, "one number or name a sample"),
        ([0.0, math.nan, 1.0, 2.0, 3.0, 4.0], "got NaN"),
    ],
    ids=["count", "lists", "missing"],
)
def test_groups_that_are_none_are_named(groups: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        certified(groups)
    with pytest.raises(InputError, match="got no hold-out"):
        ng.certify(Positive(), points(60, 0), groups=[1], epochs=0)


def scenes(draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Thirty scenes of 20 frames; a scene is wrong as a whole."""
    wrong = torch.rand(30, generator=draw) < 0.2
    return wrong.repeat_interleave(20), torch.arange(30).repeat_interleave(20)


def series(draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """A state that lasts for a while; a group is the time between two changes."""
    groups = (torch.rand(600, generator=draw) < 0.02).cumsum(0)
    groups = groups - groups[0]
    return (torch.rand(601, generator=draw) < 0.2)[groups], groups


@pytest.mark.parametrize("world", [scenes, series])
def test_the_promise_holds_for_dependent_samples_in_groups(world: Any) -> None:
    """Error .2. With groups at most the binomial 99 % limit of δ fails; counting samples fails far more often."""
    train, draws, broken, careless = points(20, 0), 400, 0, 0
    inputs = torch.ones(600, 6)
    for seed in range(draws):
        wrong, groups = world(torch.Generator().manual_seed(seed))
        fresh = DataSample(inputs, (~wrong).long())
        case = case_of(Positive(), train, holdout=fresh, holdout_logits=Positive()(inputs), delta=0.05)
        broken += _value(case, groups) < 0.2
        careless += _value(case, None) < 0.2
    limit = binom.ppf(0.99, draws, 0.05)
    assert broken <= limit < careless


def _value(case: Case, groups: Tensor | None) -> float:
    row = {row.key: row for row in holdout_rows(dataclasses.replace(case, groups=groups))}["holdout.kl"]
    assert row.value is not None
    return row.value


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
