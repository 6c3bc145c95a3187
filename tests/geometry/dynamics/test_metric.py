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
from tests.geometry.dynamics.nets import backward, batch_norm_net, data


@pytest.fixture
def drawn():
    return torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def test_lengths_do_not_change_with_the_scale(drawn):
    w, a, b = drawn
    assert torch.allclose(inner(10 * w, 10 * a, 10 * b), inner(w, a, b), rtol=1e-13)
    assert torch.allclose(inner(w, w, w), torch.ones(4, dtype=torch.float64), rtol=1e-15)


def test_the_gradient_represents_the_differential(drawn):
    w, g, b = drawn
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


def test_the_distance_is_that_of_a_cylinder(drawn):
    a, b, _ = drawn
    expected = ((b.norm(dim=1) / a.norm(dim=1)).log() ** 2 + angle(a, b) ** 2).sqrt()
    assert torch.allclose(distance(a, b), expected, rtol=1e-14)
    assert torch.allclose(distance(a, math.e * a), torch.ones(4, dtype=torch.float64), rtol=1e-14)


def test_a_geodesic_is_as_long_as_the_distance_and_no_path_is_shorter(drawn):
    """Lengths summed along the helix, and along the straight line."""
    a, b, _ = (row[:1] for row in drawn)
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


def test_the_quotient_forgets_the_scale(drawn):
    a, b, _ = drawn
    assert torch.allclose(quotient_distance(7 * a, 0.1 * b), quotient_distance(a, b), rtol=1e-14)
    scales = torch.logspace(-2, 2, 801, dtype=torch.float64)
    nearest = torch.stack([distance(a, s * b) for s in scales]).min(0).values
    assert torch.allclose(nearest, quotient_distance(a, b), rtol=1e-3)
    assert bool((nearest >= quotient_distance(a, b)).all())


def test_zero_has_no_metric():
    with pytest.raises(InputError, match="no direction"):
        inner(torch.zeros(1, 3), torch.ones(1, 3), torch.ones(1, 3))
