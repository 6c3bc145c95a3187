"""A slope above a bound takes the bound back; rounding does not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from normgauge.core.bound import Evidence, Scope
from normgauge.core.refute import ROUNDING, can_be_followed, contradictions, judged_reading
from normgauge.core.spelled import LN10
from tests.made import layer, reading


def test_a_slope_below_changes_nothing():
    assert judged_reading(reading()) == reading() and list(contradictions(reading())) == []


def test_rounding_is_cut_down_to_the_bound_and_noted():
    close = reading(log_lower=2 * LN10 + ROUNDING / 2)
    judged = judged_reading(close)
    assert judged.log_lower == judged.log_upper == close.log_upper and judged.evidence is Evidence.PROVED
    assert judged.notes[-1] == "the slope found exceeded the bound by rounding (5e-05) and was cut down to it"


def test_a_larger_slope_refutes_the_total_and_keeps_what_was_there():
    judged = judged_reading(reading(log_lower=2 * LN10 + 2 * ROUNDING, displacement=1.0))
    assert judged.evidence is Evidence.REFUTED and judged.log_refuted == 2 * LN10
    upper = (judged.log_upper, judged.log_folded, judged.displacement, judged.samples[0]["log10_upper"])
    assert upper == (math.inf,) * 4 and set(judged.loss.values()) == {math.inf}
    assert judged.samples[0]["log10_refuted"] == 2.0 and judged_reading(judged) == judged


def test_one_sample_is_enough_and_one_without_a_bound_is_not():
    row = {"index": 7, "log10_lower": 2.5, "log10_upper": 2.0}
    (found,) = contradictions(reading(samples=(row, {"index": 8, "log10_lower": 9.0, "log10_upper": None})))
    assert found.where == "sample 7" and found.slope == pytest.approx(2.5 * LN10)


def test_a_direction_is_held_against_a_layer_where_its_way_lies_in_the_scope():
    layers = (layer("f.0", "Linear", 1.0, 0, log_reached=1.5 * LN10),)
    ball = reading(layers=layers, scope=Scope.parse("ball:0.1"), precision="float64")
    assert [found.where for found in contradictions(ball)] == ["the output of f.0"]
    for other in (
        replace(ball, scope=Scope.parse("point")), replace(ball, precision="float32"),
        replace(ball, evidence=Evidence.UNKNOWN), replace(ball, path_dependent=True),
    ):  # fmt: skip
        assert not can_be_followed(other) and list(contradictions(other)) == []
