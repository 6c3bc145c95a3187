from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normgauge.core.interval import INF, LogInterval
from normgauge.core.rounding import log_add, log_down, log_up

positive = st.floats(min_value=1e-300, max_value=1e300)
logs = st.floats(min_value=-5e3, max_value=5e3)


def exact_log(value: Fraction) -> Decimal:
    """The logarithm to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        return Decimal(value.numerator).ln() - Decimal(value.denominator).ln()


def exact_log_sum(values: list[float]) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return sum((Decimal(v).exp() for v in values), Decimal(0)).ln()


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


@given(st.lists(logs, min_size=1, max_size=40))
def test_log_add_never_falls_below_the_exact_sum(values):
    total = log_add(values)
    exact = exact_log_sum(values)
    assert Decimal(total) >= exact
    assert total - float(exact) <= 1e-14 * (len(values) + 4) + 4 * math.ulp(abs(total))


@given(st.lists(positive, min_size=1, max_size=6), st.integers(1, 5))
def test_powers_and_maxima_enclose(values, exponent):
    intervals = [LogInterval.of(v) for v in values]
    top = LogInterval.maximum(intervals)
    assert top.contains(math.log(max(values)))
    assert Decimal(intervals[0].power(exponent).lo) <= exact_log(Fraction(values[0]) ** exponent)
    assert exact_log(Fraction(values[0]) ** exponent) <= Decimal(intervals[0].power(exponent).hi)


@given(st.lists(positive, min_size=1, max_size=6))
def test_a_sum_of_branches_keeps_no_lower_end(values):
    total = LogInterval.branch_sum(LogInterval.of(v) for v in values)
    assert total.lo == -INF
    assert Decimal(total.hi) >= exact_log(sum((Fraction(v) for v in values), Fraction(0)))


def test_conventions_on_zero_and_infinity():
    zero, infinite, one = LogInterval.of(0.0), LogInterval.of(INF), LogInterval.one()
    assert (zero.lo, zero.hi, zero.width) == (-INF, -INF, 0.0)
    assert (infinite.lo, infinite.hi, infinite.width) == (INF, INF, 0.0)
    assert (zero * infinite).hi == INF
    assert (infinite * one).hi == INF
    assert (zero * one).hi == -INF
    assert LogInterval.nothing_known() == LogInterval(-INF, INF)
    assert log_add([]) == -INF
    assert log_add([-INF, -INF]) == -INF
    assert log_add([0.0, INF]) == INF
    assert log_up(0.0) == log_down(0.0) == -INF


def test_decimal_ends():
    lower, upper = LogInterval.of(1000.0).log10
    assert lower == pytest.approx(3) and upper == pytest.approx(3)


@pytest.mark.parametrize("ends", [(1.0, 0.0), (math.nan, 1.0), (0.0, math.nan)])
def test_an_impossible_interval_is_refused(ends):
    with pytest.raises(ValueError, match="lo <= hi"):
        LogInterval(*ends)
