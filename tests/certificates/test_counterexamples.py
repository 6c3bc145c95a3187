"""Every invalid route fails by a margin, and what certify promises for the same network does not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from normgauge.certificates.bounds.cells import tau_published, tau_variation
from normgauge.certificates.counterexamples import (
    COUNTEREXAMPLES,
    Counterexample,
    Table,
    borrowed_labels,
    memorizer,
    own_cells,
    random_labels,
    right_half,
)
from normgauge.certificates.facts.sample import DataSample, fingerprints
from normgauge.certificates.table import certify
from normgauge.core.certificate import NETWORK, Certificate, Row, RowKind
from normgauge.core.errors import InputError

SMALL: dict[str, Callable[[], Counterexample]] = {
    "memorizer": memorizer,
    "random labels": random_labels,
    "own cells": own_cells,
    "borrowed labels": borrowed_labels,
}


@pytest.fixture(scope="module")
def found() -> dict[str, Counterexample]:
    return {key: make() for key, make in SMALL.items()}


def inputs_of(sample: DataSample, count: int) -> tuple[Tensor, Tensor]:
    assert sample.labels is not None
    return sample.take(range(count)), sample.labels[:count]


def test_all_are_listed() -> None:
    assert dict(COUNTEREXAMPLES) == SMALL


@pytest.mark.parametrize("key", list(SMALL))
def test_the_invalid_route_promises_less_than_the_truth(key: str, found: dict[str, Counterexample]) -> None:
    one = found[key]
    assert one.key == key
    assert one.promised < one.truth - 0.05
    assert one.failures > 0.5, "far more often than the route allows itself"
    assert one.delta == 0.05
    assert one.route
    assert one.why
    assert f"{one.promised:.3g}" in str(one)


@pytest.mark.parametrize("key", list(SMALL))
def test_the_training_sample_shows_nothing(key: str, found: dict[str, Counterexample]) -> None:
    assert found[key].training_error == 0.0


@pytest.mark.parametrize("key", list(SMALL))
def test_the_truth_is_the_truth(key: str, found: dict[str, Counterexample]) -> None:
    one = found[key]
    inputs, labels = inputs_of(one.fresh, len(one.fresh))
    rate = float((one.model(inputs).argmax(1) != labels).double().mean())
    spread = math.sqrt(one.truth * (1 - one.truth) / len(labels))
    assert abs(rate - one.truth) <= 4 * spread + 0.005


def test_an_honest_bound_on_the_same_labels_fails_no_more_than_it_may(found: dict[str, Counterexample]) -> None:
    one = found["borrowed labels"]
    assert one.honest_failures <= 0.1  # 20 of 200 where 10 are expected
    assert one.honest > one.truth


@pytest.mark.parametrize("key", list(SMALL))
def test_certify_promises_nothing_below_the_truth(key: str, found: dict[str, Counterexample]) -> None:
    one = found[key]
    count = min(len(one.train), 400)
    result = certify(one.model, inputs_of(one.train, count), inputs_of(one.fresh, 1000), epochs=0)
    truth = one.truth if count == len(one.train) else max(one.truth, 0.2)
    below = [(row.key, row.value) for row in bounds(result) if row.value is not None and row.value < truth - 0.03]
    assert not below
    assert result.row("than_phan").kind is not RowKind.BOUND
    assert result.row("equation66").kind is not RowKind.BOUND


def bounds(result: Certificate) -> list[Row]:
    return [
        row for row in result.rows if row.kind is RowKind.BOUND and row.about == NETWORK and row.quantity == "error"
    ]


def test_cells_of_the_training_set_are_refused_with_the_count(found: dict[str, Counterexample]) -> None:
    one = found["own cells"]
    assert one.partition is not None
    points, labels = inputs_of(one.train, len(one.train))
    with pytest.raises(InputError, match="400 of the training samples"):
        one.partition.check_unseen(fingerprints(points))
    with pytest.raises(InputError, match="400 of the training samples"):
        certify(one.model, (points, labels), partition=one.partition, epochs=0)


def test_all_of_d_lies_in_its_own_cells_and_almost_nothing_else_does(found: dict[str, Counterexample]) -> None:
    one = found["own cells"]
    assert one.partition is not None
    points, _ = inputs_of(one.train, len(one.train))
    fresh, _ = inputs_of(one.fresh, len(one.fresh))
    rest = one.partition.cells - 1
    assert int((one.partition.assign(points) == rest).sum()) == 0
    assert int((one.partition.assign(fresh) == rest).sum()) == len(fresh)


def test_no_theorem_is_charged_with_a_slack_it_does_not_have() -> None:
    """The page names whose slack each number has: (66)'s own, and ours where the theorem's is vacuous."""
    page = re.sub(r"\s+", " ", (Path(__file__).parents[2] / "docs" / "counterexamples.md").read_text("utf-8"))
    theirs, ours = tau_published(400, 401, 400, 0.05), tau_variation(401, 400, 0.05)
    assert theirs > 1 > ours and f"g is {theirs:.1f} here" in page and f"is {ours:.2f}. That slack is ours" in page
    assert "our slack" in own_cells().route
    own = tau_published(100, 100, 100e6, 0.05)
    assert f"the paper's slack g, {own:.3f}" in page and 0.05 < borrowed_labels().promised - own < 0.15


def test_the_number_of_the_published_run() -> None:
    million = memorizer(1_000_000)
    assert million.promised == pytest.approx(0.285, abs=0.002)
    assert million.training_error == 0.0
    assert million.truth == 1.0


def test_a_table_knows_its_points_and_no_others() -> None:
    points = torch.rand(50, 2, generator=torch.Generator().manual_seed(0))
    table = Table(points)
    assert torch.equal(table(points).argmax(1), right_half(points))
    moved = torch.nextafter(points, torch.ones(()))
    assert torch.equal(table(moved).argmax(1), 1 - right_half(moved))
