"""Functions of one number written out in plain operations, and what is said where no bound is found."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.instrument.rules.intervals import Box, Tail
from normgauge.instrument.rules.scalar import Dual, computed, run, slope_bounds, whole_line


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
    reading = ng.gauge(Does(ENDLESS[name]), torch.rand(3, 4).double() + 0.1, search=False)
    assert reading.log_upper == math.inf and reading.unbounded and not reading.unknown


@pytest.mark.parametrize("name", OPEN)
def test_unbounded_is_not_said_without_a_proof(name):
    reading = ng.gauge(Does(OPEN[name]), torch.rand(3, 4).double() + 0.1, search=False)
    assert not reading.unbounded


def test_boxes_and_tails_hold_what_they_enclose():
    """Random programs at random points: values and derivatives lie inside."""
    rng = random.Random(0)
    unary = ["exp", "log", "neg", "abs"]
    for trial in range(300):
        program: list[tuple] = [("number", rng.choice([1.0, 0.5, 2.0, -1.5]))]
        for _ in range(rng.randint(2, 6)):
            a, b = rng.randint(0, len(program)), rng.randint(0, len(program))
            squashed = rng.choice(["tanh", "sigmoid", "erf", "sin", "cos"])
            exponent = rng.choice([2.0, 3.0, 0.5, -1.0, -0.5])
            kinds = [("add", a, b), ("mul", a, b), ("over", a, b), ("power", a, exponent), ("squash", a, squashed)]
            program.append(rng.choice([*kinds, ("clamp", a, -0.5, 2.0), (rng.choice(unary), a)]))
        start, sign = rng.choice([1.0, 4.0]), rng.choice([1, -1])
        t = torch.cat([torch.rand(20) * 3 + start, torch.tensor([10.0, 30.0, 100.0])]).double()
        value, slope = truth(tuple(program), sign * t)
        tail = Tail.variable(start, sign)
        check(run(tuple(program), Dual(tail, tail.number(float(sign)))), value, sign * slope, t, trial, program)
        x = torch.randn(30).double() * 2
        value, slope = truth(tuple(program), x)
        steep, low, high, sure = slope_bounds(tuple(program), x - 0.01, x + 0.01)
        good = value.isfinite() & slope.isfinite()
        slack = 1e-9 * (1 + value.abs())
        assert bool(((value >= low - slack) & (value <= high + slack))[good].all()), (trial, program)
        assert bool((slope.abs() <= steep * (1 + 1e-9) + 1e-9)[good].all()), (trial, program)
        assert bool((sure <= slope.abs() * (1 + 1e-9) + 1e-9)[good].all()), (trial, program)
        if trial % 6:  # slow
            continue
        steepest, least, most = whole_line(tuple(program), -math.inf, math.inf)
        assert bool(((value >= least - slack) & (value <= most + slack))[good].all()), (trial, program)
        assert bool((slope.abs() <= steepest * (1 + 1e-9) + 1e-9)[good].all()), (trial, program)


def test_a_tail_without_a_slope_says_nothing_of_the_middle():
    """Values on the whole line, where the tails alone are flat: (1 + min(x², 4))^(−1/2) is 1 at 0."""
    program = (("number", 1.0), ("power", 0, 2.0), ("clamp", 2, -math.inf, 4.0), ("add", 1, 3), ("power", 4, -0.5))
    _, least, most = whole_line(program, -math.inf, math.inf)
    assert least <= 5**-0.5 and 1 <= most < 1.01


def test_tails_do_not_underflow_to_zero():
    tail = Tail.variable(256.0).exp().inverse()
    far = (tail * tail) * (tail * tail)
    assert far.highest() > 0 and (-far).highest() <= 0
    small = Tail(0.0, 1e-200, 0.0, tail.q * 0, 4.0)
    assert (small * small).hi > 0 and (-small * small).lo < 0
    assert Tail(-math.inf, math.inf, 0.0, tail.q * 9, 256.0).highest() == math.inf


def truth(program: tuple, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    y = computed(x, program)
    if not y.requires_grad:
        return y, torch.zeros_like(y)
    (slope,) = torch.autograd.grad(y.sum(), x, allow_unused=True)
    return y.detach(), torch.zeros_like(y.detach()) if slope is None else slope


def check(got: Dual, value: Tensor, slope: Tensor, t: Tensor, trial: int, program: list) -> None:
    for part, want in ((got.value, value), (got.slope, slope)):
        unit = t.pow(part.p) * (float(part.q) * t).exp()
        good = want.isfinite() & unit.isfinite() & (unit > 1e-250) & value.isfinite()
        slack = 1e-9 * (1 + want.abs())
        fits = (want >= part.lo * unit - slack) & (want <= part.hi * unit + slack)
        assert bool(fits[good].all()), (trial, program, part)


def test_a_box_around_everything_says_nothing():
    box = Box(torch.tensor([-1.0]).double(), torch.tensor([1.0]).double())
    assert float(box.inverse().hi) == math.inf and float(box.power(0.5).hi) == math.inf
