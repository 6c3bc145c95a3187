"""Grids as HTML, as a notebook's table and as Markdown."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from normgauge.render.markup import tag
from normgauge.render.table import Grid, bare_table, html_table, markdown_table

GRID = Grid("Sizes", ("name", "size", "note"), (("a<b", "1", ""), ("c|d", "2", "·")), frozenset({1}))


def test_columns_are_left_out_by_name_or_where_nothing_stands():
    kept = GRID.without_empty()
    assert kept.headers == ("name", "size") and kept.rows == (("a<b", "1"), ("c|d", "2")) and kept.numeric == {1}
    assert GRID.without("name") == Grid("Sizes", ("size", "note"), (("1", ""), ("2", "·")), frozenset({0}))


def test_a_page_gets_headers_names_of_rows_and_attributes():
    root = ElementTree.fromstring(html_table(GRID, label="all", rows=[{"id": "x"}, {"id": "y"}], class_="wide"))
    assert root.get("aria-label") == "all" and root.find("table").get("class") == "wide"
    assert [row.get("id") for row in root.find("table/tbody")] == ["x", "y"]
    assert [head.text for head in root.iter("th") if head.get("scope") == "row"] == ["a<b", "c|d"]
    assert [head.get("class") for head in root.iter("th") if head.get("scope") == "col"] == [None, "n", None]
    second = ElementTree.fromstring(html_table(GRID, named=1))
    assert second.get("aria-label") == "Sizes"
    assert [head.text for head in second.iter("th") if head.get("scope") == "row"] == ["1", "2"]


def test_words_are_escaped_and_elements_stay_elements():
    grid = Grid("", ("h",), (("<i>",), (tag("i", "x"),)))
    for drawn in (html_table(grid), bare_table(grid)):
        assert "&lt;i&gt;" in drawn and "<i>x</i>" in drawn


def test_markdown_is_a_row_a_line_without_signs_of_its_own():
    assert markdown_table(GRID) == [
        "| name | size | note |", "| --- | --- | --- |", r"| a\<b | 1 |  |", r"| c\|d | 2 | · |",
    ]  # fmt: skip
    assert markdown_table(Grid("", ("h",), (("two\nlines  *so*",),)))[-1] == r"| two lines \*so\* |"
