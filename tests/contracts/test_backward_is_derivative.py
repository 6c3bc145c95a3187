"""Backward passes against differences of forward passes, in float64: a slip of torch's is caught or known.

A slope of uᵀf(x + tv) in t is compared with central differences, extrapolated twice; one of three steps must agree, for
a long one crosses kinks and a short one drowns in rounding.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.instrument.rules.activation import TABLE
from normgauge.instrument.testing import OneStep
from normgauge.instrument.trace.true_slopes import TrueSlopes
from tests.cases import CASES

NEAR = 1e-10  # of the size of slopes and values: 5e-9 is torch's smallest known slip
STEPS = (1e-2, 1e-3, 3e-4)
UNEVEN = {  # options that float32 does not hold
    "CELU": [(0.3,), (1.3,)],
    "ELU": [(1.3,)],
    "Softplus": [(0.3,), (7.1,)],
    "LeakyReLU": [(0.1,)],
    "Softshrink": [(0.3,)],
    "RReLU": [(0.1, 0.3)],
    "PReLU": [(1, 0.1)],
    "GELU": [("none",), ("tanh",)],
}


JUMPS = ("activation.jump", "embedding.embedding")


def extrapolated(f: Callable[[float], Tensor], step: float) -> Tensor:
    """f'(0), right to the sixth order in the step."""
    wide, middle, narrow = ((f(h) - f(-h)) / (2 * h) for h in (step, step / 2, step / 4))
    return (64 * narrow - 20 * middle + wide) / 45


def closest(f: Callable[[float], Tensor], slope: Tensor) -> Tensor:
    """How far a slope is from the nearest difference, entry by entry."""
    return torch.stack([(extrapolated(f, step) - slope).abs() for step in STEPS]).amin(0)


def named_functions() -> list[tuple[str, Callable[[Tensor], Tensor]]]:
    found: list[tuple[str, Callable[[Tensor], Tensor]]] = []
    for row in TABLE:
        for name in row.names.split():
            if name[0].isupper():
                made = [getattr(nn, name)(*options).double().eval() for options in UNEVEN.get(name, [()])]
                found += [(f"{name}{k}", module) for k, module in enumerate(made)]
            elif not name.endswith("_") and name != "prelu":
                found.append((name, getattr(torch, name, None) or getattr(F, name)))
    return found


@pytest.mark.parametrize(
    ("name", "function"), named_functions(), ids=lambda given: given if isinstance(given, str) else ""
)
def test_the_slope_of_an_activation_is_that_of_its_values(name: str, function: Callable[[Tensor], Tensor]) -> None:
    x = (torch.linspace(-6, 6, 400, dtype=torch.float64) + 0.00137).requires_grad_(True)
    with TrueSlopes():
        (slope,) = torch.autograd.grad(function(x).sum(), x)
    x = x.detach()
    with torch.no_grad():
        off = closest(lambda h: function(x + h), slope)
    assert float(off.max()) <= NEAR, (name, float(x[off.argmax()]))


@pytest.mark.parametrize("case", [c for c in CASES if c.rule not in JUMPS], ids=str)
def test_the_backward_pass_of_a_step_is_its_derivative(case) -> None:
    generator = torch.Generator().manual_seed(4)
    draw = lambda shape: torch.randn(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    model = OneStep(case.built()).double().train(case.mode == "train")
    x = draw(case.inputs) if isinstance(case.inputs, tuple) else case.inputs + 1e-2 * draw(case.inputs.shape)
    x, v = x.double().requires_grad_(True), draw(x.shape)

    def run(at: Tensor) -> Tensor:
        torch.manual_seed(0)  # the same numbers, where some are drawn
        out = model(at)
        return torch.view_as_real(out) if out.is_complex() else out

    with TrueSlopes():
        out = run(x)
    u = draw(out.shape)
    (pulled,) = torch.autograd.grad((out * u).sum(), x)
    slope, point = (pulled * v).sum(), x.detach()
    with torch.no_grad():
        off = closest(lambda h: (run(point + h * v) * u).sum(), slope)
    size = float(pulled.abs().max() + (out.detach().abs() * u.abs()).sum())
    assert float(off) <= NEAR * max(1.0, size)
