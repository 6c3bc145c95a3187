"""The page of claims in a real browser: legible at any width and in both themes, filtered, quiet, deaf to attacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from normgauge.core.claim import Ledger
from normgauge.render.theory_page import theory_page
from tests.browser.conftest import Watched
from tests.browser.test_reading import assert_legible
from tests.made_claims import ALL, ATTACK, BROKEN, FAILED, WRONG, hostile, other

pytestmark = pytest.mark.browser
LONG = replace(
    other(WRONG, id="T.a.rather.long.identifier", reading="a long statement " * 14, instead="‖W‖·" * 60),
    findings=tuple(replace(f, what=f"{f.what}, {'in many words ' * 6}") for f in WRONG.findings * 4),
)  # fmt: skip
PAGES = {
    "all": Ledger((*ALL.outcomes, FAILED, BROKEN)),
    "long": Ledger((LONG,)),
    "long errors": Ledger((LONG, other(LONG, id="T.another.one", error="another"))),
}
IDS = ["T.L2", "T.L1", "T.F1", "A.R1", "A.P4", "S.sum", "S.BN", "Q.open", "X.add"]  # by source


@pytest.fixture
def visit_claims(visit_page: Callable[..., Watched]) -> Callable[..., Watched]:
    def opened(ledger: Ledger = ALL, width: int = 1400, script: bool = True, anchor: str = "") -> Watched:
        return visit_page(theory_page(ledger), width, script, anchor, height=900)

    return opened


def ids(page: Any) -> list[str]:
    """Claims that are shown where their source is unfolded."""
    return page.locator("details.claim:visible h3").all_inner_texts()


@pytest.mark.parametrize("name", list(PAGES))
def test_every_page_is_legible_and_quiet(visit_claims, name):
    assert_legible(visit_claims(PAGES[name]))


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (400, 800)])
def test_the_first_screen_holds_the_sentence_and_every_count(visit_claims, width, height):
    page = visit_claims(width=width).page
    for what in (".verdict", ".tally li:last-child"):
        box = page.locator(what).bounding_box()
        assert box["y"] + box["height"] <= height, what
    assert page.locator(".tally b").all_inner_texts() == ["1", "1", "2", "1", "1", "1", "1"]


def test_headings_are_in_order_and_figures_have_names(visit_claims):
    page = visit_claims().page
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1 and len(levels) > 3
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.evaluate("[...document.querySelectorAll('svg')].every((s) => s.getAttribute('aria-label').length > 20)")
    assert page.evaluate("[...document.querySelectorAll('th')].every((h) => h.scope)")
    assert page.evaluate("[...document.querySelectorAll('.tools :is(input, select)')].every((n) => n.ariaLabel)")


def test_everything_but_the_errors_is_folded_and_verdicts_choose_what_is_shown(visit_claims):
    page = visit_claims().page
    count = page.locator(".tools output")
    assert ids(page) == [] and page.locator(".errors article").is_visible() and count.inner_text() == "9 of 9 claims"
    wrong = page.get_by_role("button", name="wrong")
    wrong.focus()
    page.keyboard.press("Enter")
    assert ids(page) == ["T.L1", "S.BN"] and wrong.get_attribute("aria-pressed") == "true"
    assert page.locator(".paper:visible").count() == 2 and count.inner_text() == "2 of 9 claims"
    page.get_by_role("button", name="holds").click()
    assert ids(page) == ["T.L2", "T.L1", "S.BN", "X.add"]
    wrong.click()
    assert ids(page) == ["T.L2", "X.add"] and wrong.get_attribute("aria-pressed") == "false"


def test_a_source_and_a_word_choose_too(visit_claims):
    page = visit_claims().page
    page.get_by_label("Source", exact=True).select_option("Than 2025")
    assert ids(page) == ["T.L2", "T.L1", "T.F1"]
    page.get_by_label("Filter claims").fill("LARGEST entry")  # stands inside, not on the line that is seen
    assert ids(page) == ["T.L1"]
    page.get_by_label("Filter claims").fill("no such word")
    assert ids(page) == [] and page.locator(".tools output").inner_text() == "0 of 9 claims"


def test_all_that_are_shown_open_and_close(visit_claims):
    page = visit_claims().page
    page.get_by_role("button", name="wrong").click()
    page.get_by_role("button", name="Open all").click()
    assert page.locator(".claim[open]").count() == 2
    page.get_by_role("button", name="Close all").click()
    assert page.locator("details[open]").count() == 0
    page.get_by_role("button", name="wrong").click()
    page.get_by_text("Akbar: 2 claims").click()
    page.locator("#A\\.R1 summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("#A\\.R1 table").is_visible()


def test_a_link_to_a_claim_unfolds_its_source_and_opens_it(visit_claims):
    page = visit_claims(anchor="#T.L1").page
    assert page.locator(".claim[open]").get_attribute("id") == "T.L1"
    assert page.locator("#T\\.L1").is_visible() and page.locator("#T\\.L1").bounding_box()["y"] < 900
    page.evaluate("location.hash = '#A.R1'")
    page.wait_for_timeout(100)
    assert page.locator(".claim[open]").count() == 2
    assert visit_claims(anchor="#%E0%A4%A").wrong == []  # no address at all


def test_without_a_script_everything_is_there(visit_claims):
    page = visit_claims(script=False).page
    for part in page.locator(".paper > summary").all():
        part.click()
    assert ids(page) == IDS and page.locator(".tools").count() == 0
    page.locator("#T\\.L1 summary").click()
    assert page.locator("#T\\.L1 svg:visible").count() == 2


def test_paper_gets_every_claim_and_no_controls(visit_claims):
    page = visit_claims().page
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    assert ids(page) == IDS and page.locator(".claim[open]").count() == 9
    assert page.locator(".tools:visible").count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_hostile_words_stay_words(visit_claims):
    watched = visit_claims(hostile())
    page = watched.page
    assert page.locator(".claim[open]").count() == page.locator(".claim").count()  # they are few
    assert page.locator("img").count() == 0 and page.locator("script").count() == 1
    assert page.locator(".claim h3").first.inner_text() == f"X.{ATTACK}"
    page.get_by_label("Source", exact=True).select_option(ATTACK)
    assert len(ids(page)) == 3
    assert watched.wrong == []
