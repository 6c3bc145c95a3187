"""The page under a reader's hands: keyboard, pointer, touch, a screen reader's tree, paper, and no script at all."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.render.networks import deep, residual, scopes

pytestmark = pytest.mark.browser


def names(page, table=0) -> list[str]:
    return page.locator("table.layers").nth(table).locator("tbody tr:visible th").all_inner_texts()


@pytest.mark.parametrize("readings", [residual, scopes, lambda: [*scopes(), residual(model="Other")]])
def test_headings_are_in_order_and_figures_have_names(visit, readings):
    page = visit(readings()).page
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1 and len(levels) > 3
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.evaluate("[...document.querySelectorAll('svg')].every((s) => s.getAttribute('aria-label').length > 20)")
    assert page.evaluate("[...document.querySelectorAll('img')].every((i) => i.alt && i.naturalWidth > 0)")
    assert page.locator("img").count() >= 1
    assert page.evaluate("[...document.querySelectorAll('th')].every((h) => h.scope)")
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((n) => n.id)")
    assert len(ids) == len(set(ids))
    links = page.evaluate("[...document.querySelectorAll('a')].map((a) => a.getAttribute('href').slice(1))")
    assert set(links) <= set(ids)


def test_columns_sort_by_keyboard(visit):
    page = visit(residual()).page
    head = page.locator("table.layers thead th", has_text="gain")
    assert head.get_attribute("aria-sort") == "none"
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert names(page) == ["block.linear", "stem", "add", "head", "block.norm"]
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert names(page)[0] == "block.norm"
    page.locator("table.layers thead th button").first.press("Enter")
    assert names(page) == ["stem", "block.norm", "block.linear", "add", "head"]


def test_what_is_absent_sorts_last_both_ways(visit):
    page = visit(residual()).page
    button = page.locator("table.layers thead th", has_text="σ").locator("button")
    for _ in range(2):
        button.press("Enter")
        assert names(page)[0] == "block.norm"


def test_the_filter_leaves_what_matches(visit):
    page = visit(deep(40)).page
    page.get_by_label("Filter layers").fill("blocks.3.")
    assert names(page) == [f"blocks.3.{part}" for part in ("linear", "norm", "act", "drop")]
    assert page.locator("output").inner_text() == "4 of 40 layers"
    page.get_by_label("Filter layers").fill("no such layer")
    assert names(page) == []


def test_repeated_blocks_fold_and_unfold(visit):
    page = visit(deep(40)).page
    assert names(page) == ["blocks.0 … blocks.9"]
    summary = page.locator("tr.fold")
    assert [c.strip() for c in summary.locator("td").all_inner_texts()][1:3] == ["×10", "1.00"]
    button = summary.locator("button")
    assert button.get_attribute("aria-expanded") == "false"
    button.focus()
    page.keyboard.press("Space")
    assert button.get_attribute("aria-expanded") == "true"
    assert len(names(page)) == 41
    page.get_by_role("button", name="Fold repeated blocks").click()
    assert len(names(page)) == 1
    page.locator("table.layers thead th", has_text="gain").locator("button").click()
    assert len(names(page)) == 40  # sorted rows stand alone


def test_the_tooltip_follows_focus_and_leaves(visit):
    page = visit(residual()).page
    bars = page.locator(".wide .bar:visible")
    tip = page.locator("#tip")
    bars.first.focus()
    told = tip.inner_text()
    for words in ("stem (Linear)", "‖J‖ = ‖W‖", "‖W‖ = 10", "claim T.L1", "gain 1.00"):
        assert words in told
    assert bars.first.get_attribute("aria-describedby") == "tip"
    page.keyboard.press("ArrowRight")
    assert "block.norm (BatchNorm1d)" in tip.inner_text() and "1.25/0.25 = 5" in tip.inner_text()
    page.keyboard.press("End")
    assert "head (Linear)" in tip.inner_text()
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_the_tooltip_of_a_row_by_focus_pointer_and_inside_the_screen(visit):
    page = visit(residual(), 400).page
    rows = page.locator("table.layers tbody tr")
    rows.first.focus()
    assert "stem (Linear)" in page.locator("#tip").inner_text()
    page.keyboard.press("ArrowDown")
    assert "block.norm" in page.locator("#tip").inner_text()
    box = page.locator("#tip").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 400
    page.mouse.move(5, 5)
    rows.nth(4).locator("th").hover()
    assert "a note of its own" in page.locator("#tip").inner_text()
    page.locator("h1").hover()
    assert page.locator("#tip").is_hidden()


def test_a_resting_pointer_does_not_take_the_tooltip_from_the_keyboard(visit):
    page = visit(deep(40)).page
    page.locator("tr.fold button").click()  # the pointer stays here
    page.evaluate("scrollTo(0, 0)")
    focused = page.locator("tr[data-tip]").nth(8)
    focused.focus()  # the page scrolls, and another row comes to lie under the pointer
    assert page.evaluate("scrollY") > 0
    page.screenshot()  # a frame is drawn, and what lies under the pointer is looked up again
    page.wait_for_timeout(100)
    assert page.locator("tr[data-tip]:hover").count() == 1
    assert "blocks.2.linear" in page.locator("#tip").inner_text()


def test_scopes_are_tabs(visit):
    page = visit(scopes()).page
    tabs = page.get_by_role("tab")
    assert [t.split("\n")[0].strip() for t in tabs.all_inner_texts()] == [
        "At the samples point", "Within 0.1 ball:0.1", "Everywhere global",
    ]  # fmt: skip
    assert page.locator(".panel:visible").count() == 1
    tabs.first.focus()
    page.keyboard.press("ArrowLeft")
    assert tabs.nth(2).get_attribute("aria-selected") == "true"
    assert "everywhere (proved)" in page.locator(".panel:visible .verdict").inner_text()
    tabs.nth(1).click()
    assert "within 0.1 of the samples" in page.locator(".panel:visible .verdict").inner_text()


def test_without_a_script_everything_is_there(visit):
    page = visit([*scopes(), residual(model="Other")], script=False).page
    assert page.locator(".panel:visible").count() == 4
    assert page.locator("svg .bar title").count() > 20
    assert page.locator("h3.scope:visible").count() == 3


def test_paper_gets_every_scope_and_no_controls(visit):
    page = visit(scopes()).page
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator(".panel:visible").count() == 3
    assert page.locator(".tools:visible, .tabs:visible").count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_the_skip_link_comes_first_and_nothing_moves(visit):
    page = visit(residual()).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    box = page.locator(".skip").bounding_box()
    assert box["x"] >= 0
    moving = """[...document.querySelectorAll('*')].map((node) => getComputedStyle(node)).filter((style) =>
      style.animationName !== 'none' || style.transitionDuration !== '0s' || style.scrollBehavior !== 'auto').length"""
    assert page.evaluate(moving) == 0  # so there is nothing to leave out under prefers-reduced-motion


def test_a_tap_shows_the_tooltip(browser, visit):
    path = visit(residual(), 400).path
    context = browser.new_context(viewport={"width": 400, "height": 800}, has_touch=True)
    page = context.new_page()
    page.goto(path.as_uri())
    page.locator(".narrow .bar").nth(1).tap()
    assert "block.norm" in page.locator("#tip").inner_text()
    page.locator("h1").tap()
    assert page.locator("#tip").is_hidden()
    context.close()
