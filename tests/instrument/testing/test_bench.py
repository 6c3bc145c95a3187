"""The bench: slopes of known maps, points inside their scope, and nothing changed outside."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from normgauge.core.bound import Scope
from normgauge.instrument.testing.bench import (
    dense_jacobian,
    is_factory,
    jacobian_norm,
    make_bench,
    probe_points,
    secant,
    uphill,
)


def test_the_norm_of_a_linear_map_and_the_direction_that_attains_it():
    matrix = torch.randn(3, 4).double()
    size, direction = jacobian_norm(lambda x: x @ matrix.T, torch.randn(4).double())
    assert size == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)))
    assert float((matrix @ direction).norm()) == pytest.approx(size) and float(direction.norm()) == pytest.approx(1.0)
    leaf = torch.ones(4).double().requires_grad_()
    assert dense_jacobian(leaf @ matrix.T, leaf).equal(matrix)
    assert dense_jacobian(torch.ones(2), leaf).equal(torch.zeros(2, 4).double())
    assert jacobian_norm(lambda x: x / 0 * 0, leaf.detach())[0] == 0.0  # no number, no slope


@pytest.mark.parametrize("scope", ["point", "ball:0.3", "global"])
def test_points_lie_in_the_scope_and_climbs_get_higher(scope):
    bench, where = make_bench(nn.Linear(3, 2), (2, 3), "eval", 0), Scope.parse(scope)
    points = [*probe_points(bench, where), *uphill(bench, where)]
    assert points[0][1] is bench.x and len(points) == {"point": 1, "ball:0.3": 11, "global": 11}[scope]
    for name, x in points:
        assert float((x - bench.x).norm()) <= where.radius, name
    high = dict(points).get("the highest entry found")
    if high is not None:
        assert bench.function(high).max().item() > bench.function(bench.x).max().item()


def test_the_steepest_point_found_is_steeper_than_the_centre():
    bench = make_bench(torch.sin, torch.tensor([[1.0, 1.2]]), "eval", 0)
    found = dict(uphill(bench, Scope.parse("ball:0.5")))["the steepest point found"]
    assert jacobian_norm(bench.function, found)[0] > 1.2 * jacobian_norm(bench.function, bench.x)[0]


def test_a_secant_is_a_slope_less_its_rounding():
    bench = make_bench(lambda x: 3 * x, (1, 4), "eval", 0)
    assert 3 * (1 - 1e-9) < secant(bench, bench.x, bench.x + 1) <= 3.0
    assert secant(bench, bench.x, bench.x) == 0.0


def test_state_and_random_numbers_are_the_same_at_every_call():
    before = torch.get_rng_state()
    bench = make_bench(lambda: nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)), (4, 3), "train", 0)
    assert torch.get_rng_state().equal(before)
    first, second = bench.function(bench.x), bench.function(bench.x)
    assert first.equal(second)
    bench.rewind()
    assert bench.model.layer[0].num_batches_tracked == 0


def test_what_is_called_to_make_a_layer():
    made = [nn.ReLU, lambda: nn.Linear(2, 2), nn.ReLU(), torch.tanh, lambda x: x]
    assert [is_factory(target) for target in made] == [True, True, False, False, False]
