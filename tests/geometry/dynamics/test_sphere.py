"""Angles, walks and the scale-free metric."""

from __future__ import annotations

import math

import pytest
import torch

from normgauge.core.errors import InputError
from normgauge.geometry.dynamics import (
    angle,
    distance,
    gradients,
    inner,
    quotient_distance,
    riemannian_gradient,
    vectors,
)
from normgauge.geometry.dynamics.sphere import WALKS, tangent, unit_weights, walk
from tests.geometry.dynamics.nets import backward, batch_norm_net, data


@pytest.fixture
def drawn():
    """Points, velocities and something to carry, all tangent."""
    generator = torch.Generator().manual_seed(0)
    u, v, a = torch.randn(3, 6, 5, generator=generator, dtype=torch.float64)
    u = unit_weights(u)
    return u, tangent(u, v), tangent(u, a)


@pytest.mark.parametrize("how", WALKS)
def test_a_walk_stays_on_the_sphere_and_what_is_carried_stays_tangent(drawn, how):
    u, v, a = drawn
    moved, carried = walk(u, v, a, how)
    assert torch.allclose(moved.norm(dim=1), torch.ones(6, dtype=torch.float64), rtol=1e-15)
    assert float((moved * carried).sum(1).abs().max()) < 1e-15


def test_the_exponential_map_turns_by_the_length_and_keeps_lengths_and_angles(drawn):
    u, v, a = drawn
    v = v * (3 / v.norm(dim=1, keepdim=True))  # less than half a turn
    moved, carried = walk(u, v, a, "exponential")
    assert torch.allclose(angle(u, moved), v.norm(dim=1), rtol=1e-12)
    assert torch.allclose(carried.norm(dim=1), a.norm(dim=1), rtol=1e-12)
    _, velocity = walk(u, v, v, "exponential")
    assert torch.allclose((velocity * carried).sum(1), (v * a).sum(1), atol=1e-13)


def test_a_geodesic_walked_back_ends_where_it_began(drawn):
    u, v, a = drawn
    there, velocity = walk(u, v, v, "exponential")
    _, carried = walk(u, v, a, "exponential")
    back, again = walk(there, -velocity, carried, "exponential")
    assert torch.allclose(back, u, atol=1e-14) and torch.allclose(again, a, atol=1e-13)


def test_the_projection_turns_by_the_arctangent(drawn):
    u, v, a = drawn
    assert torch.allclose(angle(u, walk(u, v, a, "projection")[0]), v.norm(dim=1).atan(), rtol=1e-12)


def test_the_two_walks_agree_to_third_order(drawn):
    u, v, a = drawn
    apart = [
        float(angle(walk(u, s * v, a, "exponential")[0], walk(u, s * v, a, "projection")[0]).max())
        for s in (1e-2, 1e-3)
    ]
    assert math.log10(apart[0] / apart[1]) == pytest.approx(3, abs=0.01)


def test_standing_still(drawn):
    u, _, a = drawn
    for how in WALKS:
        moved, carried = walk(u, torch.zeros_like(u), a, how)
        assert torch.allclose(moved, u, rtol=1e-15) and torch.allclose(carried, a, atol=1e-15)


@pytest.mark.parametrize("bad", [0.0, math.nan, math.inf])
def test_a_vector_without_direction_is_refused_by_row(bad):
    w = torch.ones(3, 2)
    w[1] = bad
    with pytest.raises(InputError, match=r"1 of 3 scale-free vectors .* rows \[1\]"):
        unit_weights(w)


@pytest.fixture
def free():
    return torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def test_lengths_do_not_change_with_the_scale(free):
    w, a, b = free
    assert torch.allclose(inner(10 * w, 10 * a, 10 * b), inner(w, a, b), rtol=1e-13)
    assert torch.allclose(inner(w, w, w), torch.ones(4, dtype=torch.float64), rtol=1e-15)


def test_the_gradient_represents_the_differential(free):
    w, g, b = free
    assert torch.allclose(inner(w, riemannian_gradient(w, g), b), (g * b).sum(1), rtol=1e-13)


def test_a_step_along_it_turns_by_the_same_angle_in_every_gauge():
    net, groups = batch_norm_net()
    x, y = data()
    turned = []
    for factor in (1.0, 50.0):
        with torch.no_grad():
            net[0].weight *= factor
        backward(net, x, y)
        w, g = vectors(groups[0], dict(net.named_parameters())).detach(), vectors(groups[0], gradients(net))
        turned.append(angle(w, w - 0.1 * riemannian_gradient(w, g)))
        plain = angle(w, w - 0.1 * g)
    assert torch.allclose(*turned, rtol=1e-10)
    assert float((plain / turned[0]).max()) < 0.01


def test_the_distance_is_that_of_a_cylinder(free):
    a, b, _ = free
    expected = ((b.norm(dim=1) / a.norm(dim=1)).log() ** 2 + angle(a, b) ** 2).sqrt()
    assert torch.allclose(distance(a, b), expected, rtol=1e-14)
    assert torch.allclose(distance(a, math.e * a), torch.ones(4, dtype=torch.float64), rtol=1e-14)


def test_a_geodesic_is_as_long_as_the_distance_and_no_path_is_shorter(free):
    """Lengths summed along the helix, and along the straight line."""
    a, b, _ = (row[:1] for row in free)
    t = torch.linspace(0, 1, 20001, dtype=torch.float64)[:, None]
    turn = angle(a, b)
    u, v = a / a.norm(), b / b.norm()
    directions = (torch.sin((1 - t) * turn) * u + torch.sin(t * turn) * v) / turn.sin()
    helix = directions * torch.exp((1 - t) * a.norm().log() + t * b.norm().log())
    lengths = [
        float(inner((p[1:] + p[:-1]) / 2, p.diff(dim=0), p.diff(dim=0)).sqrt().sum()) for p in (helix, a + t * (b - a))
    ]
    assert lengths[0] == pytest.approx(float(distance(a, b)), rel=1e-7)
    assert lengths[1] > lengths[0] * 1.01


def test_the_quotient_forgets_the_scale(free):
    a, b, _ = free
    assert torch.allclose(quotient_distance(7 * a, 0.1 * b), quotient_distance(a, b), rtol=1e-14)
    scales = torch.logspace(-2, 2, 801, dtype=torch.float64)
    nearest = torch.stack([distance(a, s * b) for s in scales]).min(0).values
    assert torch.allclose(nearest, quotient_distance(a, b), rtol=1e-3)
    assert bool((nearest >= quotient_distance(a, b)).all())


def test_zero_has_no_metric():
    with pytest.raises(InputError, match="no direction"):
        inner(torch.zeros(1, 3), torch.ones(1, 3), torch.ones(1, 3))
