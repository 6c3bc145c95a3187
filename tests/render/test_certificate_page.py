"""The page of a certificate and its pictures, as text; how it looks and behaves is tested in a browser."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import pairwise

import pytest

from normgauge.core.certificate import RowKind
from normgauge.render.certificate_page import anchor, certificate_html, certificate_notebook, details
from normgauge.render.certificate_plot import (
    certificate_overview,
    describe_overview,
    describe_row_bar,
    drawn_rows,
    share_ticks,
    sides,
    term_stack,
)
from normgauge.render.certificate_words import row_value
from normgauge.render.svg import NARROW, WIDE
from tests.made_certificates import (
    ATTACK,
    CLOPPER,
    DISAGREE,
    EMPTY,
    ENDLESS,
    FEATURE,
    FULL,
    GIBBS,
    NEARLY,
    NOT_HERE,
    NOTHING,
    PUBLISHED,
    SCORES,
    SPECTRAL,
    bound,
    hostile,
)
from tests.render.test_page import parsed

SVG = "{http://www.w3.org/2000/svg}"


def drawn(figure: str) -> ElementTree.Element:
    return ElementTree.fromstring(figure[figure.index("<svg") : figure.index("</svg>") + 6])


def bars(root: ElementTree.Element) -> list[tuple[str, float, float]]:
    """Class, start and end of every bar, without the legend."""
    groups = root.iter(f"{SVG}g")
    boxes = [group.findall(f"{SVG}rect")[1] for group in groups]
    return [(b.attrib["class"], float(b.attrib["x"]), float(b.attrib["x"]) + float(b.attrib["width"])) for b in boxes]


def limit(root: ElementTree.Element) -> float:
    return next(float(n.attrib["x1"]) for n in root.iter(f"{SVG}line") if n.attrib["class"] == "balanced")


@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=lambda shape: shape.name)
def test_every_bound_has_a_bar_and_only_bounds_end_before_the_limit(shape):
    root = drawn(certificate_overview(FULL.rows, shape))
    rows = drawn_rows(FULL.rows)
    assert len(bars(root)) == len(rows) == 12
    for row, (kind, start, end) in zip(rows, bars(root), strict=True):
        assert (end < limit(root)) == (row.kind is RowKind.BOUND), row.key
        assert kind == ("other" if row.kind is RowKind.VACUOUS else "norm" if row.about == "this network" else "mixed")
        assert start < end <= shape.width
    mine = [end for kind, _, end in bars(root) if kind == "norm"]
    assert mine == sorted(mine) and mine[-1] > mine[0] + 30


def test_a_bar_is_told_in_words_and_so_is_the_picture():
    titles = [node.text for node in drawn(certificate_overview(FULL.rows)).iter(f"{SVG}title")]
    assert titles[0] == ("hold-out, Clopper–Pearson: bound, error of this network at most 2.24 %, confidence 95 %")
    assert describe_row_bar(GIBBS).endswith(
        "error of this network with Gaussian noise on its weights at most 31.0 %, confidence 95 %"
    )
    assert describe_overview(drawn_rows(FULL.rows)).startswith("7 bounds and 5 vacuous rows")
    assert describe_overview(drawn_rows(NOTHING.rows[:2])) == "0 bounds and 2 vacuous rows on a logarithmic axis."
    assert drawn(certificate_overview(FULL.rows)).attrib["aria-label"] == describe_overview(drawn_rows(FULL.rows))


def test_infinite_rows_point_off_the_edge_and_nothing_is_nothing():
    assert len(list(drawn(certificate_overview(FULL.rows)).iter(f"{SVG}polygon"))) == 1
    assert certificate_overview((*SCORES, *NOT_HERE)) == "" and certificate_overview(()) == ""
    bare = replace(PUBLISHED, value=None, terms=())
    assert len(bars(drawn(certificate_overview((bare,))))) == 1


@pytest.mark.parametrize("shares", [[0.02], [1e-9, 1e300], [0.5, math.inf, 0.0], [1.0], [2.0, 30.0]], ids=str)
def test_the_two_sides_meet_at_the_limit(shares):
    axis = sides(shares, 100.0, 500.0)
    assert axis.at(1.0) == pytest.approx(320.0)
    assert all(100 <= axis.at(share) <= 500 for share in shares) and axis.at(0.0) == 100
    assert axis.at(0.5) < 320 < axis.at(2.0)
    ticks = share_ticks(axis)
    assert 3 <= len(ticks) <= 9 and any(words == "100 %" for _, words in ticks)
    assert all(after[0] > before[0] for before, after in pairwise(ticks))


def test_a_stack_shows_what_makes_a_row_vacuous():
    root = drawn(term_stack(PUBLISHED))
    kinds = [node.attrib["class"] for node in root.iter(f"{SVG}rect")]
    assert kinds == ["norm", "weight", "norm", "other"]
    ends = [float(n.attrib["x"]) + float(n.attrib["width"]) for n in root.iter(f"{SVG}rect")]
    assert ends[0] < ends[2] < limit(root) < ends[1] <= ends[3]
    assert "logarithmic" in term_stack(PUBLISHED) and "10<sup>2.52</sup>" in term_stack(PUBLISHED)
    assert root.attrib["aria-label"].startswith("Terms of Theorem 20 as published: training loss 0.300 %")


def test_an_even_stack_goes_on_where_the_term_before_ended():
    rects = [(float(n.attrib["x"]), float(n.attrib["width"])) for n in drawn(term_stack(FEATURE)).iter(f"{SVG}rect")]
    assert rects[1][0] == pytest.approx(sum(rects[0]), abs=0.2) and rects[2][0] == pytest.approx(sum(rects[1]), abs=0.2)
    assert sum(rects[2]) == pytest.approx(sum(rects[3]), abs=0.2)
    assert "logarithmic" not in term_stack(FEATURE) and limit(drawn(term_stack(FEATURE))) > sum(rects[3])
    assert "far from 100 %" in term_stack(DISAGREE) and "balanced" not in term_stack(DISAGREE)
    assert len(list(drawn(term_stack(ENDLESS)).iter(f"{SVG}polygon"))) == 2  # the term and the total
    early, late = (drawn(term_stack(row)) for row in (NEARLY, FEATURE))
    assert limit(early) < limit(late)


def test_the_page_begins_with_the_promise_and_holds_everything():
    page = certificate_html(FULL)
    body = page[page.index("<main") :]
    order = [body.index(words) for words in (
        "Promise", "augmented, and no bound", 'class="fig wide"', "Rows hold one at a time", 'class="tally"',
        "Family by family", "All rows", "<details", "What they are made of", "Every row in full",
        "Local constant against", "Measured on the way",
    )]  # fmt: skip
    assert order == sorted(order)
    for row in FULL.rows:
        assert f'id="{anchor(row)}"' in body and f'href="#{anchor(row)}"' in body
        assert f'data-kind="{row.kind}"' in body
    assert "F(P) ≤ F(D) + g" in body and "12,000,000 samples" in body and "measured in eval mode" in body
    assert body.count('class="fig mini"') == 7 + 1 and body.count("<tr data-kind") == 20
    assert "global constant" in body and "infinite" in body


def test_the_page_is_whole_and_asks_nothing_of_others():
    page = certificate_html(FULL)
    assert parsed(page).seen >= {"figure", "svg", "table", "details", "dl", "section"}
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "default-src 'none'" in page and len(page.encode()) < 300_000
    assert page.count("<script>") == 1


def test_a_row_in_full():
    shown_row = details(PUBLISHED)
    assert "error of this network" in shown_row and "they add up to the value" in shown_row
    assert "10<sup>2.51</sup>" in shown_row  # 327 is a power of ten as an error
    assert "the formula puts them together" in details(SPECTRAL)
    assert "paid with" not in details(NOT_HERE[0]) and "would be paid with" in details(
        replace(NOT_HERE[0], consumed=CLOPPER.consumed, confidence=0.95)
    )
    assert "<dt>confidence" not in details(replace(NOT_HERE[0], confidence=0.95))
    assert "what it is" in details(SCORES[0]) and "what it bounds" in details(CLOPPER)


def test_anchors_are_plain():
    assert anchor(CLOPPER) == "row-holdout.clopper_pearson"
    assert re.fullmatch(r"[\w.-]+", anchor(replace(CLOPPER, key=ATTACK)))


def test_pages_with_little_on_them():
    assert "There are no rows." in certificate_html(EMPTY) and "<figure>" not in certificate_html(EMPTY)
    page = certificate_html(NOTHING)
    assert "Nothing can be promised" in page and "Curves" not in page[page.index("<main") :]
    assert "Measured on the way" not in page


def test_hostile_words_stay_words():
    for page in (certificate_html(hostile()), certificate_notebook(hostile())):
        assert ATTACK not in page and "<img" not in page
        assert page.count("&lt;/script&gt;") > 20
    assert certificate_html(hostile()).count("<script") == 1


def test_many_rows_are_far_below_five_megabytes():
    rows = tuple(bound(f"k.{i}", f"row {i}", "cells", 10.0**i, formula="x" * 300) for i in range(-2, 250))
    assert len(certificate_html(replace(FULL, rows=rows)).encode()) < 2_000_000


def test_a_notebook_shows_sentences_picture_and_rows_and_reaches_nothing_else():
    page = FULL._repr_html_()
    assert page == certificate_notebook(FULL)
    assert parsed(page).seen >= {"div", "style", "svg", "table", "details"}
    assert "Promise: on unseen" in page and "Warning: reading" in page and "All 20 rows" in page
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    selectors = [s.strip() for rule in re.findall(r"([^{}]+)\{", style[1]) for s in rule.split(",")]
    assert len(selectors) > 20 and all(s.startswith(".normgauge-reading") for s in selectors)
    assert "script" not in parsed(page).seen and "id=" not in page and "var(" not in page
    assert not re.search(r"(src|href)=|url\(|@import", page)
    assert all(row_value(row) in page for row in FULL.rows if row.kind is RowKind.BOUND)
