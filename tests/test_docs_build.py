"""The documentation builds without a warning, is whole, and asks nothing of other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
SIZE = 100_000  # bytes a picture may have
# what a browser fetches by itself when it opens a page; a plain <a href> is only followed when clicked
FETCHED = (
    r"<(?:script|img|iframe|source|video|audio|embed|input)\b[^>]*\bsrc(?:set)?=[\"']?\s*(?:https?:)?//",
    r"<link\b[^>]*\bhref=[\"']?\s*(?:https?:)?//",
    r"url\(\s*[\"']?\s*(?:https?:)?//",
    r"@import\s+[\"'](?:https?:)?//",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The pages, built with every warning an error."""
    for name in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(name, reason="the pages are built with normgauge[docs]")
    folder = tmp_path_factory.mktemp("html")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", DOCS, folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built(built):
    assert {path.stem for path in DOCS.glob("*.md")} <= {path.stem for path in built.glob("*.html")}


def test_every_page_is_in_the_index():
    told = "\n".join(re.findall(r"```\{toctree\}(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL))
    assert {path.stem for path in DOCS.glob("*.md")} - {"index"} == set(re.findall(r"^([\w-]+)$", told, re.MULTILINE))


def test_the_pages_ask_nothing_of_other_hosts(built):
    read = [path for path in built.rglob("*") if path.suffix in (".html", ".css", ".svg")]
    assert len(read) > 10
    for path in read:
        text = path.read_text(encoding="utf-8")
        for pattern in FETCHED:
            assert not re.search(pattern, text), f"{path.relative_to(built)}: {pattern}"


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/x.js"></script>',
        "<link rel=stylesheet href=//fonts.example/css>",
        "body { background: url('http://a.example/b.png') }",
        '@import "https://a.example/b.css";',
    ],
    ids=["script", "link", "url", "import"],
)
def test_a_request_would_be_seen(text):
    assert any(re.search(pattern, text) for pattern in FETCHED)


def test_pictures_are_small_and_used():
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    pictures = sorted((DOCS / "images").iterdir())
    assert pictures
    for path in pictures:
        assert path.stat().st_size < SIZE, f"{path.name} has {path.stat().st_size} bytes"
        assert f"images/{path.name}" in pages, f"no page shows {path.name}"
