"""The waterfall as a drawing: bars, levels, names and what has no end."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from normgauge.core.bound import Scope
from normgauge.core.spelled import LN10
from normgauge.render.svg import NARROW, WIDE
from normgauge.render.waterfall import waterfall
from tests.made import layer, reading
from tests.render.drawings import nodes, words
from tests.render.networks import deep, endless, residual


@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=lambda shape: shape.name)
def test_the_waterfall_has_a_bar_a_layer_and_says_its_levels(shape):
    drawing = waterfall(residual(), shape, "k-")
    assert [node.get("data-row") for node in nodes(drawing, "g", "bar")] == [f"k-{i}" for i in range(5)]
    assert [len(nodes(drawing, "rect", kind)) for kind in ("weight", "norm", "other")] == [4, 2, 2]  # one in the key
    told = " ".join(words(drawing))
    for level in ("layer by layer", "1.80", "balanced", "1.60", "found", "1.25"):
        assert level in told
    assert len(nodes(drawing, "polyline", "reached")[0].get("points", "").split()) == 5


def test_bars_are_as_high_as_their_gains():
    tall = [float(n.get("height", "0")) for n in nodes(waterfall(residual()), "rect", "weight")]
    assert tall[0] / tall[1] == pytest.approx(1.0 / 1.6, rel=0.02)


def test_the_shading_ends_at_the_two_bounds():
    drawing = waterfall(residual())
    truth, floor = nodes(drawing, "rect", "truth")[0], nodes(drawing, "rect", "floor")[0]
    lines = {kind: float(nodes(drawing, "line", kind)[0].get("y1", "0")) for kind in ("balanced", "found")}
    assert float(truth.get("y", "0")) == lines["balanced"]
    assert float(truth.get("y", "0")) + float(truth.get("height", "0")) == pytest.approx(lines["found"], abs=0.2)
    assert float(floor.get("y", "0")) == lines["found"]


def test_infinite_gains_are_marked_and_named_in_the_key():
    drawing = waterfall(endless())
    assert len(nodes(drawing, "polygon", "open")) == 1
    assert "no finite gain, left out of what follows" in words(drawing)
    assert "no finite gain, left out of what follows" not in words(waterfall(residual()))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_the_axis_fits_any_scale(scale):
    layers = tuple(layer(f"n{i}", "Linear", scale * (i + 1), i, log_cumulative=scale * i * LN10) for i in range(3))
    drawing = waterfall(reading(layers=layers, log_upper=scale, log_lower=-math.inf))
    assert 2 <= len(nodes(drawing, "line", "grid")) <= 10
    assert nodes(drawing, "rect", "floor") == []


def test_no_layers_no_waterfall():
    assert waterfall(reading(layers=())) == ""


def test_a_thousand_layers_share_bars_and_stay_small():
    assert len(nodes(waterfall(deep(1000)), "g", "bar")) == 200
    assert len(nodes(waterfall(deep(1000), NARROW), "g", "bar")) == 77
    assert all(len(waterfall(deep(1000), shape)) < 100_000 for shape in (WIDE, NARROW))


def test_layers_are_named_where_there_is_room():
    assert {"stem Linear", "add", "block"} <= set(words(waterfall(residual())))
    assert {"blocks.0", "blocks.1", "blocks.9"} <= set(words(waterfall(deep(40))))


@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=lambda shape: shape.name)
def test_the_first_and_the_last_layer_are_named_where_no_other_is(shape):
    names = words(waterfall(deep(1000), shape))
    assert {"blocks.0", "blocks.249"} <= set(names) and "blocks.1" not in names
    layers = tuple(layer(f"stage{i}", "Linear", 0.1, i, log_cumulative=0.1) for i in range(15))
    assert {"stage0", "stage14"} <= set(words(waterfall(reading(layers=layers), NARROW)))
    alone = (layer("a" * 300, "Linear", 0.1, 0, log_cumulative=0.1),)
    assert [w for w in words(waterfall(reading(layers=alone), shape)) if w.startswith("aa")] != []


def test_no_finite_bound_is_an_arrow_and_not_a_line():
    for shape in (WIDE, NARROW):
        drawing = waterfall(endless(), shape)
        assert nodes(drawing, "line", "balanced") == []
        assert len(nodes(drawing, "polygon", "endless")) == len(nodes(drawing, "line", "endless")) == 1
        assert "the truth lies here" not in words(drawing)
        assert "the truth lies here or above: no finite bound" in words(drawing)
    assert "no finite bound" in words(waterfall(endless())) and "∞" not in waterfall(endless())
    assert nodes(waterfall(residual()), "polygon", "endless") == []


def test_levels_are_rounded_outwards():
    drawing = waterfall(reading(log_upper=1.50198 * LN10, log_balanced=1.50198 * LN10, log_lower=1.33854 * LN10))
    assert "balanced 1.502" in words(drawing) and "found 1.3385" in words(drawing)


@pytest.mark.parametrize("scope", ["point", "ball:0.1", "global"])
def test_the_line_says_which_direction_was_followed(scope):
    told = words(waterfall(replace(residual(), scope=Scope.parse(scope))))
    away = "what the steepest direction at the sample where the search began did"
    assert ("what the steepest direction found did" in told) == (scope == "point") and (away in told) != (
        scope == "point"
    )
