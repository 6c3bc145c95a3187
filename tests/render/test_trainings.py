"""Several trainings of one network in words."""

from __future__ import annotations

import math

import pytest

from normgauge.core.bound import Evidence
from normgauge.core.interval import LogInterval
from normgauge.core.spelled import LN10
from normgauge.render.trainings import enclosed_slopes, middle_slope, overlap_sentence, slope_lines
from tests.made import reading


def ends(*pairs):
    return [LogInterval(math.log(low), math.log(high)) for low, high in pairs]


def exact(*values):
    return ends(*((value, value) for value in values))


def test_a_spread_has_the_median_and_both_extremes():
    seen = [LogInterval(math.log(v), math.log(v) + 1e-9) for v in (9.0, 7.36, 8.1234567)]
    assert slope_lines(seen) == ["8.1235 (7.3600 to 9)"]
    assert slope_lines(seen[:1]) == ["9"]


def test_what_was_found_and_what_is_at_most_are_told_apart():
    rough = ends((10.009, 20.001), (11.0, math.inf), (12, 30))
    assert slope_lines(rough) == ["found 11 (10 to 12)", "at most 30 (20.01 to infinite)"]
    assert slope_lines(rough[1:2], "no known bound") == ["found 11", "no known bound"]


def test_the_middle_of_bounds_that_are_infinite_both_ways_is_none():
    assert middle_slope([LogInterval(-math.inf, -math.inf), LogInterval(0.0, math.inf)]).hi == math.inf


@pytest.mark.parametrize(
    ("slopes", "said"),
    [
        ({"a": exact(1, 2), "b": exact(3, 4)}, "Each training of a lies below each of b."),
        ({"a": exact(3, 4), "b": exact(1, 2)}, "Each training of b lies below each of a."),
        ({"a": exact(1, 3), "b": exact(2, 4)}, "The ranges overlap."),
        ({"a": exact(1, 3), "b": exact(2)}, ""),
        ({"a": exact(1, 3), "b": exact(2), "c": exact(2, 4)}, "The ranges of a and c overlap."),
        ({"a": exact(1, 2), "b": exact(3, 4), "c": exact(5, 6)}, "No two of the ranges overlap."),
        ({"a": exact(1, 9), "b": exact(3, 4), "c": exact(2, 6)}, "All ranges overlap."),
        (
            {"a": exact(1, 2), "b": exact(3, 5), "c": exact(4, 6)},
            "The ranges of b and c overlap. No other two overlap.",
        ),
    ],
)
def test_which_ranges_overlap_is_said_of_any_number_of_labels(slopes, said):
    assert overlap_sentence(slopes) == said


def test_brackets_that_overlap_leave_open_whether_the_slopes_do():
    low, high = ends((1, 5), (2, 6)), ends((4, 8), (5, 9))
    assert overlap_sentence({"a": low, "b": high}) == "Whether the ranges overlap is open."
    assert overlap_sentence({"a": ends((1, 2), (8.5, 9)), "b": high}) == "The ranges overlap."
    three = {"a": low, "b": high, "c": exact(20, 30)}
    assert overlap_sentence(three) == "Whether the ranges of a and b overlap is open. No other two overlap."


def test_a_bound_that_is_only_estimated_encloses_nothing():
    sure, rough = (reading(evidence=kind, log_upper=2 * LN10) for kind in (Evidence.PROVED, Evidence.ESTIMATED))
    assert [e.hi for e in enclosed_slopes([sure, rough])] == [2 * LN10, math.inf]
