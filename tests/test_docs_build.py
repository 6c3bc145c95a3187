"""The documentation builds without a warning, is whole, and asks nothing of other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import normgauge

DOCS = Path(__file__).parents[1] / "docs"
SIZE = 100_000  # bytes a picture may have
# what a browser fetches by itself when it opens a page; a plain <a href> is only followed when clicked
FETCHED = (
    r"<(?:script|img|iframe|source|video|audio|embed|input)\b[^>]*\bsrc(?:set)?=[\"']?\s*(?:https?:)?//",
    r"<link\b[^>]*\bhref=[\"']?\s*(?:https?:)?//",
    r"url\(\s*[\"']?\s*(?:https?:)?//",
    r"@import\s+[\"'](?:https?:)?//",
)


def pages() -> set[str]:
    """The names of all pages, without their endings."""
    return {
        path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md") if "_build" not in str(path)
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The pages, built with every warning an error."""
    for name in ("sphinx", "myst_nb", "furo"):
        pytest.importorskip(name, reason="the pages are built with normgauge[docs]")
    folder = tmp_path_factory.mktemp("html")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", DOCS, folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built(built):
    assert pages() <= {path.relative_to(built).with_suffix("").as_posix() for path in built.rglob("*.html")}


def test_every_page_is_in_the_index():
    told = "\n".join(re.findall(r"```\{toctree\}(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL))
    assert pages() - {"index"} == set(re.findall(r"^([\w/-]+)$", told, re.MULTILINE))


def test_every_link_between_pages_leads_somewhere(built):
    texts = {path: path.read_text(encoding="utf-8") for path in built.rglob("*.html")}
    anchors = {path: set(re.findall(r"\bid=\"([^\"]+)\"", text)) for path, text in texts.items()}
    seen = 0
    for path, text in texts.items():
        for target in re.findall(r"<a\b[^>]*\bhref=\"([^\":]+)\"", text):
            place, _, anchor = target.partition("#")
            there = (path.parent / place).resolve() if place else path
            assert there.exists(), f"{path.relative_to(built)} points to {target}"
            if anchor and there in anchors:
                assert anchor in anchors[there], f"{path.relative_to(built)} points to {target}"
            seen += 1
    assert seen > 500


def test_the_tutorials_show_what_they_printed(built):
    told = (built / "tutorials" / "batchnorm-or-layernorm.html").read_text(encoding="utf-8")
    assert "outputs moved by" in told and "bracket.svg" in told and "Traceback" not in told


def test_every_public_name_is_in_the_reference(built):
    told = (built / "api.html").read_text(encoding="utf-8")
    listed = {name for name in normgauge.__all__ if f'id="normgauge.{name}"' in told}
    assert set(normgauge.__all__) - listed == {"REGISTRY", "__version__", "testing"}


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
