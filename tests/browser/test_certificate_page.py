"""The page of a certificate in a real browser: legible at any width and in both themes, sorted, filtered, quiet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from normgauge.core.certificate import Certificate
from normgauge.render.certificate_page import certificate_html
from tests.browser.conftest import Watched
from tests.browser.test_reading import assert_legible
from tests.made_certificates import ATTACK, EMPTY, FULL, NOTHING, hostile

pytestmark = pytest.mark.browser
LONG = replace(
    FULL, model="A" * 200, warnings=("a long warning " * 20,),
    rows=tuple(
        replace(row, name=f"{row.name} {'of many words ' * 8}", reason=row.reason * 4, formula="Σλ_i·" * 80)
        for row in FULL.rows
    ),
)  # fmt: skip
PAGES = {"full": FULL, "nothing": NOTHING, "long": LONG}


@pytest.fixture
def visit_certificate(visit_page: Callable[..., Watched]) -> Callable[..., Watched]:
    def opened(shown: Certificate = FULL, width: int = 1400, script: bool = True, anchor: str = "") -> Watched:
        watched = visit_page(certificate_html(shown), width, script, anchor)
        if not anchor and watched.page.locator("details.all").count():  # a link to a row opens it by itself
            watched.page.locator("details.all > summary").click()
            watched.page.evaluate("scrollTo(0, 0)")
        return watched

    return opened


def names(page: Any) -> list[str]:
    return page.locator("table.rows tbody tr:visible th").all_inner_texts()


@pytest.mark.parametrize("name", list(PAGES))
def test_every_page_is_legible_and_quiet(visit_certificate, name):
    assert_legible(visit_certificate(PAGES[name]))


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (400, 800)])
def test_the_first_screen_holds_the_promise_and_the_first_bars(visit_certificate, width, height):
    page = visit_certificate(width=width).page
    verdict = page.locator(".verdict").bounding_box()
    bars = page.locator(".fig:visible .bar")
    assert verdict["y"] + verdict["height"] <= height
    shown = [bars.nth(i).bounding_box() for i in range(bars.count())]
    inside = [box for box in shown if box["y"] + box["height"] <= height]
    assert len(inside) >= (12 if width == 1400 else 3), shown[0]


def test_headings_are_in_order_and_everything_has_a_name(visit_certificate):
    page = visit_certificate().page
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1 and len(levels) > 3
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.evaluate("[...document.querySelectorAll('svg')].every((s) => s.getAttribute('aria-label').length > 20)")
    assert page.evaluate("[...document.querySelectorAll('th')].every((h) => h.scope)")
    assert page.evaluate(
        "[...document.querySelectorAll('.tools :is(input, button)')].every((n) => n.ariaLabel || n.textContent)"
    )
    labels = page.locator(".fig.wide .bar").evaluate_all("(bars) => bars.map((b) => b.getAttribute('aria-label'))")
    assert len(labels) == 12 and labels[0].startswith("hold-out, Clopper–Pearson: bound, error of this network")


def test_kinds_and_a_word_choose_rows_and_what_stands_below(visit_certificate):
    page = visit_certificate().page
    count = page.locator(".tools output")
    assert len(names(page)) == 20 and count.inner_text() == "20 of 20 rows"
    estimate = page.get_by_role("button", name="estimate")
    estimate.focus()
    page.keyboard.press("Enter")
    assert names(page) == ["eq. (66)"] and estimate.get_attribute("aria-pressed") == "true"
    assert page.locator("details.row:visible").count() == 1 and count.inner_text() == "1 of 20 rows"
    estimate.click()
    page.get_by_label("Filter rows").fill("LIPSCHITZ term")
    assert len(names(page)) == 4
    page.get_by_label("Filter rows").fill("no such word")
    assert names(page) == [] and count.inner_text() == "0 of 20 rows"


def test_heads_sort_by_number_and_give_the_order_back(visit_certificate):
    page = visit_certificate().page
    before = names(page)
    value = page.locator("table.rows thead").get_by_role("button", name="value")
    value.click()
    head = page.locator("table.rows thead th").nth(2)
    assert head.get_attribute("aria-sort") == "ascending"
    ascending = names(page)
    assert ascending.index("Clopper–Pearson") < ascending.index("eq. (66)") < ascending.index("PAC-Bayes spectral")
    assert ascending.index("PAC-Bayes spectral") < ascending.index("Corollary 22, LayerNorm")
    assert set(ascending[-3:]) == {"weight norm", "sample compression", "Pick-To-Learn"}  # no number: last
    value.click()
    descending = names(page)
    assert descending[0] == "Corollary 22, LayerNorm" and set(descending[-3:]) == set(ascending[-3:])
    value.click()
    assert names(page) == before and head.get_attribute("aria-sort") == "none"
    page.locator("table.rows thead").get_by_role("button", name="kind").click()
    kinds = page.locator("table.rows tbody .badge").all_inner_texts()
    assert list(dict.fromkeys(kinds)) == ["bound", "vacuous", "estimate", "score", "not applicable"]


def test_a_name_leads_to_the_row_in_full(visit_certificate):
    page = visit_certificate().page
    page.get_by_role("link", name="Clopper–Pearson").click()
    row = page.locator("#row-holdout\\.clopper_pearson")
    page.wait_for_timeout(100)
    assert row.get_attribute("open") is not None and "Bin⁻¹" in row.inner_text()
    assert page.locator("details.row[open]").count() == 1
    page = visit_certificate(anchor="#row-theorem20.published").page
    assert page.locator("details.row[open]:visible").get_attribute("id") == "row-theorem20.published"


def test_a_bar_tells_what_it_is(visit_certificate):
    page = visit_certificate().page
    page.locator(".fig.wide .bar").nth(5).hover()
    assert "error of this network with Gaussian noise on its weights" in page.locator("#tip").inner_text()
    page.locator(".fig.wide .bar").first.focus()
    page.keyboard.press("ArrowDown")
    assert "kl inverse" in page.locator("#tip").inner_text()


def test_without_a_script_everything_is_there(visit_certificate):
    page = visit_certificate(script=False).page
    assert len(names(page)) == 20 and page.locator(".tools").count() == 0
    page.locator("#row-theorem20\\.published summary").click()
    assert page.locator("#row-theorem20\\.published table").is_visible()
    assert visit_certificate(EMPTY, script=True).wrong == []


def test_hostile_words_stay_words(visit_certificate):
    watched = visit_certificate(hostile())
    page = watched.page
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert page.locator("img").count() == 0 and page.locator("script").count() == 1
    assert names(page)[0] == ATTACK and ATTACK in page.locator("header p").inner_text()
    page.locator(".fig.wide .bar").first.hover()
    assert ATTACK in page.locator("#tip").inner_text()
    assert watched.wrong == []
