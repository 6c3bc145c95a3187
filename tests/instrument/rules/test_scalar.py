"""Functions of one number written out in plain operations, and what is said where no bound is found."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.instrument.rules.scalar import whole_line
from tests.instrument.rules.programs import random_program, truth


class Does(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


CENTRES = torch.linspace(-1, 1, 12).double().reshape(1, 3, 4)
GAUSS = math.sqrt(2 * 0.7 / math.e) * math.sqrt(3)


def norm_share(x: Tensor) -> Tensor:
    g = x.norm(dim=1, keepdim=True)
    return x * (g / (g.mean(-1, keepdim=True) + 1e-6))


# the constant on the whole space, None where only a finite bound is asked for
FINITE = {
    "sigmoid": (lambda x: 1 / (1 + torch.exp(-x)), 0.25),
    "softplus": (lambda x: torch.log(1 + torch.exp(x)), 1.0),
    "softplus, log1p": (lambda x: x.exp().log1p(), 1.0),
    "softsign": (lambda x: x / (1 + x.abs()), 1.0),
    "cauchy": (lambda x: x / (1 + x * x), 1.0),
    "cauchy of a sum": (lambda x: (x + x.tanh()) / (1 + (x + x.tanh()).square()), 2.0),
    "lorentz": (lambda x: 1 / (1 + x.pow(2)), 3 * math.sqrt(3) / 8),
    "hyperbola": (lambda x: (x**2 + 0.01).sqrt(), 1.0),
    "wide hyperbola": (lambda x: torch.sqrt(x.square() + 1e4), 1.0),
    "gauss": (lambda x: torch.exp(-x * x / 2), math.exp(-0.5)),
    "tanh": (lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()), 1.0),
    "inverse square root unit": (lambda x: x / torch.sqrt(1 + 3 * x * x), 1.0),
    "log cosh": (lambda x: torch.log(x.exp() + torch.exp(-x)), 1.0),
    "swish of a module": (lambda x: x * nn.Sigmoid()(x), 1.09984),
    "radial": (lambda x: torch.exp(-0.7 * ((x[:, None, :] - CENTRES) ** 2).sum(-1)), GAUSS),
    "radial, norm": (lambda x: torch.exp(-0.7 * (x[:, None, :] - CENTRES).norm(dim=-1).square()), GAUSS),
    "scale norm": (lambda x: 2.5 * x / torch.maximum(x.norm(dim=-1, keepdim=True), torch.tensor(1e-2).double()), 250.0),
    "global response": (lambda x: norm_share(x.reshape(-1, 2, 2)), None),
}


def steepest(model: nn.Module, x: Tensor) -> float:
    rows = torch.autograd.functional.jacobian(lambda v: model(v).flatten(), x).reshape(-1, x.numel())
    return float(torch.linalg.matrix_norm(rows, 2))


@pytest.mark.parametrize("name", FINITE)
def test_a_written_out_function_has_its_constant(name):
    function, constant = FINITE[name]
    torch.manual_seed(1)
    model, x = Does(function), torch.randn(3, 4).double()
    everywhere, ball, point = ng.readings(model, x, ("global", "ball:0.1", "point"), search=False)
    assert str(everywhere.evidence) == "proved"
    if constant is not None:
        assert constant * (1 - 1e-9) <= math.exp(everywhere.log_upper) <= constant * 1.001
    for scale in (1e-3, 0.1, 1.0, 5.0, 50.0):
        assert steepest(model, scale * torch.randn(1, 4).double()) <= math.exp(everywhere.log_upper) * (1 + 1e-9)
    for row in x:
        near = row + 0.099 * nn.functional.normalize(torch.randn(4).double(), dim=0)
        assert steepest(model, near[None]) <= math.exp(ball.log_upper) * (1 + 1e-9)
        assert steepest(model, row[None]) <= math.exp(point.log_upper) * (1 + 1e-9)


ENDLESS = {
    "a power": lambda x: x**3,
    "a square": lambda x: x * x,
    "exp": lambda x: x.exp(),
    "a quotient": lambda x: 1 / x,
    "a root": lambda x: x.sqrt(),
    "rounding": lambda x: x.round(),
    "behind a shift": lambda x: (3 * x.flip(1) + 1).square(),
}
OPEN = {  # finite constants, or none known, that nothing here proves or disproves
    "branch by sign": lambda x: torch.where(x > 0, x, 0.1 * x),
    "bounded squares": lambda x: (x.sin() * 3).log(),
    "two branches": lambda x: x * (1 / (1 + x.flip(1).square())).flip(1).sqrt().flip(1),
    "a product of constants": lambda x: x.relu() * (-x).relu(),
    "reached by nothing": lambda x: 1 / (x.relu() + (-x).relu().flip(1).relu()),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_unbounded_is_said_where_it_is_reached(name):
    reading = ng.gauge(Does(ENDLESS[name]), torch.rand(3, 4).double() + 0.1, scope="global", search=False)
    assert reading.log_upper == math.inf and reading.unbounded and not reading.unknown


@pytest.mark.parametrize("name", OPEN)
def test_unbounded_is_not_said_without_a_proof(name):
    reading = ng.gauge(Does(OPEN[name]), torch.rand(3, 4).double() + 0.1, scope="global", search=False)
    assert not reading.unbounded


def test_a_tail_without_a_slope_says_nothing_of_the_middle():
    """Values on the whole line, where the tails alone are flat: (1 + min(x², 4))^(−1/2) is 1 at 0."""
    program = (("number", 1.0), ("power", 0, 2.0), ("clamp", 2, -math.inf, 4.0), ("add", 1, 3), ("power", 4, -0.5))
    _, least, most = whole_line(program, -math.inf, math.inf)
    assert least <= 5**-0.5 and 1 <= most < 1.01


def test_the_whole_line_holds_random_programs():
    """Values and derivatives of random programs at random points lie inside what is said of the whole line."""
    programs, finite = [random_program(random.Random(seed)) for seed in range(50)], 0
    for seed, program in enumerate(programs):
        x = torch.randn(30, generator=torch.Generator().manual_seed(seed)).double() * 2
        value, slope = truth(program, x)
        good = value.isfinite() & slope.isfinite()
        if not bool(slope[good].any()):  # a constant
            continue
        steepest, least, most = whole_line(program, -math.inf, math.inf)
        finite += math.isfinite(steepest)
        slack = 1e-9 * (1 + value.abs())
        assert bool(((value >= least - slack) & (value <= most + slack))[good].all()), program
        assert bool((slope.abs() <= steepest * (1 + 1e-9) + 1e-9)[good].all()), program
    assert finite > 5
