from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from normgauge.core import rounding
from normgauge.core.rounding import (
    INF,
    STEPS,
    TINY,
    UNIT,
    end_down,
    end_up,
    house_down,
    house_up,
    log_inward,
    log_joined,
    log_outward,
    log_root,
    log_root_below,
    size_down,
    size_up,
)

sizes = st.floats(min_value=1e-290, max_value=1e290)
ends = st.floats(min_value=-1e290, max_value=1e290).filter(lambda v: v == 0 or abs(v) > 1e-290)


def exact_half_log(count: int) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return Decimal(count).ln() / 2


@given(sizes)
def test_a_size_moves_outwards_by_what_its_step_covers(size):
    for up, down, part in ((size_up, size_down, STEPS), (house_up, house_down, rounding.HOUSE)):
        room = Fraction(size) * Fraction(part)
        assert Fraction(up(size)) - Fraction(size) >= room * Fraction(999, 1000)
        assert Fraction(size) - Fraction(down(size)) >= room * Fraction(999, 1000)
    assert STEPS / UNIT > 9000


@given(ends)
def test_an_end_of_either_sign_moves_outwards(end):
    assert Fraction(end_down(end)) <= Fraction(end) <= Fraction(end_up(end))
    assert (end_down(end) < end < end_up(end)) == (end != 0)


@given(st.integers(2, 10**12))
def test_the_root_of_a_count_is_enclosed(count):
    exact = exact_half_log(count)
    assert Decimal(log_root_below(count)) < exact < Decimal(log_root(count))


def test_nothing_and_infinity_stay():
    assert [log_root(n) for n in (0, 1)] == [log_root_below(n) for n in (0, 1)] == [-INF, 0.0]
    assert log_outward(0.0) == log_inward(0.0) == -INF and log_outward(1.0) > 0 > log_inward(1.0)
    assert size_up(INF) == size_down(INF) == end_up(INF) == INF and end_down(-INF) == -INF
    assert size_up(0.0) == house_up(0.0) == 0.0
    assert TINY > 0 and 1 / TINY < INF


def test_tensors_are_rounded_as_floats_are():
    values = [0.0, 1e-3, 1.0, 7.5e8, INF]
    for step in (size_up, size_down, house_up, house_down, end_up, lambda log: log_joined(log, 3)):
        assert step(torch.tensor(values, dtype=torch.float64)).tolist() == [step(v) for v in values]


@pytest.mark.parametrize("terms", [1, 10, 1000])
def test_the_error_of_a_sum_of_products_covers_float64(terms):
    gen = torch.Generator().manual_seed(terms)
    a, b = (torch.randn(200, terms, generator=gen, dtype=torch.float64) for _ in range(2))
    got = (a * b).sum(1)
    for row in range(0, 200, 20):
        products = [Fraction(x) * Fraction(y) for x, y in zip(a[row].tolist(), b[row].tolist(), strict=True)]
        off = abs(Fraction(float(got[row])) - sum(products))
        assert off <= Fraction(rounding.dot_error(terms)) * sum(map(abs, products))
    assert math.isclose(rounding.eigenvalue_error(10), 160 * UNIT)
