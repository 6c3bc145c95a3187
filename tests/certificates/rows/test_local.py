import dataclasses

import pytest
import torch

from normgauge.certificates.facts.cells import assign_all, voronoi
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.facts.slopes import MarginSlopes
from normgauge.certificates.facts.space import (
    CellSpace,
)
from normgauge.certificates.rows import local
from normgauge.certificates.rows.local import LocalCells
from normgauge.core.certificate import Row, RowKind
from normgauge.core.interval import LogInterval
from normgauge.core.reading import LayerRecord
from tests.certificates.rows.made import DELTA, blobs, space_of


def balls_of(sample: DataSample, radius: float, slopes: float, leads: float) -> tuple[CellSpace, LocalCells]:
    centres = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    space = space_of(sample)
    partition = voronoi(centres, radius)
    full = torch.ones(2, dtype=torch.float64)
    return space, LocalCells(partition, assign_all(partition, sample), slopes * full, leads * full)


def test_corollary21_counts_cells_a_boundary_may_cross() -> None:
    space, cells = balls_of(blobs(5000), 0.3, 1.0, 1.0)
    row = local.corollary21(cells, space, DELTA)
    assert row.kind is RowKind.BOUND and row.value < 0.05
    crossed = local.corollary21(balls_of(blobs(5000), 0.3, 1.0, 0.29)[1], space, DELTA)
    assert crossed.kind is RowKind.VACUOUS and dict(crossed.terms)["cells a boundary may cross"] == pytest.approx(1.0)
    small = local.corollary21(balls_of(blobs(5000), 0.02, 1.0, 1.0)[1], space, DELTA)
    assert 0.3 < dict(small.terms)["far from every cell"] < 0.9
    assert local.corollary21(None, space, DELTA).kind is RowKind.NOT_APPLICABLE
    gap = dataclasses.replace(cells, gap="no rule")
    assert local.corollary21(gap, space, DELTA).reason == "no rule"


def test_corollary22_local_uses_the_diameter() -> None:
    space, cells = balls_of(blobs(5000), 0.1, 1.0, 1.0)
    row = local.corollary22_local(cells, space, DELTA)
    assert row.kind is RowKind.BOUND
    assert dict(row.terms)["Lipschitz term"] == pytest.approx(0.2, abs=0.03)
    assert local.corollary22_local(None, space, DELTA).kind is RowKind.NOT_APPLICABLE
    other = dataclasses.replace(space, quantity="clipped cross-entropy")
    assert local.corollary22_local(cells, other, DELTA).kind is RowKind.NOT_APPLICABLE
    wrong = dataclasses.replace(space, margins=-space.margins)
    assert local.corollary22_local(cells, wrong, DELTA).kind is RowKind.VACUOUS


def kinds(slopes: MarginSlopes, space: CellSpace) -> dict[str, Row]:
    return {row.key: row for row in local.corollary22(space, slopes, DELTA)}


def normalizer(kind: str, rule: str) -> LayerRecord:
    return LayerRecord(
        name="norm", kind=kind, rule=rule, gain=LogInterval(0.0, 0.0), depth=0, sigma={"min": 1.0, "max": 1.0}
    )


def test_corollary22_by_normalizer() -> None:
    space = space_of(blobs(4000))
    batch = MarginSlopes(1.0, 1.2, {"log10_corollary10_2": 40.0}, (normalizer("BatchNorm1d", "norm_batch.batch_norm"),))
    found = kinds(batch, space)
    assert found["corollary22.batch"].kind is RowKind.BOUND
    assert found["corollary22.none"].kind is found["corollary22.global"].kind is RowKind.NOT_APPLICABLE
    assert found["corollary22.published"].kind is RowKind.VACUOUS  # looser than the folded constant, but a constant
    plain = kinds(MarginSlopes(1.0, 1.0, {"log10_P_w": 1.0}), space)
    assert plain["corollary22.none"].kind is plain["corollary22.published"].kind is RowKind.BOUND
    layer = kinds(
        MarginSlopes(1e6, 1e6, {"log10_corollary11": 0.5}, (normalizer("LayerNorm", "norm_layer.layer_norm"),)), space
    )
    assert layer["corollary22.global"].kind is RowKind.VACUOUS
    below = layer["corollary22.published"]
    assert below.kind is RowKind.ESTIMATE and "below the proved one" in below.reason
    both = (normalizer("BatchNorm1d", "norm_batch.batch_norm"), normalizer("LayerNorm", "norm_layer.layer_norm"))
    mixed = kinds(MarginSlopes(1.0, 1.0, {"log10_P_w": 1.0, "log10_theorem9": 1.0}, both), space)
    assert mixed["corollary22.published"].kind is RowKind.NOT_APPLICABLE
    assert "all of BatchNorm, or all of LayerNorm" in mixed["corollary22.published"].reason
