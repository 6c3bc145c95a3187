"""Several trainings of one network in words."""

from __future__ import annotations

import math

from normgauge.core.bound import Scope
from normgauge.core.interval import LogInterval
from normgauge.core.spelled import LN10
from normgauge.render.trainings import compared_trainings, spread_words
from tests.made import reading


def test_a_spread_has_the_median_and_both_extremes():
    seen = [LogInterval(math.log(v), math.log(v) + 1e-9) for v in (9.0, 7.36, 8.1234567)]
    assert spread_words(seen) == "8.1235 (7.3600 to 9)"
    assert spread_words(seen[:1]) == "9"


def test_a_spread_of_brackets_holds_them_all():
    rough = [LogInterval(math.log(low), math.log(high)) for low, high in ((10.009, 20.001), (11.0, math.inf), (12, 30))]
    assert spread_words(rough) == "between 11 and 30 (10 to infinite)"


def test_where_there_are_no_medians_the_bounds_are_told():
    everywhere = [reading(scope=Scope.parse("global"), log_upper=log * LN10) for log in (2.0, 3.0, 4.0)]
    told = compared_trainings({"a": everywhere, "b": everywhere[:1]})
    assert "3 trainings of a, 1 training of b" in told and "median sample" not in told
    assert (
        "The slope everywhere is between 17.78 and 1,000 (17.78 to 10,000) for a, between 17.78 and 100 for b." in told
    )


def test_ranges_are_apart_only_where_every_end_is():
    low, high, wide = (
        [reading(log_lower=a * LN10, log_upper=b * LN10) for a, b in ends]
        for ends in (((0.1, 0.2), (0.2, 0.3)), ((0.4, 0.5), (0.6, 0.7)), ((0.25, 0.3), (0.6, 0.7)))
    )
    assert "each training of x lies below each of y" in compared_trainings({"y": high, "x": low})
    assert "the ranges overlap" in compared_trainings({"x": low, "y": wide})
