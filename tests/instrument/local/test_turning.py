"""Entries of a normalizer's Jacobian and of its secants over boxes, held against what they are at points."""

from __future__ import annotations

import math

import pytest
import torch

from normgauge.instrument.local.curves import Curve, secants_around
from normgauge.instrument.local.turning import Turned, turned

BOXES = [(1.0, 0.05, 0.1), (1.0, 0.3, 0.3), (0.2, 0.19, 1.5), (1.0, 1.4, 0.7), (0.01, 2.0, 5.0), (0.0, 0.1, 0.2)]


def points(sigma: float, forth: float, aside: float) -> torch.Tensor:
    """Places of the box, its edges among them, as vectors along â and two more directions."""
    generator = torch.Generator().manual_seed(0)
    draw = torch.rand(4000, 3, generator=generator, dtype=torch.float64)
    draw[:1000, 0], draw[1000:2000, 0], draw[2000:3000, 1] = 0.0, 1.0, 1.0
    p, q, angle = sigma + forth * (2 * draw[:, 0] - 1), aside * draw[:, 1], 6.3 * draw[:, 2]
    return torch.stack([p, q * angle.cos(), q * angle.sin()], 1)


def left(matrices: torch.Tensor, turn: Turned) -> tuple[torch.Tensor, ...]:
    """Sizes of the four parts of what the middle leaves."""
    rest = matrices - torch.diag(torch.tensor([turn.along, turn.across, turn.across], dtype=torch.float64))
    norm = torch.linalg.matrix_norm(rest[:, 1:, 1:], 2)
    return rest[:, 0, 0].abs(), rest[:, 0, 1:].norm(dim=1), rest[:, 1:, 0].norm(dim=1), norm


@pytest.mark.parametrize("eps", [1e-5, 0.3])
@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("secant", [False, True])
def test_no_point_of_the_box_is_outside(box: tuple[float, float, float], eps: float, secant: bool) -> None:
    u, turn = points(*box), turned(*box, eps, secant)
    s = (u.square().sum(1) + eps).sqrt()[:, None, None]
    centre = torch.tensor([box[0], 0.0, 0.0], dtype=torch.float64)
    here = math.sqrt(box[0] ** 2 + eps)
    dyad = u[:, :, None] * u[:, None, :] / s**2
    if secant:
        dyad = centre[:, None] * (u + centre)[:, None, :] / (here * (s + here))
        exact = u / s[:, 0] - centre / here
        matrices = (torch.eye(3).double() - dyad) / s
        assert torch.allclose((matrices @ (u - centre)[:, :, None])[:, :, 0], exact, atol=1e-9)
    found = left((torch.eye(3).double() - dyad) / s, turn)
    bounds = (turn.along_along, turn.along_across, turn.across_along, turn.across_across)
    for sizes, bound in zip(found, bounds, strict=True):
        assert float(sizes.max()) <= bound * (1 + 1e-12) + 1e-12


def test_a_small_box_leaves_little_and_half_as_much_of_secants() -> None:
    whole, half = turned(1.0, 1e-4, 1e-4, 0.0), turned(1.0, 1e-4, 1e-4, 0.0, True)
    assert whole.across == pytest.approx(1.0, abs=1e-3)
    assert whole.along_across == pytest.approx(1e-4, rel=0.05)
    assert half.along_across == pytest.approx(0.5e-4, rel=0.05)


def test_a_group_that_may_vanish_without_epsilon_has_no_bound() -> None:
    assert math.isinf(turned(1.0, 1.0, 0.1, 0.0).most)


@pytest.mark.parametrize("name", ["relu", "leaky", "clamp", "tanh"])
def test_secants_of_a_function_lie_in_their_interval(name: str) -> None:
    functions = {
        "relu": (torch.relu, Curve(0.0, 1.0, (0.0,))),
        "leaky": (lambda x: torch.where(x > 0, x, 2 * x), Curve(1.0, 2.0, (0.0,))),
        "clamp": (lambda x: x.clamp(-1, 1), Curve(0.0, 1.0, (-1.0, 1.0))),
        "tanh": (torch.tanh, Curve(0.0, 1.0, bend=0.769801)),
    }
    function, curve = functions[name]
    here = torch.linspace(-2, 2, 81, dtype=torch.float64).requires_grad_(True)
    slope = torch.autograd.grad(function(here).sum(), here)[0]
    here, reach = here.detach(), torch.full((81,), 0.7, dtype=torch.float64)
    middle, half = secants_around(curve, here, slope, reach, 0.0)
    for step in torch.linspace(-0.7, 0.7, 140, dtype=torch.float64):
        secant = (function(here + step) - function(here)) / step
        assert bool(((secant - middle).abs() <= half + 1e-9).all())
    assert float(half.min()) < 1e-6 or name == "tanh"
