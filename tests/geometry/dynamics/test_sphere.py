import math

import pytest
import torch

from normgauge.core.errors import InputError
from normgauge.geometry.dynamics.sphere import WALKS, angle, tangent, unit_weights, walk


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
