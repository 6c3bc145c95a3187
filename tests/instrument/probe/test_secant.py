"""Slopes between two points: what confirms autograd, and what rounding must not fake."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from normgauge.instrument.probe import search
from normgauge.instrument.probe.jacobian import TopPair
from normgauge.instrument.probe.linearize import SampleMap, row_norms, unit_rows
from normgauge.instrument.probe.secant import confirmed_slopes, rounding_noise, secant_slopes
from tests.instrument.probe.cases import (
    StraightThrough,
    gaussian,
    jacobian_norms,
)


def test_a_backward_that_is_no_derivative_is_found_out() -> None:
    x = gaussian(4, 6, seed=3)
    assert jacobian_norms(StraightThrough.apply, x, 4).min() > 0.99
    assert search(StraightThrough.apply, x, 4, 0.0).log_best == -math.inf


def test_a_jump_is_found_by_secants() -> None:
    found = search(torch.round, 0.3 + 0.01 * gaussian(4, 6), 4, 2.0, steps=8)
    assert found.witness.startswith("secant")
    assert found.log_best > math.log(10)


def test_a_network_in_float32_inside_yields_no_false_secants() -> None:
    x = gaussian(6, 20)
    for radius in (0.0, 1.0, math.inf):
        found = search(lambda x: x.float().tanh().double(), x, 6, radius, steps=8)
        assert math.exp(found.log_best) <= 1 + 1e-6


def test_beside_a_singular_point_no_slope_is_reported_that_the_network_does_not_have():
    """A standard deviation of nearly equal numbers: autograd divides rounding by rounding there."""
    x = torch.full((3, 3), 0.7, dtype=torch.float64)
    found = search(lambda h: h.std(1, keepdim=True, unbiased=False), x, 3, 1e-4, steps=64)
    assert 0.9 / math.sqrt(3) < math.exp(found.log_best) <= (1 + 1e-5) / math.sqrt(3)


def rows_of(function, x: Tensor) -> SampleMap:
    return SampleMap(function, x, len(x))


def test_the_slopes_of_a_linear_map_are_confirmed_with_the_lengths_that_show_them() -> None:
    matrix, x = gaussian(4, 6), gaussian(3, 6, seed=1)
    left, sizes, right = torch.linalg.svd(matrix)
    pair = TopPair(*(t.expand(3, *t.shape) for t in (sizes[0], left[:, 0], right[0])))
    found = confirmed_slopes(rows_of(lambda x: x @ matrix.T, x), x, pair)
    assert torch.allclose(found.slope, sizes[:1].expand(3), rtol=1e-6) and (found.slope <= sizes[0]).all()
    assert torch.allclose(found.rise / found.run, sizes[:1].expand(3), rtol=1e-6)


def test_a_slope_the_network_does_not_have_is_not_confirmed() -> None:
    x = gaussian(3, 4)
    one = torch.eye(4, dtype=torch.float64)[0].expand(3, 4)
    claims = torch.tensor([1.0, 1.2, 0.5], dtype=torch.float64)  # of the identity, which has slope 1
    found = confirmed_slopes(rows_of(lambda x: 1.0 * x, x), x, TopPair(claims, one, one))
    assert found.slope.tolist() == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)


def test_halving_finds_the_steepest_piece_of_a_segment() -> None:
    """Slope 7 on [0.5, 0.75] and 1 elsewhere; from 0 to 1 the whole segment rises by 2.5."""
    near, far = torch.zeros(2, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
    far[1] = 0.4  # never reaches the steep piece
    found = secant_slopes(rows_of(lambda x: x + 6 * (x.clamp(0.5, 0.75) - 0.5), near), near, far)
    assert found.slope.tolist() == pytest.approx([7.0, 1.0], rel=1e-6)
    assert (found.slope <= torch.tensor([7.0, 1.0], dtype=torch.float64)).all()


def test_ends_that_coincide_have_no_slope() -> None:
    x = gaussian(2, 3)
    assert secant_slopes(rows_of(lambda x: 5 * x, x), x, x.clone()).slope.tolist() == [0.0, 0.0]


def test_the_noise_shows_single_precision_inside() -> None:
    x = gaussian(5, 400)
    along = unit_rows(gaussian(5, 400, seed=1))
    single, double = (
        rounding_noise(rows_of(f, x), x, along, f(x)) for f in (lambda x: x.float().double(), lambda x: 1.0 * x)
    )
    assert (single >= torch.finfo(torch.float32).eps / 4).all()
    size = row_norms(x)
    assert torch.allclose(double, (4e-9 + 64 * torch.finfo(torch.float64).eps) * size, rtol=1e-3)
