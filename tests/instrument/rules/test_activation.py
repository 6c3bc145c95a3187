from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normgauge import gauge
from normgauge.instrument.rules.activation import DIGITS, GELU, GELU_TANH, TABLE, activation_of
from normgauge.instrument.rules.registry import spellings
from normgauge.instrument.trace.step import Step

GRID = torch.cat([torch.linspace(-45, 45, 90_001), torch.linspace(-4, 4, 80_001)]).double()
OPTIONS = {
    "PReLU prelu": {"init": 2.5},
    "LeakyReLU leaky_relu leaky_relu_": {"negative_slope": -2.0},
    "ELU elu elu_": {"alpha": 1.7},
}


def built(row):
    """A module or a function of the row's, with options that decide where it has some."""
    target = spellings(*row.names.split())[0]
    if row is GELU_TANH:
        return nn.GELU("tanh")
    return target(**OPTIONS.get(target.__name__, {})).double().eval() if isinstance(target, type) else target


def step_of(made):
    module = made if isinstance(made, nn.Module) else None
    return Step(0, type(made) if module is not None else made, module, "", (), {}, ())


def slopes(made, x):
    x = x.detach().requires_grad_(True)
    (slope,) = torch.autograd.grad(made(x).sum(), x)
    return slope.abs()


@pytest.mark.parametrize("row", [*TABLE, GELU_TANH], ids=lambda row: row.names.split()[0] + row.text[:4])
def test_a_row_of_the_table_is_true(row):
    made = built(row)
    step = step_of(made)
    assert activation_of(step) is row and row.holds(step)
    constant, _ = row.steepest(step)
    steepest = float(slopes(made, GRID).max())
    assert steepest <= constant
    reached = float(slopes(made, torch.tensor(row.attained, dtype=torch.float64)).max())
    assert reached >= constant * math.exp(-DIGITS), "the table says where it is attained"
    values = made(GRID).detach()
    assert row.span[0] <= float(values.min()) and float(values.max()) <= row.span[1]
    at_zero = float(made(torch.zeros(1, dtype=torch.float64)).detach().abs())
    assert math.isclose(row.start(step), at_zero, abs_tol=1e-7)


@pytest.mark.parametrize("row", [*TABLE, GELU_TANH], ids=lambda row: row.names.split()[0] + row.text[:4])
def test_slopes_between_any_two_points_lie_in_the_range(row):
    made = built(row)
    low, high = row.slope_range(step_of(made))
    order = torch.randperm(len(GRID), generator=torch.Generator().manual_seed(0))
    values = made(GRID).detach()
    for other in (torch.arange(len(GRID)).roll(1), order):
        gap = GRID - GRID[other]
        far = gap.abs() > 1e-4
        secants = ((values - values[other]) / gap)[far]
        assert low - 1e-9 <= float(secants.min()) and float(secants.max()) <= high + 1e-9
    x = GRID.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(made(x).sum(), x)
    assert low <= float(slope.min()) and float(slope.max()) <= high + 1e-9
    if "RReLU" not in row.names:  # which takes the mean of its two slopes in eval mode
        assert float(slope.min()) <= low + 1e-3 and high - 1e-3 <= float(slope.max()), "a range wider than it need be"


def test_options_decide_the_constant():
    cases = {
        nn.LeakyReLU(3.0): 3.0,
        nn.ELU(-2.5): 2.5,
        nn.RReLU(0.5, 4.0): 4.0,
        nn.PReLU(3, init=0.1): 1.0,
        nn.GELU(): GELU.constant,
    }
    for made, constant in cases.items():
        assert activation_of(step_of(made)).steepest(step_of(made))[0] == constant
    for made in (nn.CELU(-1.0), nn.Softplus(-1.0), nn.Softplus(threshold=2)):
        assert not activation_of(step_of(made)).holds(step_of(made))


def test_a_slope_is_taken_as_it_is_given():
    reading = gauge(nn.Sequential(nn.ELU(1.3)), torch.randn(2, 3), scope="global", search=False)
    assert reading.layers[0].gain.hi >= math.log(1.3)
    assert reading.layers[0].worked == "sup|φ'| of ELU = max(1, |α|) = max(1, 1.3) = 1.3"


def test_every_activation_of_torch_has_a_row_or_another_rule():
    named = {name for row in TABLE for name in row.names.split()}
    others = {"Hardtanh", "Hardshrink", "Threshold", "GLU", "MultiheadAttention"}
    softmaxes = {"Softmax", "Softmax2d", "Softmin", "LogSoftmax"}
    listed = {name for name in nn.modules.activation.__all__ if name not in others | softmaxes}
    assert listed <= named, listed - named
    assert F.logsigmoid in spellings("logsigmoid")
