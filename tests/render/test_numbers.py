"""Numbers as people read them, rounded outwards where they are bounds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normgauge.core.bound import Scope
from normgauge.core.spelled import LN10
from normgauge.render.numbers import (
    DOWN,
    EXACT,
    NEAR,
    UP,
    enclosure,
    format_decades,
    format_factor,
    log_enclosure,
    scope_words,
    sigma_range,
)


@pytest.mark.parametrize(("log10", "in_full"), [(2, "100"), (-2, "0.01"), (7, "10^7.00"), (-9, "10^-9.00")])
def test_factors_are_readable(log10, in_full):
    assert format_factor(log10 * LN10) == in_full


def test_edges_of_the_spelling():
    assert format_decades(-1e-9) == "0.00"
    assert format_decades(-math.inf) == "-inf"
    assert format_factor(math.inf) == "infinite"
    assert sigma_range({"rms": 1.0}) == "·"
    assert scope_words(Scope.parse("global")) == "everywhere"


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
@settings(max_examples=60, deadline=None)
def test_ends_in_few_digits_still_enclose(low, width):
    for spell in (enclosure, log_enclosure):
        first, *rest = spell(low, low + width).split(" to ")
        assert float(first) <= low and low + width <= float((rest or [first])[0])


def test_ends_that_are_absent_or_not_finite():
    assert enclosure(None, None) == "·" and enclosure(1.0, math.inf) == "1 to inf" and enclosure(1.5, None) == "≥ 1.5"
    assert log_enclosure(-math.inf, None) == "≥ -inf" and log_enclosure(math.nan, 2.0) == "nan to 2.00"


@given(st.floats(-6.9, 13.8))
@settings(max_examples=60, deadline=None)
def test_a_factor_rounded_one_way_stays_within_a_thousandth(log):
    for way, sign in ((UP, 1), (DOWN, -1)):
        moved = sign * (float(format_factor(log, way).replace(",", "")) / math.exp(log) - 1)
        assert -1.01 * EXACT[way] <= moved <= NEAR * (1 + 1e-9)
        moved = sign * (float(format_decades(log, way=way)) * LN10 - log)
        assert -1.01 * EXACT[way] <= moved <= NEAR * (1 + 1e-9)


def test_an_identity_is_shown_as_one():
    assert format_factor(1.000006e-9, UP) == "1" and format_decades(1.000006e-9, way=UP) == "0.00"
