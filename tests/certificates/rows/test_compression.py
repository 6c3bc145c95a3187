"""Rows of sample compression: they apply to networks that say which samples they were made from."""

from __future__ import annotations

import math

import pytest
import torch

from normgauge.certificates.bounds.holdout import clopper_pearson
from normgauge.certificates.case import Case
from normgauge.certificates.rows.compression import compression_rows
from normgauge.core.certificate import NETWORK, RowKind
from tests.certificates.rows.made import case_of, points, small

M = 400


def made(wrong: list[int]) -> Case:
    """A case whose network is wrong on these samples only."""
    case = case_of(small(None), points(M, 0))
    assert case.train.labels is not None
    logits = torch.nn.functional.one_hot(case.train.labels, 2).float()
    logits[wrong] = 1 - logits[wrong]
    return Case(case.model, case.train, logits, case.delta)


def test_an_ordinary_network_depends_on_all_samples() -> None:
    found = {row.key: row for row in compression_rows(made([]))}
    assert set(found) == {"compression.sample", "compression.pick_to_learn"}
    assert all(row.kind is RowKind.NOT_APPLICABLE for row in found.values())
    assert "all m samples" in found["compression.sample"].reason
    assert "coreset=" in found["compression.sample"].reason


def test_errors_are_counted_on_the_other_samples_and_the_choice_is_paid() -> None:
    row, _ = compression_rows(made([0, 1, 50, 60, 70]), coreset=range(10))
    spent = math.log(0.05 * 6 / math.pi**2 / 11**2 / math.comb(M, 10))
    assert row.kind is RowKind.BOUND
    assert row.value == pytest.approx(clopper_pearson(3, M - 10, spent), rel=1e-9)
    assert row.about == NETWORK
    assert row.confidence == 0.95
    assert sum(value for _, value in row.terms) == pytest.approx(row.value)


def test_all_samples_kept_is_vacuous() -> None:
    row, _ = compression_rows(made([]), coreset=range(M))
    assert row.kind is RowKind.VACUOUS
    assert row.value == 1.0
    assert row.needed is not None
    assert M < row.needed < 3 * M


@pytest.mark.parametrize("places", [[-1], [M]], ids=["before", "after"])
def test_places_outside_d_are_named(places: list[int]) -> None:
    row, _ = compression_rows(made([]), coreset=places)
    assert row.kind is RowKind.NOT_APPLICABLE
    assert str(places[0]) in row.reason


def test_pick_to_learn_needs_a_network_that_is_right_on_the_rest() -> None:
    _, unfinished = compression_rows(made([5]), picked=20)
    assert unfinished.kind is RowKind.NOT_APPLICABLE
    assert "1 of D" in unfinished.reason
    _, done = compression_rows(made([]), picked=20)
    assert done.kind is RowKind.BOUND
    assert done.value is not None
    assert 20 / M < done.value < 0.2
    _, known = compression_rows(made([5]), picked=20, coreset=range(20))
    assert known.value == done.value
    _, elsewhere = compression_rows(made([5]), picked=20, coreset=range(100, 120))
    assert elsewhere.kind is RowKind.NOT_APPLICABLE


def test_more_picks_than_samples_are_refused() -> None:
    _, row = compression_rows(made([]), picked=M + 1)
    assert row.kind is RowKind.NOT_APPLICABLE
    assert str(M + 1) in row.reason
