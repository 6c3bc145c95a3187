from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normgauge.core.interval import INF, LogInterval
from normgauge.core.rounding import log_down, log_up

positive = st.floats(min_value=1e-300, max_value=1e300)


def exact_log(value: Fraction) -> Decimal:
    """The logarithm to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        return Decimal(value.numerator).ln() - Decimal(value.denominator).ln()


@given(positive)
def test_of_encloses_the_exact_logarithm(value):
    interval = LogInterval.of(value)
    assert Decimal(interval.lo) < exact_log(Fraction(value)) < Decimal(interval.hi)
    assert interval.width <= 8 * math.ulp(interval.hi or 1.0)


@given(st.lists(positive, min_size=1, max_size=20))
def test_a_product_encloses_the_exact_product(values):
    interval = LogInterval.one()
    exact = Fraction(1)
    for value in values:
        interval = interval * LogInterval.of(value)
        exact *= Fraction(value)
    assert Decimal(interval.lo) <= exact_log(exact) <= Decimal(interval.hi)


def test_conventions_on_zero_and_infinity():
    zero, infinite, one = LogInterval.of(0.0), LogInterval.of(INF), LogInterval.one()
    assert (zero.lo, zero.hi, zero.width) == (-INF, -INF, 0.0)
    assert (infinite.lo, infinite.hi, infinite.width) == (INF, INF, 0.0)
    assert (zero * infinite).hi == INF
    assert (infinite * one).hi == INF
    assert (zero * one).hi == -INF
    assert LogInterval.nothing_known() == LogInterval(-INF, INF)
    assert log_up(0.0) == log_down(0.0) == -INF


@pytest.mark.parametrize("ends", [(1.0, 0.0), (math.nan, 1.0), (0.0, math.nan)])
def test_an_impossible_interval_is_refused(ends):
    with pytest.raises(ValueError, match="lo <= hi"):
        LogInterval(*ends)
