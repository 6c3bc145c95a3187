import dataclasses
import math

import pytest
import torch
from torch import Tensor

from normgauge.certificates.bounds.cells import kl_cells, tau_published, tau_variation
from normgauge.certificates.bounds.distances import paired_distance
from normgauge.certificates.facts.cells import one_cell
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.facts.space import (
    STEEPNESS,
    CellSpace,
    Choice,
    in_cells,
    ramps,
)
from normgauge.certificates.rows.cells import printed_floor, sample_size, theorem20
from normgauge.core.certificate import Row, RowKind
from tests.certificates.rows.made import DELTA, blobs, space_of


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
    assert (
        row.reason.startswith("with 1 cell no sample size would help") and "more cells may (--cells 200)" in row.reason
    )


def test_what_no_sample_size_would_help_names_the_cells() -> None:
    row = rows_of(space_of(blobs(4000), slope=1e5, cells=20))["theorem20.variation"]
    assert row.reason.startswith("with 20 cells no") and row.reason.endswith("more cells may (--cells 200)")
    row = rows_of(space_of(blobs(60), slope=1e5, cells=200))["theorem20.variation"]
    assert row.reason.startswith("with 200 cells no") and row.reason.endswith("fewer cells may (--cells)")
    row = rows_of(space_of(blobs(40), slope=math.inf))["theorem20.variation"]
    assert "--cells" not in row.reason


def far_pairs(m: int, slope: float, *, far: float = 10.0) -> CellSpace:
    """Two classes of margin 1; a tenth of each lies far away, where the loss cannot change by more than its range."""
    labels = torch.arange(m) % 2
    away = torch.where(torch.arange(m) // 2 % 10 == 0, far, 0.0)
    sample = DataSample(torch.stack([2.0 * labels - 1, away], 1), labels)
    cells, spread = in_cells(sample, 2, one_cell())
    margins = torch.ones(m, dtype=torch.float64)
    return CellSpace(
        "inputs", sample, 2, one_cell(), cells, spread, margins, slope, "", 1.0, "error", ramps(margins, slope)
    )


def test_a_count_for_the_form_cut_off_is_not_said_of_the_published_one() -> None:
    space = far_pairs(60, 1.0)
    mean = space.spread.mean()
    assert mean > 1  # L·λ alone is above the largest margin, so (13) stays above C at every margin
    for gamma in torch.linspace(0.05, 50, 1000).tolist():
        assert max(0.0, 1 - 1 / gamma) + mean / gamma >= 1
    assert printed_floor(space) == 1.0
    found = rows_of(space)
    row = found["theorem20.published"]
    assert row.kind is RowKind.VACUOUS and row.needed is None
    assert "with 1 cell no sample size would help as printed" in row.reason
    assert f"would have to be below 1, and is {mean:.3g}" in row.reason and "cut off at C, with" in row.reason
    ours = found["theorem20.rademacher"]
    assert ours.needed is not None and "too few samples: cut off at C" in ours.reason
    barely = rows_of(far_pairs(60, (1 - 1e-8) / mean))["theorem20.published"]
    assert barely.needed is None and "no number of samples worth naming" in barely.reason
    large = rows_of(far_pairs(200_000, 1.0))["theorem20.published"]
    assert large.kind is RowKind.BOUND and "as printed, L·λ not cut off at C, it would say nothing" in large.reason
    assert all("cut-off at C" in row.source and "min(C, " in row.formula for row in (large, row, ours) if row.formula)


def test_the_published_sum_is_taken_at_its_best_margin() -> None:
    for seed in range(5):
        space = space_of(blobs(50, seed, width=0.8), slope=0.3)
        mean, margins = space.spread.mean(), space.margins
        tried = [
            float((1 - margins / g).clamp(0, 1).mean()) + 0.3 * mean / g
            for g in torch.linspace(0.01, 20, 20_000).tolist()
        ]
        assert printed_floor(space) == pytest.approx(min(1.0, *tried), abs=1e-3)
        assert printed_floor(space) <= min(tried) + 1e-12
    endless = dataclasses.replace(space, margins=torch.full((50,), math.inf, dtype=torch.float64))
    assert printed_floor(endless) == 0.0
    fixed = dataclasses.replace(space, choices=(Choice(0.5, 0.25),))
    assert printed_floor(fixed) == pytest.approx(0.25 + 0.5 * mean)


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
    found = rows_of(space_of(blobs(100), slope=math.inf))
    assert [row.kind for row in found.values()] == [RowKind.VACUOUS] * 4


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
