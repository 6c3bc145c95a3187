"""Bounds of the margins: above every slope of f_y − f_i in the ball, and not above √2 times that of the network."""

from __future__ import annotations

import math

import pytest
import torch

from normgauge.advice.certified.margin_bounds import ComposedBounds, lattice_above
from normgauge.core.bound import Scope
from normgauge.instrument.session import Options, opened
from tests.advice.certified.nets import NAMES, built


@pytest.mark.parametrize("radius", [1e-3, 0.3, math.inf])
@pytest.mark.parametrize("name", NAMES)
def test_no_slope_of_a_margin_exceeds_its_bound(name, radius):
    model, x = built(name)
    with opened(model, x, Options(search=False, pictures=False)) as session:
        bounds = ComposedBounds(session)
        logs = [bounds(i, radius, 1) for i in range(len(x))]
        whole = session.bounds(session.composed(Scope.parse("global")))[1].log_upper
    wide, generator = model.double(), torch.Generator().manual_seed(1)
    for _ in range(10):
        way = torch.randn(x.shape, generator=generator).double()
        length = min(radius, 3.0) / way.flatten(1).norm(dim=1).reshape(-1, *[1] * (x.ndim - 1))
        at = (x.double() + way * length * float(torch.rand(1, generator=generator))).requires_grad_()
        outputs = wide(at)
        for other in range(outputs.shape[1]):
            (slope,) = torch.autograd.grad((outputs[:, 1] - outputs[:, other]).sum(), at, retain_graph=True)
            for i, steep in enumerate(slope.flatten(1).norm(dim=1).tolist()):
                assert logs[i] is not None and steep <= math.exp(float(logs[i][other])) * (1 + 1e-9)
    assert all(float(log.max()) <= float(whole.max()) + math.log(2) / 2 + 1e-9 for log in logs) or radius < math.inf


def test_radii_of_the_lattice_lie_above_and_close():
    for k in range(-40, 40):
        radius = 1.13**k
        assert radius <= lattice_above(radius) <= radius * 2**0.25 * (1 + 1e-12)


def test_a_few_compositions_serve_all_samples():
    model, x = built("layernorm")
    with opened(model, x, Options(search=False, pictures=False)) as session:
        bounds = ComposedBounds(session)
        for i in range(len(x)):
            for k in range(20):
                bounds(i, 0.1 + 0.001 * k, 0)
        assert len(bounds.known) <= 2
