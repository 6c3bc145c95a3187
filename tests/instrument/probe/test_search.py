from __future__ import annotations

import importlib
import math
import time

import pytest
import torch
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.instrument.probe import Found, search
from tests.instrument.probe.cases import (
    NETWORKS,
    build,
    dense_norms,
    gaussian,
    jacobian_norms,
    relu_mlp,
)

searching = importlib.import_module("normgauge.instrument.probe.search")  # the package's name is the function's


@pytest.mark.parametrize("name", NETWORKS)
def test_point_scope_meets_the_dense_truth_from_below(name: str) -> None:
    network, x = build(name)
    found, truth = search(network, x, len(x), 0.0), dense_norms(network, x)
    assert (found.log_lower.exp() <= truth).all()
    assert (found.log_lower.exp() >= truth * 0.99).all()
    assert found.witness == f"jacobian at sample {int(found.log_lower.argmax())}"


@pytest.mark.parametrize("name", ["layer", "group", "attention", "rms, many outputs", "differentiable once"])
def test_ball_scope_is_at_least_the_point_and_global_at_least_the_ball(name: str) -> None:
    network, x = build(name)
    point, ball, anywhere = (search(network, x, len(x), radius, steps=24) for radius in (0.0, 0.5, math.inf))
    assert (ball.log_lower >= point.log_lower - 1e-5).all()
    assert ball.log_best > point.log_best
    assert anywhere.log_best > ball.log_best - 0.05


def test_a_zero_map_with_steep_pieces_has_slope_zero_on_its_kink() -> None:
    def nothing(x: Tensor) -> Tensor:
        return 100 * (x - x.relu() + (-x).relu())

    zero = torch.zeros(3, 4, dtype=torch.float64)
    assert jacobian_norms(nothing, zero, 3).max() > 99  # what autograd says on the kink
    for radius in (0.0, 1.0, math.inf):
        assert search(nothing, zero, 3, radius, steps=16).log_best < math.log(1e-6)


def test_a_bare_layer_norm_reaches_its_constant() -> None:
    norm = nn.LayerNorm(32, eps=1e-5).double()
    found = search(norm, gaussian(8, 32), 8, math.inf, steps=8)
    assert 0.99 / math.sqrt(1e-5) <= math.exp(found.log_best) <= 1 / math.sqrt(1e-5)


def test_a_nearly_constant_sample_stays_below_its_own_normalizer() -> None:
    x = 1e3 + 1e-3 * gaussian(4, 16)
    norm = nn.LayerNorm(16, eps=1e-12).double()
    assert (search(norm, x, 4, 0.0).log_lower.exp() <= dense_norms(norm, x)).all()


def test_climbing_patterns_beats_the_data_by_far() -> None:
    network, x = relu_mlp(), gaussian(32, 64)
    data = jacobian_norms(network, x, 32).max().log().item()
    found = search(network, x, 32, math.inf, steps=256)
    product = sum(torch.linalg.matrix_norm(m.weight, 2).log().item() for m in network if isinstance(m, nn.Linear))
    assert data + math.log(1.12) < found.log_best < product
    assert found.witness.startswith("jacobian found by ascent from sample")


@pytest.mark.parametrize("radius", [1e-3, 0.7])
@pytest.mark.parametrize("name", ["layer", "group", "differentiable once"])
def test_the_ball_is_never_left(radius: float, name: str) -> None:
    network, x = build(name)
    farthest = []

    def watched(points: Tensor) -> Tensor:
        farthest.append((points.detach() - x).flatten(1).norm(dim=1).max().item())
        return network(points)

    search(watched, x, len(x), radius, steps=24)
    assert 0.5 * radius < max(farthest) <= radius


def test_lower_bounds_of_a_ball_lie_below_the_closed_form() -> None:
    # sup of tanh' times 5 over a ball of radius 1 around ±3 is at ±2.
    found = search(lambda x: 5 * x.tanh(), torch.tensor([[3.0], [-3.0]], dtype=torch.float64), 2, 1.0, steps=32)
    truth = 5 / math.cosh(2.0) ** 2
    assert (found.log_lower.exp() <= truth).all()
    assert (found.log_lower.exp() >= 0.99 * truth).all()


@pytest.mark.parametrize("radius", [0.0, 0.3, math.inf])
def test_the_same_seed_finds_the_same_and_the_global_generator_stays(radius: float) -> None:
    network, x = relu_mlp(), gaussian(4, 64)
    state = torch.get_rng_state()
    first, second = (search(network, x, 4, radius, seed=5, steps=40) for _ in range(2))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first.log_lower, second.log_lower)
    assert (first.witness, first.calls) == (second.witness, second.calls)
    assert all(p.grad is None for p in network.parameters())


def test_a_budget_bounds_the_search_but_never_the_data() -> None:
    network, x = relu_mlp(), gaussian(4, 64)
    stages = []
    starved = search(network, x, 4, math.inf, budget=0.0, progress=lambda stage, done: stages.append(stage))
    assert starved.steps == 0
    assert starved.log_best >= jacobian_norms(network, x, 4).max().log().item() - 1e-6
    brief = search(network, x, 4, math.inf, budget=0.1)
    assert 8 <= brief.steps <= 512
    assert brief.steps & (brief.steps - 1) == 0
    assert stages == ["jacobians"]


@pytest.mark.parametrize("radius", [0.3, math.inf])
def test_no_clock_decides_how_long_a_search_is(radius: float) -> None:
    network, x = relu_mlp(), gaussian(4, 64)

    def slow(points: Tensor) -> Tensor:
        time.sleep(1e-3)
        return network(points)

    first, second = (search(f, x, 4, radius, budget=0.02) for f in (network, slow))
    assert 8 <= first.steps < 512 and not first.cut
    assert (first.steps, first.calls, first.witness) == (second.steps, second.calls, second.witness)
    assert torch.equal(first.log_lower, second.log_lower)


def test_only_a_runaway_is_ended_by_the_clock_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "RUNAWAY", 0.0)
    network, x = relu_mlp(), gaussian(4, 64)
    found = search(network, x, 4, math.inf, budget=0.1)
    assert found.cut and found.steps == 0
    assert found.log_best >= jacobian_norms(network, x, 4).max().log().item() - 1e-6


@pytest.mark.parametrize(
    ("budget", "cost", "moves"),
    [(1.0, 0.1, 8), (1.0, 0.01, 64), (1.0, 1e-9, 512), (1.0, 10.0, 8), (0.0, 1.0, 0), (-1.0, 1.0, 0)],
)
def test_moves_are_powers_of_two_that_fit(budget: float, cost: float, moves: int) -> None:
    assert searching.affordable_moves(budget, cost) == moves


@pytest.mark.parametrize(("run", "times"), [(1e-6, 14), (0.05, 14), (0.1, 10), (0.3, 3), (5.0, 2)])
def test_long_runs_halve_less_often(run: float, times: int) -> None:
    assert searching.affordable_halvings(run) == times


def test_diverged_candidates_are_dropped() -> None:
    def explosive(x: Tensor) -> Tensor:
        size = x.detach().abs().amax(1, keepdim=True)
        return x.pow(2) / 2 + torch.where(size > 5, math.inf, 0.0)

    found = search(explosive, gaussian(4, 3), 4, math.inf, steps=64)
    assert found.log_lower.isfinite().all()
    assert 4 < math.exp(found.log_best) <= 5


def test_everything_diverged_finds_nothing() -> None:
    for radius in (0.0, 1.0, math.inf):
        found: Found = search(lambda x: x * math.inf, gaussian(2, 3), 2, radius, steps=8)
        assert found.log_best == -math.inf


def test_a_negative_radius_is_refused() -> None:
    for radius in (-1.0, math.nan):
        with pytest.raises(InputError, match="radius"):
            search(lambda x: x, gaussian(2, 3), 2, radius)


def test_known_directions_begin_the_search_and_useless_ones_do_no_harm() -> None:
    network, x = nn.Linear(60, 50).double(), torch.ones(2, 60, dtype=torch.float64)  # too many outputs for all rows
    truth = torch.linalg.matrix_norm(network.weight.detach(), 2)
    steep = torch.linalg.svd(network.weight.detach()).Vh[:1].expand(2, -1)
    for first in (steep, torch.zeros_like(steep), steep[:, :7], steep * math.nan):
        found = search(network, x, 2, 0.0, first=first, brief=True)
        assert (found.log_lower.exp() <= truth).all() and (found.log_lower.exp() >= 0.95 * truth).all()
    (sigma,) = search(network, x[:1], 1, 0.0, first=steep[:1], brief=True).log_lower.exp()
    assert float(sigma) == pytest.approx(float(truth), rel=1e-6)
