"""Bounds of the margins: above every slope of f_y − f_i in the ball, and not above √2 times that of the network."""

from __future__ import annotations

import math

import pytest
import torch

from normgauge.advice.certified import margin_bounds
from normgauge.advice.certified.margin_bounds import ComposedBounds, LoopBounds, lattice_above
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


def test_pairs_of_classes_by_loops_lie_above_all_slopes_and_serve_all_samples(monkeypatch):
    monkeypatch.setattr(margin_bounds, "MOST_OPEN", 0)
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(5, 9), torch.nn.ReLU(), torch.nn.Linear(9, 3)), torch.randn(4, 5)
    with opened(model, x, Options(search=False, pictures=False)) as session:
        loops, composed = LoopBounds(session), ComposedBounds(session)
        logs = {y: [loops(i, math.inf, y) for i in range(4)] for y in range(3)}
        usual = {y: composed(0, math.inf, y) for y in range(3)}
        assert len(loops.known) == 3 and session.failure_probability < 1e-6
    wide, generator = model.double(), torch.Generator().manual_seed(1)
    at = (3 * torch.randn(500, 5, generator=generator).double()).requires_grad_()
    outputs = wide(at)
    for y in range(3):
        assert all(torch.equal(log, logs[y][0]) for log in logs[y])
        assert bool((logs[y][0] <= usual[y] + 1e-9).all())
        for other in {0, 1, 2} - {y}:
            (slope,) = torch.autograd.grad((outputs[:, y] - outputs[:, other]).sum(), at, retain_graph=True)
            assert float(slope.norm(dim=1).max()) <= math.exp(float(logs[y][0][other]))
