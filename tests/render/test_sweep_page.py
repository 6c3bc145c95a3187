"""The page of a sweep: charts, heat maps, escaping."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from normgauge.render.svg import NARROW, WIDE
from normgauge.render.sweep import TrialOutcome
from normgauge.render.sweep_page import SweepView, chart, heat_map, setting_places, sweep_page
from tests.render.test_sweep import LR, NORM, made, trials


@pytest.fixture
def outcomes() -> list[TrialOutcome]:
    return trials()


def parsed(drawing: str) -> ElementTree.Element:
    return ElementTree.fromstring(drawing)


def found(root: ElementTree.Element, tag: str) -> list[ElementTree.Element]:
    return root.findall(f".//{{http://www.w3.org/2000/svg}}{tag}")


@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_chart_has_a_dot_a_trial_and_the_line_of_the_means(outcomes, shape):
    root = parsed(chart(outcomes, LR, "test_accuracy", shape))
    dots = [(float(c.get("cx", 0)), float(c.get("cy", 0))) for c in found(root, "circle")]
    assert len(dots) == 12 and len({x for x, _ in dots}) == 3
    assert all(0 < x < shape.width for x, _ in dots)
    (line,) = found(root, "polyline")
    corners = [tuple(map(float, corner.split(","))) for corner in line.get("points", "").split()]
    assert len(corners) == 3
    for x, y in corners:
        heights = [cy for cx, cy in dots if cx == x]
        assert min(heights) < y < max(heights) and y == pytest.approx(sum(heights) / len(heights), abs=0.11)
    steps = [b[0] - a[0] for a, b in pairwise(corners)]
    assert steps[0] == pytest.approx(steps[1], abs=0.2)  # a factor of ten is a factor of ten
    assert "norm &lt;none&gt;, lr 0.1, seed 1: test accuracy 71.0%" in chart(outcomes, LR, "test_accuracy", shape)


def test_random_draws_have_no_line(outcomes):
    assert "polyline" not in chart(outcomes, LR, "test_accuracy", joined=False)


def test_a_chart_of_nothing_is_nothing():
    assert chart([made("a", 1, 0, gap=math.nan), made("b", 1, 0)], LR, "gap") == ""
    assert heat_map([made("a", 1, 0, gap=math.inf)], (NORM, LR), "gap") == ""
    assert chart([made("a", 1, 0, gap=0.0)], LR, "gap") != ""  # one dot, no range at all


def test_axes_place_numbers_by_size_and_names_side_by_side():
    linear, logarithmic = setting_places([1, 2, 4], 0, 100), setting_places([1, 10, 100], 0, 100)
    assert linear["2"] - linear["1"] == pytest.approx((linear["4"] - linear["2"]) / 2)
    assert logarithmic["10"] - logarithmic["1"] == pytest.approx(logarithmic["100"] - logarithmic["10"])
    assert setting_places(["b", "a", True], 0, 90) == {"b": 15, "a": 45, "true": 75}
    assert setting_places([[64, 10], [64, 8, 10]], 0, 100)["64-8-10"] == 75


def test_a_heat_map_has_a_cell_a_pair_and_is_darkest_where_the_measure_is_largest(outcomes):
    root = parsed(heat_map(outcomes, (LR, NORM), "test_accuracy"))
    cells = found(root, "rect")
    depths = [float(cell.get("fill-opacity", 0)) for cell in cells]
    assert len(cells) == 6 and max(depths) == depths[-1] == 0.5 and min(depths) == depths[0] == 0.06
    words = [text.text for text in found(root, "text")]
    assert "50.5%" in words and "70.5%" in words and "batch" in words and "0.01" in words
    assert heat_map([made("a", float(k), 0, gap=1.0) for k in range(20)], (LR, NORM), "gap") == ""


VIEW = SweepView("<b>", (NORM, LR), frozenset(), "test_accuracy", (), ("test_accuracy",), ("10^2.5 & <i>",))


def test_the_page_is_whole_and_escapes_every_name(outcomes):
    failed = TrialOutcome("x", {NORM: "<u>", LR: 1.0}, 3, "failed", {}, 2, 1.0, "<script>alert(1)</script>")
    page = sweep_page([*outcomes, failed, made("a", 1.0, 0, test_accuracy=math.inf)], VIEW)
    assert page.startswith("<!doctype html>") and "default-src 'none'" in page
    body = page.split("<main", 1)[1].rsplit("<script>", 1)[0]
    assert not re.search(r"<(b|u|i|script|none)>", body) and "&lt;script&gt;alert(1)" in body
    assert "10<sup>2.5</sup> &amp; &lt;i&gt;" in body
    assert body.count("<figcaption>") == 3 and body.count("<svg") == 6
    assert "a mean is over seeds and over training.lr" in body and "1 value that is not finite left out" in body
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert "Failed trials" in body and "8 points, 14 trials" in page


@pytest.mark.parametrize(("axes", "figures", "maps"), [((NORM,), 1, 0), ((NORM, LR), 1, 1), ((), 3, 1)])
def test_the_plots_asked_for(outcomes, axes, figures, maps):
    view = SweepView("n", (NORM, LR), frozenset(), "test_accuracy", axes, ("test_accuracy",))
    page = sweep_page(outcomes, view)
    assert page.count("<figcaption>") == figures
    assert page.count(" by network.options.norm and training.lr;") == maps


def test_notes_are_on_the_page_and_draws_have_neither_line_nor_map(outcomes):
    noted = TrialOutcome("z", {NORM: "a", LR: 1.0}, 0, "done", {"test_accuracy": 0.1}, notes=("not gauged: NaN",))
    view = SweepView("n", (NORM, LR), frozenset({LR}), "test_accuracy", (), ("test_accuracy",))
    page = sweep_page([*outcomes, noted], view)
    assert "z: not gauged: NaN" in page and page.count("<figcaption>") == 2 and page.count("<polyline") == 2


def test_a_page_of_nothing(outcomes):
    page = sweep_page([made("a", 1, 0, "new")], VIEW)
    assert "<svg" not in page and "Results" in page
