"""The robust error of networks whose robust error is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.certificates.bounds.holdout import clopper_pearson
from normgauge.certificates.facts.slopes import slopes_of
from normgauge.certificates.rows.robust import robust_rows
from normgauge.core.certificate import Row, RowKind
from tests.certificates.rows.made import WIDTH, cut, held_out, points

RADIUS, NOISE = 0.25, 0.1


def robust(model: nn.Module, radius: float | None = RADIUS, *, seed: int = 0, n: int = 400) -> Row:
    case, plain = held_out(model, points(n, seed, noise=NOISE), radius=radius)
    (row,) = robust_rows(case, slopes_of(model, points(8, 1)[0]), plain)
    return row


def test_the_count_is_exact_where_the_slope_is() -> None:
    """Two outputs w·x and −w·x: the proved slope is the true one, and a sample is safe beyond r from the boundary."""
    x, y = points(400, 0, noise=NOISE)
    lead = (x[:, 0] + x[:, 1]) / math.sqrt(2)
    bad = int((((lead > 0).long() != y) | (lead.abs() <= RADIUS)).sum())
    row = ng.certify(cut(3.0), points(60, 1), (x, y), epochs=0, radius=RADIUS).row("robust.holdout")
    assert row.kind is RowKind.BOUND and row.quantity == "robust error" and row.family == "robust"
    assert row.value == pytest.approx(clopper_pearson(bad, 400, math.log(0.05)))
    wrong, unproved, _ = (share for _, share in row.terms)
    assert wrong + unproved == pytest.approx(bad / 400) and wrong == pytest.approx(NOISE, abs=0.05)
    assert "rounding" in row.condition


def test_scaling_the_outputs_changes_nothing() -> None:
    assert robust(cut(1e-3)).value == robust(cut(1e3)).value


def test_a_larger_radius_costs_more_and_in_the_end_everything() -> None:
    values = [robust(cut(), radius).value or 0.0 for radius in (1e-9, 0.1, 0.5)]
    assert values == sorted(values) and values[0] < values[1] < values[2] < 1
    assert values[0] == held_out(cut(), points(400, 0, noise=NOISE))[1].value
    whole = robust(cut(), 50.0)
    assert whole.kind is RowKind.VACUOUS and "give a smaller radius" in whole.reason


class Normalized(nn.Module):
    """Steep over all inputs, since some have no spread; gentle near the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(WIDTH, eps=1e-12), cut()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(x))


def test_the_ball_around_a_sample_proves_what_the_slope_over_all_inputs_cannot() -> None:
    assert slopes_of(Normalized(), points(8, 1)[0]).balanced > 1e5
    row = robust(Normalized(), 0.01)
    assert row.kind is RowKind.BOUND and row.value < 0.5  # type: ignore[operator]


def test_no_sample_called_safe_can_be_moved_across_the_boundary() -> None:
    """A step of the length r straight at the boundary makes every sample wrong that the truth says it can."""
    x, y = points(400, 0, noise=NOISE)
    towards = torch.zeros(WIDTH)
    towards[:2] = 1 / math.sqrt(2)
    side = (2 * y - 1).float()[:, None]
    moved = cut()(x - RADIUS * (1 + 1e-6) * side * towards).argmax(1)
    found = float(((moved != y) | (cut()(x).argmax(1) != y)).double().mean())
    row = robust(cut())
    assert sum(share for _, share in row.terms[:2]) >= found > NOISE


class Odd(nn.Module):
    """A layer without a rule."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x)


@pytest.mark.parametrize(
    ("model", "radius", "words"),
    [(cut(), None, "give radius="), (nn.Sequential(cut(), Odd()), RADIUS, "bessel_j0")],
    ids=["no radius", "no slope"],
)
def test_where_it_does_not_apply_it_says_why(model: nn.Module, radius: float | None, words: str) -> None:
    row = robust(model, radius)
    assert row.kind is RowKind.NOT_APPLICABLE and words in row.reason and row.value is None


def test_without_a_hold_out_it_does_not_apply() -> None:
    row = ng.certify(cut(), points(60, 1), epochs=0, radius=RADIUS).row("robust.holdout")
    assert row.kind is RowKind.NOT_APPLICABLE and "hold-out" in row.reason


def test_it_holds_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The truth: labels that were flipped, and of the others those within r of the boundary."""
    truth = NOISE + (1 - NOISE) * math.erf(RADIUS / math.sqrt(2))
    slopes = slopes_of(cut(), points(8, 1)[0])

    def value(seed: int) -> float:
        case, plain = held_out(cut(), points(100, seed, noise=NOISE), radius=RADIUS)
        (row,) = robust_rows(case, slopes, plain)
        return row.value or 0.0

    measured = [value(seed) for seed in range(5)]
    # a linear map is as steep in every ball as everywhere: no need to measure each
    monkeypatch.setattr(
        "normgauge.certificates.rows.robust.local_slopes",
        lambda model, centres, radii: [torch.full((len(centres),), slopes.balanced).double()],
    )
    values = [value(seed) for seed in range(200)]
    assert values[:5] == measured
    assert max(values) < 0.6
    assert sum(value < truth for value in values) <= 18  # Bin(200, 0.05) is above 18 with a chance below 1 %
