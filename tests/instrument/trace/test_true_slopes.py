"""Slopes that torch's backward pass misses by 10⁻⁸, in networks that cancel all but them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Evidence
from normgauge.instrument.trace.true_slopes import TrueSlopes

STEEP = 1e8


class Cancelled(nn.Module):
    """k (φ(x) − c x), beside an exponential of no weight where the proof shall not follow it."""

    def __init__(self, act: nn.Module, slope: float, beside: bool) -> None:
        super().__init__()
        self.act, self.slope, self.beside = act, slope, beside

    def forward(self, x: Tensor) -> Tensor:
        out = STEEP * self.act(x) - STEEP * self.slope * x
        return out + 0.0 * x.exp() if self.beside else out


def torch_slope(act: nn.Module, x: Tensor) -> float:
    leaf = x.clone().requires_grad_(True)
    return float(torch.autograd.grad(act(leaf).sum(), leaf)[0])


HARD, SOFT, SHARP = (
    (nn.Hardsigmoid(), 1.0, 1 / 6),
    (nn.CELU(1.3), -0.7, math.exp(-0.7 / 1.3)),
    (nn.CELU(1e-3), 0.0, 1.0),
)


@pytest.mark.parametrize(
    ("act", "at", "truth", "beside"),
    [(*HARD, False), (*HARD, True), (*SOFT, False), (*SOFT, True), (*SHARP, False)],  # too sharp for differences
)
def test_a_bound_holds_the_slope_that_the_values_have(act: nn.Module, at: float, truth: float, beside: bool) -> None:
    x = torch.full((1, 1), at, dtype=torch.float64)
    known = torch_slope(act, x)
    model = Cancelled(act, known, beside)
    missed = abs(STEEP * truth - STEEP * known)
    assert missed > 0.1
    for scope in ("point",) if beside else ("point", "ball:1e-9"):
        reading = ng.gauge(model, x, scope=scope, search=False)
        assert reading.evidence is (Evidence.COMPUTED if beside else Evidence.PROVED)
        assert math.exp(reading.log_upper) >= missed * (1 - 1e-6)
        assert math.exp(reading.log_lower) <= math.exp(reading.log_upper)
        if scope == "point":
            assert math.exp(reading.log_upper) == pytest.approx(missed, rel=1e-3)


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "module": nn.CELU(0.3),
    "functional": lambda x: F.celu(x, alpha=0.3),
    "written over": lambda x: F.celu(x * 1.0, 0.3, True),
    "written over by torch": lambda x: torch.celu_(x * 1.0, 0.3),
    "hard module": nn.Hardsigmoid(),
    "hard functional": F.hardsigmoid,
    "hard written over": lambda x: F.hardsigmoid(x * 1.0, inplace=True),
    "hard module written over": lambda x: nn.Hardsigmoid(inplace=True)(x * 1.0),
}


@pytest.mark.parametrize("way", WAYS)
def test_values_stay_and_slopes_are_exact_in_every_spelling(way: str) -> None:
    x = torch.linspace(-5, 5, 101, dtype=torch.float64, requires_grad=True)
    with TrueSlopes():
        out = WAYS[way](x)
        (slope,) = torch.autograd.grad(out.sum(), x)
    x = x.detach()
    hard = (x.abs() < 3).double() / 6
    want = hard if way.startswith("hard") else (x.clamp(max=0.0) / 0.3).exp()
    assert torch.equal(out, WAYS[way](x))
    assert torch.allclose(slope, want, rtol=1e-14, atol=0.0)


def test_single_precision_is_left_as_it_is() -> None:
    x = torch.linspace(-1, 1, 9, requires_grad=True)
    with TrueSlopes():
        inside = F.celu(x, 0.3)
    assert inside.grad_fn is not None and inside.grad_fn.name() == F.celu(x, 0.3).grad_fn.name()
