"""The descent: what a norm costs, slopes against differences, and that it gets somewhere."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from normgauge.instrument.loop.bound import first_weights
from normgauge.instrument.loop.loop_descent import descend_loop, followed, level_rise, price
from normgauge.instrument.loop.mid_network import MidNetwork
from normgauge.instrument.loop.weighted_loop import WeightedLoop
from tests.instrument.loop.loop_nets import built, random_net, read, steepest_of_slopes
from tests.instrument.loop.test_weighted_loop import network, weights


def log_norm(mid: MidNetwork, theta: Tensor) -> float:
    unit = torch.eye(sum(mid.entered), dtype=torch.float64)
    return math.log(float(torch.linalg.matrix_norm(WeightedLoop(mid, theta).push(unit), 2)))


@pytest.mark.parametrize("seed", [1, 3, 7, 8, 12])
@pytest.mark.parametrize("factor", [1.0, 1.01, 1.5, 4.0])
def test_a_norm_above_one_is_paid_for_by_lowering_every_level(seed: int, factor: float) -> None:
    mid = network(seed)
    theta = weights(mid, 0)
    theta = theta + math.log(factor) * (1 - nn.functional.one_hot(torch.tensor(0), len(theta)))
    norm = log_norm(mid, theta)
    assert log_norm(mid, theta + max(norm, 0.0) * level_rise(mid)) <= 1e-9 + min(norm, 0.0)


@pytest.mark.parametrize("seed", [3, 6, 9, 12, 18])
def test_a_norm_below_one_gains_its_first_power_only(seed: int) -> None:
    mid = network(seed)
    depth = mid.levels()[-1]
    theta = first_weights(mid) + 3.0 * level_rise(mid)
    norm = log_norm(mid, theta)
    assert norm < 0 and price(norm, depth) == norm
    truth = math.log(steepest_of_slopes(mid, 60))
    assert truth <= float(theta[0]) + price(norm, depth)


class FaintBranch(nn.Module):
    """The identity and next to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out_of = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + 1e-3 * self.out_of(torch.relu(self.into(x)))


def test_below_one_the_power_of_the_depth_would_be_false() -> None:
    torch.manual_seed(0)
    with read(FaintBranch().double(), torch.randn(2, 3).double()) as (session, parts, _):
        mid = built(session, parts)
    assert mid is not None
    theta = torch.tensor([3.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    norm, truth = log_norm(mid, theta), math.log(steepest_of_slopes(mid, 20))
    assert norm < 0
    assert 3.0 + mid.levels()[-1] * norm < truth <= 3.0 + price(norm, mid.levels()[-1])


@pytest.mark.parametrize("seed", [1, 3, 7, 10])
def test_slopes_are_those_of_the_norm(seed: int) -> None:
    mid = network(seed)
    theta = weights(mid, 4)
    unit = torch.eye(sum(mid.entered), dtype=torch.float64)
    right = torch.linalg.svd(WeightedLoop(mid, theta).push(unit).T)[2][:1]
    value, slope, _ = followed(mid, theta, right)
    assert value == pytest.approx(log_norm(mid, theta), abs=1e-9)
    for k in range(min(len(theta), 6)):
        step = torch.zeros_like(theta)
        step[k] = 1e-5
        change = (log_norm(mid, theta + step) - log_norm(mid, theta - step)) / 2e-5
        assert float(slope[k]) == pytest.approx(change, abs=1e-5)


def test_it_gets_well_below_where_it_began() -> None:
    net, x = random_net(8)
    with read(net, x) as (session, parts, folded):
        mid = built(session, parts)
    assert mid is not None
    theta = descend_loop(mid, first_weights(mid), 100)
    assert abs(log_norm(mid, theta)) < 0.01
    assert float(theta[0]) < folded.total - 1.0
