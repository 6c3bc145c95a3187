"""Levels, medians and relative updates, against their definitions."""

from __future__ import annotations

import math

import pytest

from normgauge.monitor.signs.sign import Level, Place, median, relative_updates
from normgauge.monitor.thresholds import MEMORY, SETTLED
from tests.monitor.readings import PLACES, reading


def test_a_level_is_the_geometric_mean_and_forgets():
    level = Level()
    for value in (1.0, 10.0, 100.0, math.nan, math.inf, 0.0, None):
        level.see(value)
    assert level.value == pytest.approx(10.0) and level.count == 3
    for _ in range(20 * MEMORY):
        level.see(7.0)
    assert level.value == pytest.approx(7.0)


def test_nothing_is_compared_before_a_level_is_settled():
    level = Level()
    for _ in range(SETTLED):
        assert level.factor(8.0) == 1.0
        level.see(2.0)
    assert level.factor(8.0) == pytest.approx(4.0)
    assert level.factor(None) == level.factor(math.nan) == 1.0


def test_a_median_is_the_lower_middle():
    assert (median([3.0, 1.0, 2.0]), median([4.0, 1.0, 3.0, 2.0]), median([])) == (2.0, 2.0, None)


def test_updates_are_relative_to_the_weights_and_of_maps_alone():
    changed = {0: {"update": 1.2}, 2: {"update": math.inf}, 4: {"frobenius": 0.0}}
    assert relative_updates(reading(1, changed=changed), PLACES) == pytest.approx([0.5, 0.02 / 2.4])
    assert relative_updates(reading(1), [Place("n", "norm")]) == []
