"""Small plots of a claim's curves."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest

from normgauge.core.claim import Curve
from normgauge.render.theory_plots import curve_plot
from tests.made_claims import (
    CURVE,
    EVEN,
)

SVG = "{http://www.w3.org/2000/svg}"


def drawn(figure: str) -> ElementTree.Element:
    return ElementTree.fromstring(figure[figure.index("<svg") : figure.index("</svg>") + 6])


def test_a_curve_breaks_where_it_is_not_finite_and_names_its_lines():
    root = drawn(curve_plot(CURVE))
    lines = [node.attrib["points"].split() for node in root.iter(f"{SVG}polyline")]
    assert [len(points) for points in lines] == [3, 1, 1]
    xs, ys = zip(*(map(float, point.split(",")) for point in lines[0]), strict=True)
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)  # a decade each
    assert ys[1] - ys[0] == pytest.approx(ys[2] - ys[1], abs=0.2) and ys[0] < ys[2]  # 900 above 9
    label = "Steps by learning rate: steps against learning rate; lines: measured, printed"
    assert root.attrib["aria-label"] == label


def test_a_flat_curve_and_one_with_nothing_to_draw():
    ys = {float(p.split(",")[1]) for p in next(drawn(curve_plot(EVEN)).iter(f"{SVG}polyline")).attrib["points"].split()}
    assert len(ys) == 1
    assert curve_plot(Curve("t", "x", "y", (1.0,), (("a", (math.nan,)),))) == ""
    assert curve_plot(Curve("t", "x", "y", (), ())) == ""
