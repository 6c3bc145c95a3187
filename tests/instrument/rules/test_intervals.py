"""Boxes and tails hold the values and derivatives that they enclose."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
import torch

from normgauge.instrument.rules.intervals import Box, Tail, peak, tail_infimum
from normgauge.instrument.rules.scalar import Dual, run, slope_bounds
from tests.instrument.rules.programs import random_program, truth

TRIALS = 300


def test_tails_hold_random_programs():
    rng = random.Random(0)
    for _ in range(TRIALS):
        program, start, sign = random_program(rng), rng.choice([1.0, 4.0]), rng.choice([1, -1])
        t = torch.cat([torch.rand(20) * 3 + start, torch.tensor([10.0, 30.0, 100.0])]).double()
        value, slope = truth(program, sign * t)
        tail = Tail.variable(start, sign)
        found = run(program, Dual(tail, tail.number(float(sign))))
        for part, want in ((found.value, value), (found.slope, sign * slope)):
            unit = t.pow(part.p) * (float(part.q) * t).exp()
            good = want.isfinite() & unit.isfinite() & (unit > 1e-250) & value.isfinite()
            slack = 1e-9 * (1 + want.abs())
            fits = (want >= part.lo * unit - slack) & (want <= part.hi * unit + slack)
            assert bool(fits[good].all()), (program, part)


def test_boxes_hold_random_programs():
    rng = random.Random(1)
    for _ in range(TRIALS):
        program, x = random_program(rng), torch.randn(30).double() * 2
        value, slope = truth(program, x)
        steep, low, high, sure = slope_bounds(program, x - 0.01, x + 0.01)
        good = value.isfinite() & slope.isfinite()
        slack = 1e-9 * (1 + value.abs())
        assert bool(((value >= low - slack) & (value <= high + slack))[good].all()), program
        assert bool((slope.abs() <= steep * (1 + 1e-9) + 1e-9)[good].all()), program
        assert bool((sure <= slope.abs() * (1 + 1e-9) + 1e-9)[good].all()), program


@pytest.mark.parametrize(("p", "q"), [(0.0, -1), (3.0, -1), (-2.0, -1), (-1.0, 0)])
def test_the_peak_of_a_tail_is_that_of_a_grid(p, q):
    t = torch.linspace(1, 40, 400_001, dtype=torch.float64)
    highest = float((t.pow(p) * (q * t).exp()).max())
    assert highest <= peak(p, Fraction(q), 1.0) <= highest * (1 + 1e-6)
    assert peak(-p, Fraction(-q), 1.0) == math.inf or (p, q) == (0.0, 0)
    assert 1 / highest * (1 - 1e-6) <= tail_infimum(-p, Fraction(-q), 1.0) <= 1 / highest


def test_tails_do_not_underflow_to_zero():
    tail = Tail.variable(256.0).exp().inverse()
    far = (tail * tail) * (tail * tail)
    assert far.highest() > 0 and (-far).highest() <= 0
    small = Tail(0.0, 1e-200, 0.0, tail.q * 0, 4.0)
    assert (small * small).hi > 0 and (-small * small).lo < 0
    assert Tail(-math.inf, math.inf, 0.0, tail.q * 9, 256.0).highest() == math.inf


def test_a_box_around_everything_says_nothing():
    box = Box(torch.tensor([-1.0]).double(), torch.tensor([1.0]).double())
    assert float(box.inverse().hi) == math.inf and float(box.power(0.5).hi) == math.inf
