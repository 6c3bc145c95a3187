"""The frame of every page."""

from __future__ import annotations

import pytest

from normgauge.core.errors import InputError
from normgauge.render.document import (
    DARK,
    LIGHT,
    NOTEBOOK,
    asset,
    document,
    fact_list,
    figure_css,
    listing,
    paragraphs,
    section,
    write_file,
)


def test_every_theme_has_every_colour():
    assert set(LIGHT) == set(DARK) == set(NOTEBOOK)
    assert "var(" not in figure_css() and "var(" not in figure_css(NOTEBOOK, ".x")
    assert all(f"--{name}:" in document("", "", "") for name in LIGHT)


def test_only_a_live_page_may_ask_its_server_for_more():
    page = document("T<", "s", "content", ("page", "runs"))
    assert "connect-src" not in page and "connect-src 'self';" in document("", "", "", connect="'self'")
    assert "<title>T&lt;</title>" in page and asset("runs.css") in page


def test_parts_without_content_are_nothing():
    assert section("head") == section("head", None, "") == listing([]) == paragraphs([]) == ""
    assert section("head", "x") == "<section><h2>head</h2>x</section>"
    facts = fact_list([("a", "one"), ("b", ""), ("c", ["two", "10^3"])])
    assert facts.count("<dt>") == 2 and "<dd>10<sup>3</sup></dd>" in facts and "b</dt>" not in facts


def test_what_cannot_be_written_is_said(tmp_path):
    assert write_file("σ", tmp_path / "a.html").read_text(encoding="utf-8") == "σ"
    with pytest.raises(InputError, match=r"cannot write .*none/a.html: No such file or directory; give a file in"):
        write_file("", tmp_path / "none" / "a.html")
