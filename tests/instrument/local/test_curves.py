"""Slopes on intervals: tables against a fine grid."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from normgauge.core.bound import Scope
from normgauge.instrument.local.curves import curve_of, slopes_around
from normgauge.instrument.local.pieces import NotCarried
from normgauge.instrument.session import Options, opened
from normgauge.instrument.trace.step import Step
from tests.instrument.local.nets import ACTIVATIONS


def step_of(module: nn.Module) -> tuple[Step, str]:
    with opened(module, torch.randn(1, 3, dtype=torch.float64), Options(search=False)) as session:
        (step,) = session.trace.steps
        rule = session.composed(Scope.parse("point")).rules[step.index]
        assert rule is not None
        return step, rule.id


@pytest.mark.parametrize("make", ACTIVATIONS)
def test_every_slope_lies_in_its_range(make) -> None:
    module = make().double()
    curve = curve_of(*step_of(module))
    x = torch.linspace(-9, 9, 40_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(module(x[:, None]).sum(), x)
    x = x.detach()
    assert curve.low - 1e-9 <= float(slope.min()) and float(slope.max()) <= curve.high + 1e-9
    for reach in (0.01, 0.3, 2.0):
        centre = torch.linspace(-5, 5, 201, dtype=torch.float64)
        at = torch.searchsorted(x, centre)
        middle, half = slopes_around(curve, x[at], slope[at], torch.full_like(centre, reach))
        wide = int(reach / float(x[1] - x[0]))
        for k, place in enumerate(at.tolist()):
            seen = slope[max(0, place - wide) : place + wide + 1]
            assert float((seen - middle[k]).abs().max()) <= float(half[k]) + 1e-9


def test_other_functions_are_refused() -> None:
    class Cubed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x**3

    with pytest.raises(NotCarried):
        curve_of(*step_of(Cubed()))
