from __future__ import annotations

import math
from itertools import pairwise

import pytest

from normgauge.render import svg
from normgauge.render.svg import axis


@pytest.mark.parametrize("span", [1e-6, 0.3, 1.0, 7.0, 123.0, 1e5])
@pytest.mark.parametrize("most", [5, 7])
def test_ticks_are_few_round_and_inside(span, most):
    values = svg.round_ticks(-0.4 * span, 0.6 * span, most)
    assert 2 <= len(values) <= most + 1 and 0.0 in values
    assert all(-0.4 * span <= v <= 0.6 * span for v in values)


def test_a_scale_holds_zero_and_every_finite_value_and_puts_infinities_at_its_edges():
    axis = svg.level_axis([2.0, 5.0, math.inf, -math.inf], 300, 100)
    assert axis.knots[0][0] < 0 and axis.knots[-1][0] > 5
    assert axis.at(math.inf) == 100 and axis.at(-math.inf) == 300
    assert 100 < axis.at(5.0) < axis.at(0.0) < 300


@pytest.mark.parametrize("low", [x / 10 for x in range(10)])
@pytest.mark.parametrize("span", [0.15, 0.3, 0.5, 0.7, 1.0, 1.6])
def test_an_axis_of_some_decades_has_three_ticks_or_more(low, span):
    assert 3 <= len(svg.decade_ticks(low, low + span, 8)) <= 9 + (span > 1)


@pytest.mark.parametrize("wanted", [[50, 50, 50], [0, 1, 200], [99, 100, 100], [10, 50, 90]])
def test_labels_are_moved_apart_and_stay_inside(wanted):
    places = svg.spread_places(wanted, 17, 0, 100)
    assert len(places) == len(wanted) and all(after - before >= 17 for before, after in pairwise(places))
    assert places[0] >= 0 and places[-1] <= 100
    assert svg.spread_places([10, 50, 90], 17, 0, 100) == [10, 50, 90]


def test_a_long_text_is_shortened_in_its_middle():
    long = "encoder.layer.11.attention.output.dense"
    shown = svg.fit(long, 120)
    assert svg.text_width(shown) <= 120 and shown.startswith("enc") and shown.endswith("nse") and "…" in shown
    assert svg.fit("short", 120) == "short"


def test_a_legend_wraps_and_says_how_high_it_is():
    entries = [("weight", "weights"), ("line found", "a rather long explanation of a line")]
    one, low = svg.legend(entries, 0, 0, 900)
    two, high = svg.legend(entries, 0, 0, 200)
    assert (low, high) == (20, 40) and len(one) == len(two) == 4


def test_a_tick_in_the_legend_is_upright():
    (tick, _), _ = svg.legend([("tick found", "found")], 0, 0, 900)
    assert 'class="found" x1="6.5" y1="2.0" x2="6.5" y2="16.0"' in tick


def test_exponents_are_raised_and_what_follows_comes_down_again():
    shown = svg.text_line(0, 0, "10^-1.50 to 10^20 & 110^3")
    first = '>10<tspan class="sup" dy="-4">-1.50</tspan><tspan dy="4"> to 10</tspan>'
    assert shown.endswith(f'{first}<tspan class="sup" dy="-4">20</tspan><tspan dy="4"> &amp; 110^3</tspan></text>')


def test_everything_written_is_escaped():
    assert "<b>" not in svg.text_line(0, 0, "<b>") and "<b>" not in svg.drawing((1, 1), "wide", "<b>")


@pytest.mark.parametrize("largest", [1e-300, 1.0, 1e300])
def test_an_axis_of_any_size_has_ticks(largest):
    for values in ((largest,), (largest / 1e5, largest), (0.0, largest / 1e5, largest)):
        along = axis(values, 0.0, 100.0, logarithmic=True)
        assert 1 <= len(list(along.ticks(5))) <= 7
        assert all(0 <= along.at(v) <= 100 for v in values)
    assert axis((0.0, -1.0), 0.0, 100.0, logarithmic=True).logarithmic is False
