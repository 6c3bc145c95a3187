"""The page of a certificate and its pictures, as text; how it looks and behaves is tested in a browser."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape

from normgauge.core.certificate import RowKind
from normgauge.render.certificate_families import EXPLAINED, rows_by_family
from normgauge.render.certificate_page import anchor, certificate_html, certificate_notebook, details
from normgauge.render.certificate_words import (
    row_value,
)
from tests.made_certificates import (
    ATTACK,
    CLOPPER,
    EMPTY,
    FULL,
    NOT_HERE,
    NOTHING,
    PUBLISHED,
    SCORES,
    SPECTRAL,
    bound,
    hostile,
)
from tests.render.test_page import parsed


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


def test_every_family_is_explained_once_on_the_page():
    page = certificate_html(FULL)
    assert set(rows_by_family(FULL.rows)) <= set(EXPLAINED)
    for name in rows_by_family(FULL.rows):
        assert page.count(escape(EXPLAINED[name])) == 1, name
