import dataclasses
import math

import pytest
import torch

from normgauge.certificates.facts.cells import voronoi
from normgauge.certificates.facts.space import (
    CellSpace,
    in_cells,
)
from normgauge.certificates.rows import related
from normgauge.certificates.rows.cells import theorem20
from normgauge.core.certificate import Row, RowKind
from tests.certificates.rows.made import DELTA, blobs, space_of


def rows_of(space: CellSpace) -> dict[str, Row]:
    return {row.key: row for row in theorem20(space, DELTA)}


def test_refusals() -> None:
    space = space_of(blobs(100))
    for changed, words in (({"gap": "no rule for X"}, "no rule for X"), ({"problem": "no upper end"}, "no upper end")):
        other = dataclasses.replace(space, **changed)
        found = [
            *theorem20(other, DELTA),
            *related.related_rows(other, DELTA, blobs(50, 1), torch.zeros(50, dtype=torch.bool)),
        ]
        assert any(words in row.reason for row in found)
        for row in found:
            if row.key not in ("equation66", "than_phan"):
                assert row.kind is RowKind.NOT_APPLICABLE and words in row.reason


def test_distances_from_fresh_points() -> None:
    space = space_of(blobs(2000))
    row = related.lambda_row(space, DELTA, blobs(1000, seed=5))
    assert row.kind is RowKind.BOUND
    exact = rows_of(space)["theorem20.variation"]
    assert row.value == pytest.approx(exact.value, abs=0.08)
    assert related.lambda_row(space, DELTA, None).kind is RowKind.NOT_APPLICABLE


def test_points_the_cells_were_made_from_are_not_fresh() -> None:
    space = space_of(blobs(2000), cells=5)  # made from blobs(400, seed=9)
    refused = related.lambda_row(space, DELTA, blobs(400, seed=9))
    assert refused.kind is RowKind.NOT_APPLICABLE and "made from the hold-out" in refused.reason
    assert related.lambda_row(space, DELTA, blobs(400, seed=5)).kind is RowKind.BOUND


def test_fresh_points_in_cells_nobody_met_count_in_full() -> None:
    """All fresh points in one of the two cells: the other cell's share is added whole."""
    space = space_of(blobs(2000))
    fresh = blobs(400, seed=5).part(torch.arange(0, 400, 2))
    distances, owners = related.fresh_distances(space, fresh)
    assert distances.shape == (200, 4) and set(owners.tolist()) == {0}
    assert related._fresh_term(space, distances * 0, owners, 0.5) > 0.5


def test_robustness_needs_a_diameter() -> None:
    space = space_of(blobs(500))
    vacuous = list(related.robustness(space, DELTA))
    assert [row.key for row in vacuous] == ["xu_mannor", "kawaguchi"]
    assert all(row.kind is RowKind.VACUOUS and "diameter" in row.reason for row in vacuous)
    centres = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    tight = blobs(20_000)
    partition = voronoi(centres, 0.15)
    cells, spread = in_cells(tight, 2, partition)
    balls = dataclasses.replace(space_of(tight), partition=partition, cells=cells, spread=spread)
    assert not bool(balls.partition.far(balls.cells // 2).any())
    first, second = related.robustness(balls, DELTA)
    assert first.kind is second.kind is RowKind.BOUND
    assert dict(first.terms)["change in a cell"] == pytest.approx(0.3, abs=0.15)


def test_equation66_is_an_estimate_and_circular() -> None:
    space = space_of(blobs(1000))
    fresh = blobs(500, seed=3)
    wrong = torch.zeros(500, dtype=torch.bool)
    wrong[:50] = True
    row = related.direct(space, DELTA, fresh, wrong)
    assert row.kind is RowKind.ESTIMATE and "circular" in row.reason
    assert dict(row.terms)["change inside cells"] == pytest.approx(0.1, abs=1e-9)
    assert related.direct(space, DELTA, None, None).kind is RowKind.NOT_APPLICABLE


def test_scores_and_what_is_no_bound() -> None:
    space = space_of(blobs(1000), slope=2.0)
    row = related.hou(space, DELTA)
    assert row.kind is RowKind.SCORE and row.confidence is None
    assert dict(row.terms)["cells"] == pytest.approx(math.sqrt(2 / 1000))
    assert related.hou(space_of(blobs(100), slope=math.inf), DELTA).kind is RowKind.NOT_APPLICABLE
    row = related.than_phan(space)
    assert row.kind is RowKind.NOT_APPLICABLE and row.value is None and "table of the training samples" in row.reason
