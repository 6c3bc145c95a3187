"""Chromium, begun once; every page is watched for errors, dialogs and requests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from normgauge.render.page import report


@dataclass
class Watched:
    """A page that is open, and what it did that it must not."""

    page: Any
    path: Path
    wrong: list[str] = field(default_factory=list)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install normgauge[dev]")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs a program called chromium")
    with api.sync_playwright() as play:
        opened = play.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        yield opened
        opened.close()


@pytest.fixture
def visit_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    """Open a page given as text, in a window of its own."""
    contexts = []

    def opened(
        text: str, width: int = 1400, script: bool = True, anchor: str = "", theme: str = "light", height: int = 0
    ) -> Watched:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        size = {"width": width, "height": height or (900 if width > 500 else 800)}
        contexts.append(browser.new_context(viewport=size, color_scheme=theme, java_script_enabled=script))
        watched = Watched(contexts[-1].new_page(), path)
        watch(watched)
        watched.page.goto(path.as_uri() + anchor)
        return watched

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def visit(visit_page: Callable[..., Watched], tmp_path: Path) -> Callable[..., Watched]:
    """Write a report of readings and open it."""

    def open_report(
        readings: Any, width: int = 1400, theme: str = "light", script: bool = True, **options: Any
    ) -> Watched:
        path = report(readings, tmp_path / "report.html", **options)
        return visit_page(path.read_text(encoding="utf-8"), width, script, theme=theme)

    return open_report


def watch(watched: Watched) -> None:
    """Write down console errors, exceptions, dialogs and every request beyond the file itself."""
    page, wrong, own = watched.page, watched.wrong, watched.path.as_uri()
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda asked: wrong.append(asked.url) if asked.url != own and asked.url[:5] != "data:" else None)
