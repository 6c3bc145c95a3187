"""The two descents, against closed minima and the dense formula they abbreviate."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from normgauge.instrument.balance.descend import _two_loop, adam, descend_weights, lbfgs
from normgauge.instrument.balance.objective import Objective
from tests.instrument.balance.graphs import composed, weighting_of


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def curvature(n: int) -> Tensor:
    factor = gaussian(n, n)
    return factor @ factor.T + 0.1 * torch.eye(n, dtype=torch.float64)


def test_the_minimum_of_a_quadratic_is_the_solution_of_its_equations() -> None:
    matrix, goal = curvature(12), gaussian(12, seed=1)
    found = lbfgs(lambda x: (float(x @ matrix @ x / 2 - goal @ x), matrix @ x - goal), torch.zeros_like(goal), 100)
    assert torch.allclose(found, torch.linalg.solve(matrix, goal), atol=1e-4)


def test_a_curved_valley_is_followed_to_its_end() -> None:
    def rosenbrock(x: Tensor) -> tuple[float, Tensor]:
        a, b = x.tolist()
        bent = b - a * a
        gradient = torch.tensor([-400 * a * bent - 2 * (1 - a), 200 * bent], dtype=torch.float64)
        return 100 * bent**2 + (1 - a) ** 2, gradient

    found = lbfgs(rosenbrock, torch.tensor([-1.2, 1.0], dtype=torch.float64), 100)
    assert found.tolist() == pytest.approx([1.0, 1.0], abs=1e-3)


def test_two_loops_are_the_dense_inverse_hessian_of_bfgs() -> None:
    matrix, gradient = curvature(6), gaussian(6, seed=2)
    pairs = [(move, matrix @ move) for move in gaussian(4, 6, seed=3)]
    move, turn = pairs[-1]
    inverse = torch.eye(6, dtype=torch.float64) * (move @ turn) / (turn @ turn)
    for move, turn in pairs:
        weight = 1 / (move @ turn)
        left = torch.eye(6, dtype=torch.float64) - weight * torch.outer(move, turn)
        inverse = left @ inverse @ left.T + weight * torch.outer(move, move)
    assert torch.allclose(_two_loop(gradient, pairs), inverse @ gradient)


def test_corners_are_reached_by_the_second_descent() -> None:
    goal = gaussian(5, seed=4).clamp(-1, 1)
    found = adam(lambda x: (float((x - goal).abs().sum()), (x - goal).sign()), torch.zeros_like(goal), 120)
    assert float((found - goal).abs().max()) < 0.01


def test_the_best_point_is_kept_though_the_descent_goes_on() -> None:
    """A gradient that points the wrong way only ever makes things worse; the best of the second half is its first."""
    values: list[float] = []

    def uphill(x: Tensor) -> tuple[float, Tensor]:
        values.append(float(x.square().sum()))
        return values[-1], -2 * x

    found = adam(uphill, torch.ones(3, dtype=torch.float64), 10)
    assert float(found.square().sum()) == values[5] == min(values[5:])


def test_where_nothing_is_free_nothing_moves() -> None:
    with composed("pair") as parts:
        weighting = weighting_of(parts)
        weighting.free = 0
        start = torch.zeros(0, dtype=torch.float64)
        assert descend_weights(Objective(weighting), start) is start


def test_the_descent_ends_below_where_it_began() -> None:
    with composed("residual", "global") as parts:
        weighting = weighting_of(parts)
        start = gaussian(weighting.free)
        objective = Objective(weighting)
        before, _ = objective(start, frobenius=False)
        after, _ = objective(descend_weights(objective, start), frobenius=False)
    assert math.isfinite(after) and after < before - 0.1
