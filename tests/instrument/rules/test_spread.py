"""The mathematics of division by a spread, against dense Jacobians and random displacements."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.instrument.rules.spread import decider, displacement, sigma_facts, smallest_spread, steepest_slope
from tests.instrument.rules.one_step import jacobian_norm

EPS = 0.05
CASES = [(n, centred) for n in (1, 2, 3, 6) for centred in (True, False)]


def normalized(x: Tensor, centred: bool) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=EPS) if centred else F.rms_norm(x, x.shape[-1:], eps=EPS)


def spread(x: Tensor, centred: bool) -> Tensor:
    return (x.var(-1, unbiased=False) if centred else x.square().mean(-1)).sqrt()


def data(size: int, seed: int = 0) -> Tensor:
    return torch.randn(1, size, generator=torch.Generator().manual_seed(seed)).double()


@pytest.mark.parametrize(("size", "centred"), CASES)
def test_the_slope_is_that_of_the_jacobian(size, centred):
    x = data(size)
    found = steepest_slope(spread(x, centred), EPS, size, centred)
    assert float(found) == pytest.approx(jacobian_norm(lambda x: normalized(x, centred), x), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("size", "centred"), [case for case in CASES if case[0] > 1])
@pytest.mark.parametrize("reach", [0.1, 0.7, 5.0])
def test_nothing_in_the_ball_is_narrower_or_moves_farther(size, centred, reach):
    x, radius = data(size), torch.tensor([reach], dtype=torch.float64)
    sigma = spread(x, centred)
    floor = smallest_spread(sigma, radius, size)
    moved, _ = displacement(sigma, steepest_slope(floor, EPS, size, centred), radius, EPS, size)
    middle = x - x.mean() if centred else x
    inward = [-reach * middle / middle.norm()] + [data(size, seed) for seed in range(1, 40)]
    for change in inward:
        there = x + change * min(1.0, reach / float(change.norm()))
        assert float(spread(there, centred)) >= float(floor) - 1e-12
        assert float((normalized(there, centred) - normalized(x, centred)).norm()) <= float(moved)
    if float(floor) > 0:  # attained by moving straight inwards
        assert float(spread(x + inward[0], centred)) == pytest.approx(float(floor), rel=1e-9)


def test_no_reach_is_no_bound_below():
    assert smallest_spread(torch.ones(1).double(), torch.tensor([math.inf]), 4).tolist() == [0.0]


def test_the_group_that_decides_is_named_where_others_do_not():
    log, slopes = torch.tensor([0.0, 1.0]), torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 2.0]])
    sigma, reach = torch.arange(8.0).reshape(2, 4), torch.full((2, 1), 0.5)
    found = decider(log, slopes, sigma, reach, "channel", period=2)
    assert (found.place, found.index, found.sigma, found.reach) == ("sample 1, channel 1: ", 3, 7.0, 0.5)
    assert decider(log[1:], slopes[:1], sigma, reach, "row").place == ""
    assert found.floor(4, True) == ("s = σ(x₀) − ρ/√n = 7 − 0.5/√4 = 6.75; ", "s", "6.75")


def test_the_facts_are_those_of_sigma():
    sigma = torch.tensor([[1.0, 2.0], [4.0, 0.5]]).double()
    gamma, groups = torch.tensor([-3.0, 1.0]), torch.tensor([[1.0, 2.0], [2.5, 0.25]]).double()
    facts = sigma_facts(sigma, gamma, EPS, groups=groups)
    assert (facts["min"], facts["max"], facts["gamma_max"]) == (0.5, 4.0, 3.0)
    assert facts["rms"] == pytest.approx(math.sqrt((1 + 4 + 16 + 0.25) / 4))
    assert facts["log_sum"] == pytest.approx(math.log(3.0)) and facts["log_sum"] >= math.log(3.0)
    assert facts["log_count"] == math.log(2)
    assert facts["log_inverse"] is facts["log_l2"] is facts["log_inverse_l2"] is None
    assert sigma_facts(sigma, gamma, EPS, groups=groups[:, :1])["log_inverse"] >= math.log(2.5)
    channels = sigma_facts(torch.tensor([[1.0, 0.5]]).double(), gamma, EPS, scale=torch.tensor([3.0, 2.0]).double())
    assert channels["log_inverse_l2"] == pytest.approx(math.log(math.hypot(1.0, 2.0)))
    assert channels["log_l2"] == pytest.approx(math.log(math.hypot(3.0, 2.0))) and channels["log_sum"] is None
