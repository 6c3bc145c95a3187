"""The page of claims and its small plots, as text; how it looks and behaves is tested in a browser."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from normgauge.core.claim import Curve, Ledger, Verdict
from normgauge.render.svg import axis
from normgauge.render.theory_page import theory_page
from normgauge.render.theory_plots import curve_plot
from tests.made_claims import (
    ALL,
    ATTACK,
    BROKEN,
    CURVE,
    EVEN,
    FAILED,
    HOLDS,
    READ,
    WRONG,
    hostile,
    other,
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


@pytest.mark.parametrize("largest", [1e-300, 1.0, 1e300])
def test_an_axis_of_any_size_has_ticks(largest):
    for values in ((largest,), (largest / 1e5, largest), (0.0, largest / 1e5, largest)):
        along = axis(values, 0.0, 100.0, logarithmic=True)
        assert 1 <= len(list(along.ticks(5))) <= 7
        assert all(0 <= along.at(v) <= 100 for v in values)
    assert axis((0.0, -1.0), 0.0, 100.0, logarithmic=True).logarithmic is False


def test_the_page_begins_with_the_counts_and_the_errors_and_holds_everything():
    page = theory_page(ALL)
    body = page[page.index("<main") :]
    places = ("Of 8 published claims", "tally", "1 independent error</h2>", "Survives: the upper", 'id="claims"')
    found = [body.index(words) for words in places]
    assert found == sorted(found)
    for outcome in ALL.outcomes:
        assert f'id="{outcome.claim.id}"' in body and f'data-verdict="{outcome.claim.verdict}"' in body
    assert "10<sup>-5</sup>" in theory_page(Ledger((other(READ, reading="about 10^−5"),)))
    assert '<a href="#T.L1">T.L1</a> <a href="#S.BN">S.BN</a>' in body  # one error
    for words in ("Lemma 1, first part", "instead", "2.2913", "10<sup>0.3</sup>", "reproduce than2025/fig1", "refuted"):
        assert words in body
    assert body.count('class="fig mini"') == 2 * 2
    assert {f"v-{v.name.lower()}" for v in Verdict} <= set(re.findall(r"v-\w+", body))


def test_failures_stand_on_the_first_screen():
    page = theory_page(Ledger((HOLDS, FAILED, BROKEN)))
    assert page.count('class="warn"') == 2 and "2 checks FAILED" in page
    assert page.index("ZeroDivisionError") < page.index('id="claims"')
    assert '<span class="state bad">FAILED</span>' in page


def test_one_claim_is_open_and_several_are_folded_by_source():
    opened = r"<details [^>]* open>"
    assert len(re.findall(opened, theory_page(Ledger((HOLDS,))))) == 2 and not re.search(opened, theory_page(ALL))
    assert theory_page(ALL).count('<details class="paper">') == 5


def test_hostile_words_stay_words():
    page = theory_page(hostile())
    assert ATTACK not in page and "<img" not in page and page.count("<script") == 1
    assert page.count("&lt;/script&gt;") > 20


def test_many_claims_are_far_below_five_megabytes():
    many = Ledger(tuple(replace(other(WRONG, id=f"T.{i}"), findings=WRONG.findings * 2) for i in range(200)))
    assert len(theory_page(many).encode()) < 3_000_000
