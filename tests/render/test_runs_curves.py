"""The upright axis of a curve, and what is drawn beside the curve itself."""

from __future__ import annotations

import math
import re

import pytest

from normgauge.render.runs_curves import DOTTED, STRIP, TOP, Plot, RunCurve, plot_figure, upright

WIDE = re.compile(r'<svg[^>]* class="fig wide".*?</svg>')


def drawn(pairs: list[tuple[int, float]], decades: bool = True) -> str:
    text = plot_figure(Plot("Loss", "loss", [RunCurve("a", 0, pairs)], (1, 100), decades=decades))
    return WIDE.search(text)[0]


@pytest.mark.parametrize(
    ("values", "allowed", "logarithmic"),
    [
        ([1.0, 100.0], True, False),
        ([1.0, 101.0], True, True),
        ([1.0, 101.0], False, False),
        ([0.0, 1.0, 101.0], True, True),
        ([-1.0, 1.0, 101.0], True, False),
        ([1.0, math.inf, math.nan], True, False),
        ([], True, False),
    ],
    ids=["near", "wide", "not asked", "zero", "negative", "not finite", "none"],
)
def test_the_axis_is_logarithmic_where_positive_values_span_more_than_a_hundred(values, allowed, logarithmic):
    assert upright(values, 200.0, 0.0, allowed).logarithmic == logarithmic


def test_decades_are_evenly_apart_and_zero_is_at_the_bottom():
    up = upright([0.0, 0.01, 10.0], 200.0, 0.0, True)
    assert up.at(0.01) - up.at(0.1) == pytest.approx(up.at(1.0) - up.at(10.0)) and up.at(0.0) == up.start == 200.0
    assert [words for _, words in up.ticks(6)] == ["0", "0.01", "0.1", "1", "10"]
    assert [words for _, words in upright([0.0, 1.0], 200.0, 0.0, True).ticks(5)][:2] == ["0", "0.5"]


def test_a_logarithmic_axis_is_said():
    pairs = [(i, 10.0 ** -(i % 7)) for i in range(1, 101)]
    assert ">loss, logarithmic</text>" in drawn(pairs) and ">loss</text>" in drawn(pairs, decades=False)


def test_marks_of_what_is_not_finite_lie_above_the_curve():
    text = drawn([(i, math.nan if i in (50, 99) else 1.0 + i) for i in range(1, 101)])
    points = [p for line in re.findall(r'<polyline[^>]* points="([^"]*)"', text) for p in line.split()]
    highest = min(float(point.split(",")[1]) for point in points)
    arrows = [p for line in re.findall(r'"alarmed" points="([^"]*)"', text) for p in line.split()]
    assert len(arrows) == 6 and max(float(point.split(",")[1]) for point in arrows) < TOP + STRIP < highest
    assert text.count(">not finite</text>") == 1


def test_words_at_the_right_edge_stand_left_of_their_mark():
    assert 'text-anchor="end">not finite<' in drawn([(1, 1.0), (2, 2.0), (100, math.inf)])


@pytest.mark.parametrize(("size", "dots"), [(DOTTED - 1, DOTTED - 1), (DOTTED, 0)], ids=["few", "many"])
def test_few_points_are_marked(size, dots):
    assert drawn([(i, 1.0 + i) for i in range(1, size + 1)]).count("<circle") == dots
