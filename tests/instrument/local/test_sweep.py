"""No slope in a ball is above its bound; the ball meets the point as it shrinks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normgauge.core.bound import Scope
from normgauge.instrument.local.journey import swept_ball
from normgauge.instrument.local.one_sample import alone
from normgauge.instrument.local.pieces import NotCarried
from normgauge.instrument.local.swept import Swept
from normgauge.instrument.session import Options, opened
from tests.instrument.local.nets import jacobian_norm, random_case, steepest


def swept(model: nn.Module, x: torch.Tensor, radius: float, sample: int = 0) -> Swept:
    with opened(model.double(), x.double(), Options(search=False)) as session, torch.no_grad():
        one = alone(session, sample)
        assert one is not None
        return swept_ball(one, session.composed(Scope.parse("point")), sample, radius, session.native, 1)


@pytest.mark.parametrize("seed", range(30))
def test_no_slope_is_above_the_bound(seed: int) -> None:
    model, x, radius = random_case(seed)
    wide, exact = model.double(), x.double()
    here = jacobian_norm(wide, exact)
    assert here <= swept(model, x.double(), 0.0).bound() <= here * (1 + 1e-5) + 1e-9
    for reach in (radius, math.inf):
        try:
            found = swept(model, x.double(), reach)
        except NotCarried:
            assert math.isinf(reach)  # a normalizer has no useful constant everywhere
            continue
        best = found.improved(1e-3, 30)
        assert steepest(wide, exact, reach, 40, seed) <= best.bound() * (1 + 1e-9) <= found.bound() * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(1, 30, 4))
def test_a_ball_meets_the_point_as_it_shrinks(seed: int) -> None:
    model, x, _ = random_case(seed)
    point, ball = swept(model, x.double(), 0.0), swept(model, x.double(), 1e-9)
    assert ball.improved(1e-4, 40).bound() == pytest.approx(point.bound(), rel=1e-3)


def test_a_kink_at_the_sample_counts_with_every_side_of_it() -> None:
    class Kinked(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu() - (-x).relu() * 3 + x.abs()  # slopes 2 and 2 beside 0, autograd's own is 0 there

    bound = swept(Kinked(), torch.zeros(1, 2), 0.0)
    assert bound.improved(1e-4, 60).bound() >= 2.0 - 1e-9


@pytest.mark.parametrize("activation", [torch.relu, torch.tanh])
@pytest.mark.parametrize("meet", ["sub", "cat", "weighted"])
def test_branches_side_by_side_have_units_of_their_own(activation, meet: str) -> None:
    """relu(x) − relu(x − 1) has slope 1 between 0 and 1, though the slopes of both branches meet elsewhere."""

    class Ramp(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            left, right = activation(x), activation(x - 9)
            if meet == "cat":
                return torch.cat([left, right], 1) @ torch.tensor([[1.0], [-1.0]], dtype=x.dtype)
            return left - right if meet == "sub" else 2 * left + (-1) * right

    truth = 2.0 if meet == "weighted" else 1.0
    for radius in (12.0, math.inf):
        found = swept(Ramp(), torch.full((1, 1), -5.0), radius)
        assert min(found.bound(), found.improved(1e-4, 60).bound()) >= truth * (1 - 1e-3)


def test_units_that_cancel_stay_proved_and_finite() -> None:
    class Nothing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu() - x.relu()

    assert swept(Nothing(), torch.zeros(1, 3), 0.0).bound() <= 1.5
    assert swept(Nothing(), torch.ones(1, 3), 0.0).bound() == pytest.approx(0.0, abs=1e-9)


def test_what_is_detached_is_not_followed() -> None:
    class Stopped(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu() + 5 * x.detach()

    with pytest.raises(NotCarried, match="autograd"):
        swept(Stopped(), torch.ones(1, 3), 0.0)


def test_rows_of_outputs_have_bounds_of_their_own() -> None:
    model, x, _ = random_case(4)
    found = swept(model, x.double(), 0.05)
    rows = torch.tensor([[1.0, -1.0, 0.0], [0.0, 0.0, 2.0]], dtype=torch.float64)
    each = found.row_bounds(rows)
    assert each is not None
    for row, bound in zip(rows, each.tolist(), strict=True):
        head = nn.Sequential(model.double(), Row(row))
        assert steepest(head, x.double(), 0.05, 40) <= bound * (1 + 1e-9)


class Row(nn.Module):
    def __init__(self, row: torch.Tensor) -> None:
        super().__init__()
        self.row = row

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.row).sum(1, keepdim=True)
