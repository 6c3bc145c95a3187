"""The page of runs in a real browser: offline, and live while a real training writes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from normgauge.core import store
from normgauge.render.runs import runs_html
from normgauge.render.runs_data import labelled_runs
from tests.browser.conftest import Watched
from tests.core.store.made import alarm, header, step, written

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
TRAINING = """
import sys, time
import torch
from torch import nn
import normgauge as ng
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
monitor = ng.Monitor(model, sys.argv[1], every=1)
while True:
    inputs = torch.randn(64, 16)
    model.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), inputs[:, :4].argmax(1))
    loss.backward()
    with torch.no_grad():  # by hand, since torch's optimizers take seconds to load
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
    monitor.step(loss=loss, lr=0.1)
    time.sleep(0.02)
"""


@pytest.fixture
def visit_runs(visit_page: Callable[..., Watched]) -> Callable[..., Watched]:
    def open_runs(paths: list[Path], width: int = 1400, theme: str = "light", script: bool = True) -> Watched:
        text = runs_html(labelled_runs([store.read(path) for path in paths]), "normgauge runs")
        return visit_page(text, width, script, theme=theme, height=900)

    return open_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [written(folder / "a", steps=150, alarms=(40, 90)), written(folder / "b", steps=100, seed=3)]


@pytest.mark.parametrize(("width", "theme"), [(400, "light"), (400, "dark"), (1400, "dark")])
def test_it_opens_without_errors_requests_or_overflow(visit_runs, runs, width, theme):
    watched = visit_runs(runs, width, theme)
    page = watched.page
    assert watched.wrong == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    first = page.locator(".verdict").first.bounding_box()
    assert first["y"] + first["height"] < 400  # the first screen answers
    assert page.locator(".plot .fig:visible").count() == 4
    sizes = page.evaluate("[...document.querySelectorAll('.fig text')].filter((t) => t.checkVisibility()).map((t) => "
                          "parseFloat(getComputedStyle(t).fontSize) * t.getCTM().a)")  # fmt: skip
    assert min(sizes) > 10


def test_alarms_stack_on_a_narrow_screen(visit_runs, runs):
    page = visit_runs(runs, 400).page
    assert page.locator(".alarms .scroll").evaluate("(box) => box.scrollWidth <= box.clientWidth")
    row = page.locator(".alarms tbody tr").first
    assert "blocks.1.norm" in row.inner_text()
    name, what = (row.locator(f":nth-child({n})").bounding_box() for n in (2, 4))
    assert what["y"] >= name["y"] + name["height"] and what["width"] > 330


def test_the_tabs_of_the_maps_take_one_line(visit_runs, runs):
    tops = visit_runs(runs).page.get_by_role("tab").evaluate_all("(tabs) => tabs.map((tab) => tab.offsetTop)")
    assert len(tops) == 5 and len(set(tops)) == 1


def test_headings_are_in_order_and_ids_are_single(visit_runs, runs):
    page = visit_runs(runs).page
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1 and all(b <= a + 1 for a, b in pairwise(levels))
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((n) => n.id)")
    assert len(ids) == len(set(ids))
    assert page.evaluate(
        "[...document.querySelectorAll('svg.fig')].every((s) => s.getAttribute('aria-label').length > 20)"
    )


def test_hovering_a_curve_tells_the_values_of_every_run(visit_runs, runs):
    page = visit_runs(runs).page
    hit = page.locator(".plot .wide .hit").nth(2)
    hit.scroll_into_view_if_needed()
    box = hit.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 30)
    told = page.locator("#tip").inner_text()
    step_shown = int(re.match(r"step (\d+)", told)[1])
    assert 70 <= step_shown <= 80
    values = dict(re.findall(r"^(.+): (-?[\d.]+) \(", told, re.MULTILINE))
    assert set(values) == {"a P_w", "a Π1/σ", "b P_w", "b Π1/σ"}
    stored = dict(store.read(runs[0]).total("log10_P_w_lower"))[step_shown]
    assert float(values["a P_w"]) == pytest.approx(stored, rel=1e-3)
    page.mouse.move(5, 5)
    assert page.locator("#tip").is_hidden()


def test_a_curve_is_walked_by_keyboard(visit_runs, runs):
    page = visit_runs(runs).page
    page.locator(".plot .wide").first.focus()
    seen = []
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        seen.append(int(re.match(r"step (\d+)", page.locator("#tip").inner_text())[1]))
    assert seen == sorted(set(seen)) and seen[0] <= 4


def test_maps_are_chosen_and_told(visit_runs, runs):
    page = visit_runs(runs).page
    assert page.locator(".heat:visible").count() == 2
    tab = page.get_by_role("tab", name="σ rms")
    tab.click()
    assert tab.get_attribute("aria-selected") == "true" and page.locator(".heat:visible").count() == 2
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", name="‖w‖·‖∇‖").get_attribute("aria-selected") == "true"
    tab.click()
    cells = page.locator(".heat:visible .wide .cells").first
    cells.scroll_into_view_if_needed()
    box = cells.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 5, box["y"] + box["height"] - 5)
    told = page.locator("#tip").inner_text()
    assert told.startswith("blocks.2.norm") and "to 150" in told
    last = store.read(runs[0]).series("sigma_rms", "blocks.2.norm")[-1][1]
    assert float(re.search(r"about ([\d.]+)", told)[1]) == pytest.approx(last, rel=0.02)


def test_the_table_sorts_and_filters(visit_runs, runs):
    page = visit_runs(runs[:1]).page
    table = page.locator("table.sorted")
    names = lambda: table.locator("tbody tr:visible th").all_inner_texts()  # noqa: E731
    assert names()[0] == "blocks.0.linear"
    head = table.locator("thead th", has_text="norm")
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    values = [float(v.split(" to ")[0]) for v in table.locator("tbody td:nth-child(4)").all_inner_texts() if v != "·"]
    assert values == sorted(values, reverse=True) and names()[-1].endswith("norm")
    head.locator("button").press("Enter")
    assert names()[-1].endswith("norm")  # what is absent stays last
    page.get_by_label("Filter layers").fill("blocks.1")
    assert sorted(names()) == ["blocks.1.linear", "blocks.1.norm"]


def test_without_a_script_everything_is_there(visit_runs, runs):
    page = visit_runs(runs, script=False).page
    assert page.locator(".heat:visible").count() == 10 and page.locator("table.sorted tbody tr:visible").count() == 14


def test_names_run_no_script(visit_runs, tmp_path):
    top = header()
    for layer in top["layers"]:
        layer["name"] += "<img src=x onerror=alert(1)>"
    writer = store.create(tmp_path / "evil", top)
    for number in (1, 2):
        writer.append(step(number))
    writer.append(alarm(2, top["layers"][1]["name"], sentence="<script>alert(1)</script>"))
    writer.close()
    watched = visit_runs([writer.path])
    watched.page.locator(".heat .cells >> visible=true").first.hover()
    assert watched.wrong == [] and watched.page.locator("img[src=x]").count() == 0


@pytest.fixture
def live(browser: Any, tmp_path: Path) -> Iterator[tuple[Any, Path, list[str]]]:
    """The live page of an empty folder of runs."""
    pytest.importorskip("uvicorn", reason="the live page is normgauge[web]")
    folder = tmp_path / "runs"
    command = [sys.executable, "-m", "normgauge", "watch", str(folder), "--web"]
    heed = partial(signal.signal, signal.SIGINT, signal.default_int_handler)  # whatever started the tests ignores
    serving = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, preexec_fn=heed)
    address = serving.stdout.readline().strip()
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page, wrong = context.new_page(), []
    page.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith((address[:22], "data:")) else wrong.append(asked.url))
    for _ in range(100):
        try:
            page.goto(address)
            break
        except Exception:  # the socket listens before the server answers
            time.sleep(0.1)
    yield page, folder, wrong
    context.close()
    serving.send_signal(signal.SIGINT)
    assert serving.wait(20) == 0
    serving.stdout.close()


def test_the_live_page_follows_a_real_training(live):
    page, folder, wrong = live
    assert "there is none yet" in page.locator(".verdict").inner_text()
    training = subprocess.Popen([sys.executable, "-c", TRAINING, str(folder / "a")], cwd=ROOT)
    try:
        until(page, lambda: latest(page) > 0)
        page.get_by_role("tab", name="σ rms").click()
        page.locator("table.sorted thead button", has_text="kind").click()
        before = latest(page)
        until(page, lambda: latest(page) > before + 5)
        assert page.get_by_role("tab", name="σ rms").get_attribute("aria-selected") == "true"
        assert page.locator("table.sorted th", has_text="kind").get_attribute("aria-sort") == "ascending"
        written(folder / "b", steps=9, alarms=(5,), created="2099-01-01T00:00:00+00:00")
        until(page, lambda: page.locator(".verdict").count() == 2)
        assert "look here b: Sigma collapse" in " ".join(page.locator(".verdict").nth(1).inner_text().split())
        assert page.locator(".plot").first.locator(".wide polyline").count() >= 2
    finally:
        os.kill(training.pid, signal.SIGKILL)
        training.wait()
    assert wrong == []
    run = store.read(folder / "a")  # what the browser saw is what the file holds, kill or not
    assert run.steps[-1]["step"] >= before + 5


def latest(page: Any) -> int:
    """The last step the page knows; 0 before the first."""
    said = re.search(r"up to step ([\d,]+)", page.locator("#live").inner_text())
    return int(said[1].replace(",", "")) if said else 0


def until(page: Any, true: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something to be seen; the page's policy forbids to wait inside it."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, page.locator("main").inner_text()[:500]
        page.wait_for_timeout(100)


def test_a_server_that_ends_is_said_and_the_page_stays(live, tmp_path):
    page, folder, _ = live
    written(folder / "a", steps=5)
    until(page, lambda: "up to step 5" in page.locator(".verdict").inner_text())
    page.route("**/news*", lambda route: route.abort())
    until(page, lambda: "lost" in page.locator("#live").get_attribute("class"))
    assert "does not answer" in page.locator("#live").inner_text()
    assert page.locator(".plot:visible").count() >= 3
