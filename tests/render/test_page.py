from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from normgauge.core.bound import Scope
from normgauge.core.interval import LogInterval
from normgauge.core.spelled import LN10
from normgauge.errors import ReadingError
from normgauge.render.page import report
from normgauge.render.svg import waterfall
from tests.made import layer, reading

NASTY = "<script>alert(1)</script>&\"'"
VOID = {"meta", "line", "rect", "polyline"}


class Balance(HTMLParser):
    """Checks that every tag is closed in order and remembers the tags seen."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def parsed(page: str) -> Balance:
    balance = Balance()
    balance.feed(page)
    balance.close()
    assert balance.open == []
    return balance


def test_a_page_says_the_verdict_first_and_holds_tables_and_a_picture(tmp_path):
    path = report(reading(), tmp_path / "a.html")
    page = path.read_text(encoding="utf-8")
    assert parsed(page).seen >= {"table", "svg", "details", "style"}
    assert page.index("at most 100 times as much") < page.index("<table>") < page.index("<svg")
    assert "gauge-dependent" in page


def test_a_page_needs_no_network_and_runs_no_script(tmp_path):
    page = report([reading(), reading()], tmp_path / "a.html").read_text(encoding="utf-8")
    assert "script" not in parsed(page).seen
    assert not re.search(r"https?:|src=|@import|url\(", page)


def test_every_name_is_escaped(tmp_path):
    made = reading(
        model=NASTY, notes=(NASTY,), layers=(layer(NASTY, NASTY, 1.0, 0, note=NASTY),), published={NASTY: 1.0}
    )
    page = report(made, tmp_path / "a.html", title=NASTY, lead=[NASTY]).read_text(encoding="utf-8")
    assert "<script" not in page
    assert "script" not in parsed(page).seen
    assert "&lt;script&gt;" in page


def test_several_readings_are_compared_under_their_labels(tmp_path):
    both = [reading(), reading(scope=Scope.parse("global"), log_upper=math.inf)]
    page = report(both, tmp_path / "a.html", labels=["before", "after"]).read_text(encoding="utf-8")
    assert "<h2>before</h2>" in page and "<h2>after</h2>" in page
    assert page.count("<svg") == 2


def test_nothing_to_show_is_refused(tmp_path):
    with pytest.raises(ReadingError, match="at least one reading"):
        report([], tmp_path / "a.html")
    with pytest.raises(ReadingError, match="one label for each of 1 readings, got 2"):
        report(reading(), tmp_path / "a.html", labels=["a", "b"])


def bars(made) -> list[ElementTree.Element]:
    return [node for node in ElementTree.fromstring(waterfall(made)) if node.tag == "rect"]


def test_the_waterfall_is_xml_with_a_bar_a_layer_and_the_folded_line():
    drawn = ElementTree.fromstring(waterfall(reading()))
    assert [bar.get("class") for bar in bars(reading())] == ["weight", "norm", "weight"]
    assert len(next(n for n in drawn if n.tag == "polyline").get("points", "").split()) == 3


def test_bars_stack_and_their_heights_are_the_gains():
    heights = [float(bar.get("height", "0")) for bar in bars(reading())]
    assert heights[1] / heights[0] == pytest.approx(0.5, rel=0.02)
    assert heights[2] / heights[0] == pytest.approx(0.75, rel=0.02)


def test_an_infinite_gain_reaches_the_edge_and_breaks_nothing():
    layers = list(reading().layers)
    layers[0] = replace(layers[0], gain=LogInterval(-math.inf, math.inf), log_cumulative=math.inf)
    first = bars(reading(layers=tuple(layers)))[0]
    assert first.get("class") == "open" and float(first.get("y", "nan")) == 14.0


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_the_axis_fits_any_scale(scale):
    layers = tuple(layer(f"n{i}", "Linear", scale * (i + 1), i, log_cumulative=scale * i * LN10) for i in range(3))
    ticks = [n for n in ElementTree.fromstring(waterfall(reading(layers=layers))) if n.tag == "line"]
    assert 2 <= len(ticks) <= 10


def test_no_layers_no_picture():
    assert waterfall(reading(layers=())) == ""
