"""Activation patterns: the lower end against the exact constant of networks small enough to enumerate."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from normgauge.instrument.probe import search
from normgauge.instrument.probe.corners import COUNTS, MARGINS, corner_points
from normgauge.instrument.probe.domain import Domain
from normgauge.instrument.probe.linearize import SampleMap
from tests.instrument.probe.cases import build, gaussian
from tests.instrument.probe.enumeration import NETWORKS, batch_for, exact_constant, found_share, perceptron, pieces

SEEDS = {"2-16-2": 0, "2-8-8-2, far away": 0, "2-10-6-2, mixed": 2, "2-12-8-3, trained": 0}  # 1 where none is named


@pytest.mark.parametrize("name", NETWORKS)
def test_the_steepest_piece_is_found_in_every_family(name: str) -> None:
    seed = SEEDS.get(name, 1)
    assert 0.97 <= found_share(NETWORKS[name](seed), seed) <= 1 + 1e-9


def test_without_copies_the_same_search_misses_it() -> None:
    """The test above can fail: a search that may not widen its batch does not turn corners."""
    model = perceptron(2, 16, 2, seed=0)
    batch, exact = batch_for(model, 0), exact_constant(model)
    shares = [math.exp(search(model, batch, 8, math.inf, alone=alone).log_best) / exact for alone in (False, True)]
    assert shares[0] < 0.97 <= shares[1] <= 1 + 1e-9


def test_the_enumeration_counts_the_pieces_of_lines_in_general_position() -> None:
    model = perceptron(2, 6, 2, seed=0)
    found = list(pieces(model))
    assert len(found) == 1 + 6 + 15
    sampled = 10 * gaussian(4000, 2)
    slopes = torch.func.vmap(torch.func.jacrev(model))(sampled).detach().numpy()
    for slope in np.unique(slopes.round(9), axis=0):
        assert min(np.abs(slope - piece).max() for piece in found) < 1e-8


def test_one_piece_is_found_by_hand() -> None:
    # |x| + |y| − 1 clipped at 0: its slopes are (±1, ±1) and 0
    model = perceptron(2, 4, 1, 1, seed=0)
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
        model[0].bias.zero_()
        model[2].weight.fill_(1.0)
        model[2].bias.fill_(-1.0)
        model[4].weight.fill_(3.0)
    assert exact_constant(model) == pytest.approx(3 * math.sqrt(2))


@pytest.mark.parametrize("turn", range(len(COUNTS)))
def test_corners_lie_just_behind_the_kinks_of_so_many_units(turn: int) -> None:
    model, x = perceptron(6, 20, 3, seed=0), gaussian(5, 6)
    network, step = SampleMap(model, x, 5), torch.ones(5, dtype=torch.float64)
    points = corner_points(network, Domain(x, math.inf), x, step, turn, torch.Generator().manual_seed(0))
    assert points is not None
    distance = (model[0](points) / model[0].weight.norm(dim=1)).abs()
    met = (distance <= MARGINS[turn] * (1 + 1e-6)) & (distance >= MARGINS[turn] * (1 - 1e-6))
    assert (met.sum(1) == COUNTS[turn]).all()


def test_a_network_without_kinks_has_no_corners() -> None:
    network, x = build("layer")
    rows = SampleMap(network, x, len(x))
    step = torch.ones(len(x), dtype=torch.float64)
    assert corner_points(rows, Domain(rows.start, 1.0), rows.start, step, 0, torch.Generator().manual_seed(0)) is None


def test_units_that_do_not_depend_on_the_input_are_left_where_they_are() -> None:
    model = perceptron(3, 4, 2, seed=0)
    model[0].weight.data[:3] = 0
    network, x = SampleMap(model, gaussian(2, 3), 2), gaussian(2, 3)
    step, generator = torch.ones(2, dtype=torch.float64), torch.Generator().manual_seed(0)
    points = corner_points(network, Domain(x, math.inf), x, step, 0, generator)
    assert points is not None and points.isfinite().all()


@pytest.mark.parametrize("radius", [0.05, 0.5])
def test_a_ball_is_never_left_by_many_chains(radius: float) -> None:
    model, x = perceptron(3, 8, 4, 2, seed=1), gaussian(4, 3)
    farthest, rows = [], []

    def watched(points: torch.Tensor) -> torch.Tensor:
        copies = len(points) // len(x)
        rows.append(len(points))
        farthest.append(float((points.detach() - x.repeat(copies, 1)).norm(dim=1).max()))
        return model(points)

    found = search(watched, x, 4, radius, alone=True)
    wide = [far for far, count in zip(farthest, rows, strict=True) if count > 4]
    assert len(wide) > 100 and max(rows) <= 256
    assert sum(far > radius for far in farthest) <= 1  # the look whether copies are apart, before the search
    assert (found.log_lower.exp() <= exact_constant(model) * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    "mixing",
    [
        lambda x: x - x.mean(0),
        lambda x: x * len(x),
        lambda x: x.reshape(1, 3),
        lambda x: x.cumsum(0),
    ],
)
def test_networks_whose_samples_are_not_apart_are_not_widened(mixing) -> None:
    linear = nn.Linear(3, 3).double()
    network = SampleMap(lambda x: linear(mixing(x).relu()), gaussian(1, 3), 1)
    assert network.widened() is network


def test_a_small_network_of_one_sample_is_widened_and_finds_the_same_again() -> None:
    model, x = perceptron(2, 16, 2, seed=3), gaussian(1, 2)
    assert SampleMap(model, x, 1).widened().samples == 256
    first, second = (search(model, x, 1, math.inf, alone=True) for _ in range(2))
    assert torch.equal(first.log_lower, second.log_lower) and first.calls == second.calls
    assert math.exp(first.log_best) >= 0.97 * exact_constant(model)


def test_a_network_with_second_derivatives_is_not_widened() -> None:
    curved = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2)).double()
    network = SampleMap(curved, gaussian(2, 4), 2)
    assert network.curved and network.widened() is network
    assert not SampleMap(perceptron(4, 8, 2, seed=0), gaussian(2, 4), 2).curved
