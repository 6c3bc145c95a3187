import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn

from normgauge.certificates.bounds.cells import kl_cells, tau_published, tau_variation
from normgauge.certificates.bounds.distances import paired_distance
from normgauge.certificates.facts.cells import assign_all, k_means, one_cell, voronoi
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.facts.slopes import MarginSlopes
from normgauge.certificates.facts.space import (
    STEEPNESS,
    CellSpace,
    fixed_loss,
    in_cells,
    linear_margins,
    margins_of,
    ramps,
)
from normgauge.certificates.rows import local, related
from normgauge.certificates.rows.cells import sample_size, theorem20
from normgauge.certificates.rows.local import LocalCells
from normgauge.core.certificate import Row, RowKind
from normgauge.core.interval import LogInterval
from normgauge.core.reading import LayerRecord

DELTA = 0.05


def blobs(m: int, seed: int = 0, width: float = 0.02) -> DataSample:
    """Two tight clusters at ±1 on a line in the plane, one a class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(m) % 2
    centres = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    return DataSample(centres[labels] + width * torch.randn(m, 2, generator=generator), labels)


def space_of(sample: DataSample, *, slope: float = 1.0, name: str = "inputs", cells: int = 1) -> CellSpace:
    assert sample.labels is not None and sample.inputs is not None
    partition = one_cell() if cells == 1 else k_means(blobs(400, seed=9).take(range(400)), cells)
    crossed, spread = in_cells(sample, 2, partition)
    margins = sample.inputs[:, 0].double() * torch.where(
        sample.labels == 1, 1.0, -1.0
    )  # distance to the boundary x = 0
    return CellSpace(
        name,
        sample,
        2,
        partition,
        crossed,
        spread,
        margins,
        slope,
        "",
        1.0,
        "error",
        ramps(margins, slope),
    )


def rows_of(space: CellSpace) -> dict[str, Row]:
    return {row.key: row for row in theorem20(space, DELTA)}


def test_collapsed_features_are_certified() -> None:
    space = space_of(blobs(4000))
    found = rows_of(space)
    assert {row.kind for row in found.values()} == {RowKind.BOUND}
    for row in found.values():
        assert row.value == pytest.approx(sum(v for _, v in row.terms), rel=1e-12)
        assert row.confidence == 0.95 and row.formula and row.source
    parts = dict(found["theorem20.published"].terms)
    assert parts["slack of the cells"] == pytest.approx(tau_published(2, 2, 4000, DELTA / 2))
    assert dict(found["theorem20.variation"].terms)["slack of the cells"] == pytest.approx(
        tau_variation(2, 4000, DELTA / 2)
    )
    inside = parts["training loss"] + parts["Lipschitz term"]
    assert 0.02 < inside < 0.08  # mean distance 0.035, margin about 1, and what the grid of slopes costs
    kl = found["theorem20.kl"]
    total = sum(v for name, v in kl.terms if name != "slack of the cells")
    assert kl.value == pytest.approx(kl_cells(total, 2, 4000, DELTA / 2))
    assert kl.value < found["theorem20.variation"].value < found["theorem20.published"].value


def test_more_cells_cost_slack_and_save_distance() -> None:
    wide = blobs(4000, width=0.3)
    one, many = rows_of(space_of(wide)), rows_of(space_of(wide, cells=20))
    first, second = (dict(r["theorem20.variation"].terms) for r in (one, many))
    assert second["slack of the cells"] > first["slack of the cells"]
    assert second["Lipschitz term"] < first["Lipschitz term"]


def test_a_steep_network_is_vacuous_and_the_row_says_why() -> None:
    row = rows_of(space_of(blobs(4000), slope=1e5))["theorem20.variation"]
    assert row.kind is RowKind.VACUOUS and row.needed is None
    assert row.heaviest == "Lipschitz term" and row.value > 1000
    assert "no sample size would help" in row.reason


def test_too_few_points_name_the_size_that_would_do() -> None:
    space = space_of(blobs(12))
    row = rows_of(space)["theorem20.published"]
    assert row.kind is RowKind.VACUOUS and row.needed is not None and f"some {row.needed:,} would be" in row.reason
    assert 12 < row.needed < 1000
    enough = rows_of(space_of(blobs(row.needed + row.needed // 10)))["theorem20.published"]
    assert enough.kind is RowKind.BOUND
    few = rows_of(space_of(blobs(row.needed - row.needed // 5)))["theorem20.published"]
    assert few.kind is RowKind.VACUOUS


def test_sample_size_is_the_first_that_does() -> None:
    space = space_of(blobs(12))
    needed = sample_size(space, lambda m: 30 / m, DELTA)
    assert needed is not None

    def whole(m: int) -> float:
        grown, share = m / 12, DELTA / len(STEEPNESS)
        sums = [(c.loss, *space.spread.sums(c.steepness)) for c in space.choices]
        return min(loss + paired_distance(grown * s, grown * q, 0, m, share) for loss, s, q in sums) + 30 / m

    assert whole(needed) < 1 <= whole(needed - 1)
    assert sample_size(space, lambda m: 2.0, DELTA) is None


def test_an_infinite_slope_is_vacuous_not_an_error() -> None:
    for row in rows_of(space_of(blobs(100), slope=math.inf)).values():
        assert row.kind is RowKind.VACUOUS


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


def test_ramps_bound_the_error_for_every_gamma() -> None:
    margins = torch.tensor([-1.0, 0.0, 0.01, 0.5, 3.0], dtype=torch.float64)
    for choice in ramps(margins, 2.0):
        assert choice.loss >= 0.4  # two of five are wrong or tied
        assert choice.gamma is not None and choice.gamma * choice.steepness == pytest.approx(2.0)
    assert ramps(margins, math.inf) == ()
    assert len(ramps(margins, 0.0)) == len(STEEPNESS)


def test_a_given_loss_is_rounded_up_to_the_grid() -> None:
    (choice,) = fixed_loss(2.0, 5.0, 4.0)
    assert choice.loss == 0.5 and choice.gamma is None
    assert 1.25 <= choice.steepness < 1.25 * 2**0.25
    assert fixed_loss(2.0, 1e9, 4.0) == ()


def test_linear_margins_are_distances() -> None:
    head = nn.Linear(3, 4)
    points = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(50) % 4
    found = linear_margins(head, DataSample(points, labels))
    weight, bias = head.weight.detach().double(), head.bias.detach().double()
    for x, y, margin in zip(points.double(), labels.tolist(), found.tolist(), strict=True):
        scores = weight @ x + bias
        assert (margin > 0) == (int(scores.argmax()) == y)
        # walking that far towards the nearest boundary reaches it
        j = min(
            (k for k in range(4) if k != y),
            key=lambda k: float((scores[y] - scores[k]) / (weight[y] - weight[k]).norm()),
        )
        step = (weight[j] - weight[y]) / (weight[j] - weight[y]).norm()
        moved = weight @ (x + margin * step) + bias
        assert float(moved[y] - moved[j]) == pytest.approx(0.0, abs=1e-9)


def test_classes_with_the_same_weights_share_no_boundary() -> None:
    head = nn.Linear(2, 2)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([1.0, 0.0]))
    assert linear_margins(head, DataSample(torch.zeros(2, 2), torch.tensor([0, 1]))).tolist() == [math.inf, -math.inf]


def test_margins_count_ties_as_errors() -> None:
    margins = margins_of(torch.tensor([[1.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 0]))
    assert margins.tolist() == [0.0, 1.0]


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
    for row in related.robustness(space, DELTA):
        assert row.kind is RowKind.VACUOUS and "diameter" in row.reason
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


def test_keys_of_features_differ() -> None:
    found = rows_of(space_of(blobs(500), name="features"))
    assert set(found) == {f"features.theorem20.{k}" for k in ("published", "rademacher", "variation", "kl")}
    assert {row.family for row in found.values()} == {"feature cells"}


def test_coverage_of_the_whole_row() -> None:
    """A source with known truth: a memorizer of slope t is right near the samples only; no row may be broken often."""
    broken = dict.fromkeys(("theorem20.published", "theorem20.rademacher", "theorem20.variation", "theorem20.kl"), 0)
    bounds, wrong = 0, 0.0
    for seed in range(60):
        rng = torch.Generator().manual_seed(seed)
        m, steep = 800, 20.0
        atoms = torch.cat([0.005 * torch.rand(40, 1, generator=rng), torch.rand(600, 1, generator=rng)])
        mass = torch.cat([torch.rand(40, generator=rng), torch.full((600,), 0.005)])  # crowded, and rare places
        picks = torch.multinomial(mass, m, replacement=True, generator=rng)
        margin = _bump(atoms, atoms[picks.unique()], steep)
        true = float((mass * (margin <= 0)).sum() / mass.sum())
        wrong += true
        sample = DataSample(atoms[picks], torch.zeros(m, dtype=torch.long))
        cells, spread = in_cells(sample, 1, one_cell())
        margins = margin[picks].double()
        space = CellSpace(
            "inputs",
            sample,
            1,
            one_cell(),
            cells,
            spread,
            margins,
            steep,
            "",
            1.0,
            "error",
            ramps(margins, steep),
        )
        for key, row in rows_of(space).items():
            assert row.value is not None
            bounds += row.kind is RowKind.BOUND
            broken[key] += row.value < true
    assert max(broken.values()) <= 10  # 99.9 % quantile of Binomial(60, 0.05)
    assert bounds > 60 and wrong > 0.005 * 60


def _bump(x: Tensor, near: Tensor, steep: float) -> Tensor:
    return 0.3 - steep * torch.cdist(x, near).amin(1)
