"""The rules' answers folded over the graph."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.errors import UnknownOpError
from normgauge.core.spelled import LN10
from normgauge.instrument.measure import gauge, readings
from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.flow import Context, Flow, Gain, Transfer
from normgauge.instrument.trace.step import Step
from tests.instrument.trace.nets import Net, batch


@pytest.mark.parametrize("function", [lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2])), lambda x: x * x.prod()])
def test_one_number_for_all_samples_is_no_crash(function: Callable[[Tensor], Tensor]) -> None:
    for scope in ("point", "ball:0.1", "global"):
        ng.gauge(Net(function), batch(), scope=scope, search=False)


def double_it(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Twice.

    Holds:  here.
    """
    return Transfer((Gain(ctx.log(2.0)),))


def test_unknown_ops_user_rules_and_strict() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.special.i0e(x) + 0.5 * torch.special.erfcx(x.abs())  # steeper than 1.57 nowhere

    model = nn.Sequential(nn.Linear(3, 3), Odd())
    x = torch.rand(2, 3)
    reading = gauge(model, x)
    assert reading.log_upper == math.inf and {f.name for f in reading.unknown} == {"1.special_i0e", "1.special_erfcx"}
    with pytest.raises(UnknownOpError, match=r"special_i0e.*special_erfcx"):
        gauge(model, x, strict=True)
    known = gauge(model, x, rules=REGISTRY.extended({Odd: double_it}), strict=True, search=False)
    assert math.isfinite(known.log_upper) and REGISTRY.lookup(Odd) is None


class Product(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x


def test_products_are_unbounded_globally_and_fine_elsewhere() -> None:
    model, x = Product(), torch.randn(3, 4)
    point, ball, everywhere = readings(model, x, ("point", "ball:0.1", "global"), search=False)
    assert everywhere.log_upper == math.inf and str(everywhere.evidence) == "proved"
    assert everywhere.unbounded and not everywhere.unknown
    assert math.exp(point.log_upper) == pytest.approx(2 * float(x.abs().max()), rel=1e-6)
    assert ball.log_upper > point.log_upper
    gauge(model, x, strict=True, search=False)


@pytest.mark.parametrize("scale", [1e15, 1e-30])
def test_extreme_weights(scale: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(20)))
    with torch.no_grad():
        for layer in model:
            layer.weight *= scale
    reading = gauge(model, torch.randn(2, 6), search=False)
    assert reading.log_upper / LN10 == pytest.approx(20 * math.log10(scale), abs=20)


@pytest.mark.parametrize("scope", ["point", "global"])
def test_diverged_networks_are_infinite_never_finite(scope: str) -> None:
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(12)), nn.LayerNorm(4)).double()
    with torch.no_grad():
        for layer in model[:-1]:
            layer.weight.fill_(1e40)
    reading = gauge(model, torch.ones(2, 4, dtype=torch.float64), scope=scope)
    assert reading.log_upper == math.inf and "diverged" in reading.unknown[0].why
