"""Engines that look at all inputs or at open units: above every slope of a margin, at every effort."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import nn

import normgauge as ng
from normgauge.advice.certified.engines import LoopBounds, OpenUnitBounds
from normgauge.advice.certified.margin_bounds import ComposedBounds
from normgauge.core.bound import Evidence
from normgauge.core.errors import InputError
from normgauge.instrument.local.effort import SPENDINGS
from normgauge.instrument.local.standing import opening_radii
from normgauge.instrument.session import Options, opened
from tests.advice.certified.nets import built


@pytest.mark.parametrize("effort", list(SPENDINGS))
@pytest.mark.parametrize("name", ["relu", "residual", "conv", "probabilities"])
def test_no_slope_of_a_margin_in_a_ball_exceeds_its_bound(name, effort):
    model, x = built(name)
    with opened(model, x, Options(search=False, pictures=False, effort=effort)) as session:
        logs = [OpenUnitBounds(session)(i, 0.2, 1) for i in range(len(x))]
    wide, generator = model.double(), torch.Generator().manual_seed(1)
    for _ in range(10):
        way = torch.randn(x.shape, generator=generator).double()
        length = 0.2 * float(torch.rand(1, generator=generator)) / way.flatten(1).norm(dim=1)
        at = (x.double() + way * length.reshape(-1, *[1] * (x.ndim - 1))).requires_grad_()
        outputs = wide(at)
        for other in range(outputs.shape[1]):
            (slope,) = torch.autograd.grad((outputs[:, 1] - outputs[:, other]).sum(), at, retain_graph=True)
            for steep, log in zip(slope.flatten(1).norm(dim=1).tolist(), logs, strict=True):
                assert log is not None and steep <= math.exp(float(log[other])) * (1 + 1e-12)


@pytest.mark.parametrize(("effort", "samples"), [("quick", 3), ("default", 1), ("long", 1)])
def test_radii_of_every_effort_are_proved_and_below_the_attack(effort, samples):
    model, x = built("conv")
    found = ng.radius(model, x[:samples], effort=effort, restarts=2)
    assert all(s.evidence is Evidence.PROVED and s.radius > 0 for s in found.samples) and not found.refuted
    assert all(s.attacked is None or s.radius < s.attacked for s in found.samples)


def test_an_effort_is_one_of_three_words():
    with pytest.raises(InputError, match="effort: expected quick, default, long, got 'much'"):
        ng.radius(nn.Linear(2, 2), torch.randn(1, 2), effort="much")


def test_a_hint_is_about_where_so_many_units_open():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(40, 400), nn.ReLU(), nn.Linear(400, 3)), torch.randn(3, 40)
    with opened(model, x, Options(search=False, pictures=False)) as session:
        hints = opening_radii(session, 100)
        assert opening_radii(session, 400) == [math.inf] * 3
    first = model[0].double()
    away = first(x.double()).detach().abs() / first.weight.norm(dim=1)
    for row, hint in zip(away, hints, strict=True):
        assert 25 < int((row < hint).sum()) < 100


def test_pairs_of_classes_by_loops_lie_above_all_slopes_and_serve_all_samples(monkeypatch):
    none = dataclasses.replace(SPENDINGS["default"].margins, units=0)
    monkeypatch.setitem(SPENDINGS, "default", dataclasses.replace(SPENDINGS["default"], margins=none))
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
