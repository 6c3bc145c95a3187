"""The page as a reader sees it: legible at any width and in both themes, quiet, quick, and deaf to hostile names."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from normgauge.core import reference
from normgauge.core.bound import Scope
from normgauge.render.page import report
from tests.render.networks import ATTACK, deep, endless, hostile, long_names, residual, scopes

pytestmark = pytest.mark.browser

# Every piece of text that can be seen: its words, font size on the screen, place, colour and what it stands on.
TEXTS = """() => {
  const seen = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const solid = (colour) => { const c = colour.match(/[\\d.]+/g).map(Number); return c.length < 4 || c[3] === 1; };
  while (walker.nextNode()) {
    const node = walker.currentNode, owner = node.parentElement, style = getComputedStyle(owner);
    if (!node.textContent.trim() || owner.closest("script, style, title, .skip")) continue;
    if (!owner.checkVisibility({ visibilityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    const svg = owner.closest("svg");
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    let ground = owner;
    while (ground && !(solid(getComputedStyle(ground).backgroundColor))) ground = ground.parentElement;
    seen.push({ words: node.textContent.trim(), size: parseFloat(style.fontSize) * scale,
      colour: svg ? style.fill : style.color, ground: getComputedStyle(ground || document.body).backgroundColor,
      svg: svg ? [...document.querySelectorAll("svg")].indexOf(svg) : -1,
      box: [box.left, box.top, box.right, box.bottom], edge: svg ? svg.getBoundingClientRect().right : null });
  }
  return seen;
}"""

PAGES = {
    "one": lambda: residual(),
    "scopes": scopes,
    "networks": lambda: [*scopes(), residual(model="Other", log_upper=3.0), endless()],
    "endless": endless,
    "deep": lambda: deep(200),
    "long names": lambda: [long_names(), long_names(scope=Scope.parse("global"))],
    "no layers": lambda: residual(layers=(), proof=None, samples=()),
}


def luminance(colour: str) -> float:
    channels = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].replace(",", " ").split()[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def overlapping(texts: list[dict]) -> list[tuple[str, str]]:
    drawn = [t for t in texts if t["svg"] >= 0]
    return [
        (a["words"], b["words"])
        for i, a in enumerate(drawn)
        for b in drawn[i + 1 :]
        if a["svg"] == b["svg"]
        and min(a["box"][2], b["box"][2]) - max(a["box"][0], b["box"][0]) > 1
        and min(a["box"][3], b["box"][3]) - max(a["box"][1], b["box"][1]) > 3  # a line box is higher than its letters
    ]


LOOKS = [(width, theme) for width in (400, 1400) for theme in ("light", "dark")] + [(700, "light"), (1000, "dark")]


@pytest.mark.parametrize("name", list(PAGES))
def test_every_page_is_legible_and_quiet(visit, name):
    assert_legible(visit(PAGES[name]()))


def test_no_width_scrolls_sideways_or_shrinks_the_text(visit):
    page = visit(scopes()).page
    for width in (400, 679, 760, 939, 940, 1024, 1339, 1340, 2000):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width
        texts = page.evaluate(TEXTS)
        assert [t["words"] for t in texts if t["size"] < 11] == [], width
        assert overlapping(texts) == [], width


def eventually(page, holds, tries: int = 50) -> bool:
    """Whether it holds within five seconds; the page's policy forbids playwright's own way to wait for a condition."""
    for _ in range(tries):
        if holds():
            return True
        page.wait_for_timeout(100)
    return False


def endless_name(length: int = 300):
    made = residual()
    layers = [replace(r, name="encoder." * (length // 8) + r.name, note="a long note " * 12) for r in made.layers]
    return replace(made, layers=tuple(layers), proof=None)


@pytest.mark.parametrize("width", [1000, 1400])
def test_a_long_name_leaves_numbers_and_note_on_the_screen(visit, width):
    page = visit(endless_name(), width).page
    row = page.locator("tr[data-tip]").first
    last = row.locator("td").last.bounding_box()
    assert last["x"] + last["width"] <= width
    name = row.locator("th > span").evaluate("(n) => [...n.children].map((c) => c.getBoundingClientRect().height)")
    assert sum(name) < 60  # at most two lines
    assert row.locator("th > span").get_attribute("title") == row.locator("th").text_content()
    region = page.locator(".scroll", has=page.locator("table.layers"))
    assert region.evaluate("(n) => n.scrollWidth - n.clientWidth") <= 0


def test_a_table_that_goes_on_beyond_the_edge_says_so_and_scrolls_by_keyboard(visit):
    page = visit(endless_name(), 400).page
    region = page.locator(".scroll.cut", has=page.locator("table.layers"))
    region.wait_for()
    shown = "(n) => getComputedStyle(n.querySelector('caption'), '::before').content"
    assert "Scroll sideways" in region.evaluate(shown)
    assert "gradient" in region.evaluate("(n) => getComputedStyle(n).backgroundImage")
    region.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert eventually(page, lambda: region.evaluate("(n) => n.scrollLeft") > 60)
    name = region.locator("tbody th").first.bounding_box()
    assert 0 <= name["x"] <= 20 and name["width"] < 190  # the name stays, the numbers pass under it
    page.set_viewport_size({"width": 1400, "height": 800})
    assert eventually(page, lambda: page.locator(".scroll.cut").count() == 0)


FIGURES = (".top figure:nth-child(1) svg", ".top figure:nth-child(2) svg")


@pytest.mark.parametrize(("width", "height", "more"), [(1400, 900, FIGURES), (400, 800, ())])
def test_the_first_screen_holds_verdict_judgement_and_what_to_do(visit, width, height, more):
    """And the figures, where there is room beside the words."""
    page = visit(scopes(), width).page
    for what in (".verdict", ".judgement", ".next", *more):
        shown = page.locator(f"{what}:visible").first
        box = shown.bounding_box()
        assert box is not None and box["y"] + box["height"] <= height, what


def test_paper_takes_four_pages_for_a_resnet(browser, tmp_path):
    page = browser.new_page()
    page.goto(report(reference.load_reference("resnet20"), tmp_path / "a.html").as_uri())
    assert len(re.findall(rb"/Type /Page\b", page.pdf(format="A4"))) <= 4
    page.close()


def test_the_checks_above_can_fail(visit):
    watched = visit(residual())
    page = watched.page
    page.evaluate("document.querySelector('.verdict').style.cssText = 'font-size: 9px; color: #999; min-width: 3000px'")
    page.evaluate(
        "document.querySelectorAll('svg text').forEach((t) => { t.setAttribute('x', 50); t.setAttribute('y', 50); })"
    )
    page.evaluate("console.error('a made up error'); alert(1)")
    texts = page.evaluate(TEXTS)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") > 0
    assert any(t["size"] < 11 for t in texts) and any(contrast(t["colour"], t["ground"]) < 4.5 for t in texts)
    assert overlapping(texts) != []
    assert watched.wrong == ["a made up error", "dialog 1"]


@pytest.mark.parametrize("several", [False, True])
def test_hostile_names_stay_text(visit, several):
    readings = [hostile(), hostile()] if several else hostile()
    labels = [ATTACK + "a", ATTACK + "b"] if several else [ATTACK]
    watched = visit(readings, labels=labels, title=ATTACK, beside=[(ATTACK, residual())])
    page = watched.page
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    bars = page.locator(".bar:visible").all()
    assert len(bars) >= 3
    for bar in bars[:3]:
        bar.hover()
        assert ATTACK in page.locator("#tip").inner_text()
    page.locator("tr[data-tip]:visible").first.click()
    assert page.locator("img").count() == 0  # the picture was no picture, and no name became one
    assert page.locator("script").count() == 1
    assert page.locator("h1").inner_text() == ATTACK
    assert ATTACK in page.locator("tbody th").first.inner_text() + page.locator("tr[data-tip] th").first.inner_text()
    assert watched.wrong == []


def test_an_injected_script_does_not_run(visit):
    """The policy, tried from inside the page: no script but ours, no picture from elsewhere."""
    watched = visit(residual())
    page, failed = watched.page, []
    page.on("requestfailed", lambda asked: failed.append(asked.failure))
    page.evaluate("""() => {
      const script = document.createElement('script'); script.textContent = 'window.broken = 1';
      const image = document.createElement('img'); image.src = 'http://127.0.0.1:9/x.png';
      const frame = document.createElement('div');
      frame.innerHTML = '<b onclick="window.broken = 1" style="color:red">x</b>';
      document.body.append(script, image, frame); frame.firstChild.click();
    }""")
    assert page.evaluate("window.broken") is None
    refused = [told for told in watched.wrong if "Content Security Policy" in told]
    assert len(refused) == 4  # script, picture, handler, style
    assert failed == ["csp"]  # the picture's request was stopped inside the browser


def test_a_thousand_layers_open_at_once(visit):
    once = deep(1000)
    everything = [replace(once, scope=Scope.parse(scope)) for scope in ("point", "ball:0.1", "global")]
    milliseconds = []
    for _ in range(3):
        watched = visit(once)
        watched.page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
        milliseconds.append(
            watched.page.evaluate("""Math.max(performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd,
              performance.getEntriesByName('first-contentful-paint')[0].startTime)""")
        )
    assert min(milliseconds) < 2000, milliseconds
    assert watched.page.locator("tr[data-tip]").count() == 1000
    watched = visit(everything)
    assert watched.path.stat().st_size < 5_000_000
    assert watched.page.locator("tr[data-tip]").count() == 3000
    assert watched.wrong == []


def assert_legible(watched):
    """Unfolded, at every width: no overflow, no small, faint or overlapping words, nothing forbidden done."""
    page = watched.page
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    for width, theme in LOOKS:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=theme)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width
        texts = page.evaluate(TEXTS)
        assert len(texts) > 40
        assert [t["words"] for t in texts if t["size"] < 11] == []
        assert [t["words"] for t in texts if contrast(t["colour"], t["ground"]) < 4.5] == []
        assert overlapping(texts) == []
        assert [t["words"] for t in texts if t["edge"] is not None and t["box"][2] > t["edge"] + 1] == []
    assert texts[0]["ground"] == "rgb(20, 23, 28)"  # the last look was a dark one
    assert watched.wrong == []
