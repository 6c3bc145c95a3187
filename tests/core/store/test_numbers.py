from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from normgauge.core.store.numbers import read_number, rounded_down, rounded_up


@given(st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False, min_value=-1e300, max_value=1e300))
@settings(max_examples=200, deadline=None)
def test_ends_move_outwards_by_less_than_one_unit_of_the_sixth_digit(value):
    low, high = rounded_down(value), rounded_up(value)
    assert low <= value <= high
    assert Fraction(high) - Fraction(low) <= abs(Fraction(value)) / 10**5 * Fraction(1001, 1000)
    assert (rounded_down(low), rounded_up(high)) == (low, high)


def test_what_is_not_finite_stays_and_what_is_no_number_is_none():
    assert (
        rounded_up(math.inf) == math.inf and rounded_down(-math.inf) == -math.inf and math.isnan(rounded_up(math.nan))
    )
    assert [read_number(v) for v in (True, "3", [], {})] == [None] * 4 and math.isnan(read_number("nan") or 0.0)
