from __future__ import annotations

import math
from dataclasses import replace

import pytest

from normgauge.core.interval import LogInterval
from normgauge.core.spelled import LN10
from normgauge.render.levels import bars, layer_product
from tests.made import layer, reading
from tests.render.networks import deep, endless, residual


def levels(made, most=100):
    return [(round(bar.start, 6), round(bar.end, 6)) for bar in bars(made, most)]


def test_a_bar_starts_at_the_largest_level_of_its_inputs():
    assert levels(residual()) == [(0, 1), (1, 0.4), (0.4, 2), (2, 2.1), (2.1, 1.8)]


def test_without_a_graph_the_bars_stack():
    assert levels(residual(proof=None)) == [(0, 1), (1, 0.4), (0.4, 2), (2, 2.1), (2.1, 1.8)]
    plain = reading(layers=tuple(layer(f"n{i}", "Linear", 0.5, i, log_cumulative=None) for i in range(3)))
    assert levels(plain) == [(0, 0.5), (0.5, 1), (1, 1.5)]


def test_a_skip_that_is_larger_than_its_branch_is_where_the_sum_starts():
    made = residual()
    layers = list(made.layers)
    layers[2] = replace(layers[2], log_cumulative=0.1 * LN10)
    assert levels(replace(made, layers=tuple(layers)))[3] == (1, 2.1)


def test_an_infinite_gain_is_left_out_of_what_follows():
    assert levels(endless()) == [(0, 1), (1, math.inf), (1, 2.6), (2.6, 2.6), (2.6, 2.3)]
    assert layer_product(endless()) == math.inf


def test_tones_follow_what_a_layer_is():
    assert [bar.tone for bar in bars(residual(), 100)] == ["weight", "norm", "weight", "other", "weight"]
    assert bars(endless(), 100)[1].tone == "open"


def test_many_layers_share_bars_that_span_all_their_levels():
    shared = bars(deep(1000), 240)
    assert len(shared) == 200 and all(len(bar.records) == 5 for bar in shared)
    single = bars(deep(1000), 1000)
    assert shared[3].start == min(bar.start for bar in single[15:20]) and shared[3].first == 15
    assert shared[3].end == max(bar.end for bar in single[15:20])


def test_the_product_is_the_level_at_the_output():
    assert layer_product(residual()) == pytest.approx(1.8 * LN10)
    assert layer_product(residual(proof=None)) == pytest.approx(1.8 * LN10)
    assert layer_product(reading(layers=())) is None


def test_a_layer_the_graph_does_not_know_still_gets_a_bar():
    extra = layer("stray", "Linear", 0.5, 9, log_cumulative=None, gain=LogInterval(0.0, LN10))
    made = residual()
    assert levels(replace(made, layers=(*made.layers, extra)))[-1] == (0, 1)
