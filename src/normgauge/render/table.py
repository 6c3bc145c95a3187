"""What a table is, and its forms on a page, in a notebook and in Markdown; `console` draws it on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from normgauge.render.markup import Markup, in_row, tag
from normgauge.render.numbers import ABSENT

MARKS = ("\\", "|", "*", "_", "<", "[", "]", "~")  # what Markdown reads
Attributes = Mapping[str, str | float | None]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table to draw: headers, rows of the same length, and which columns hold numbers.

    A cell is words, or an element where only a page is to show it. The first ``keys`` columns name the row, and stand
    before every part of a table that is too wide.
    """

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    footer: str = ""
    keys: int = 1

    def without_empty(self) -> Grid:
        """The grid without the columns in which nothing stands; whole where it has no row."""
        if not self.rows:
            return self
        said = (any(row[i] not in ("", ABSENT) for row in self.rows) for i in range(len(self.headers)))
        return self.without(*(header for header, some in zip(self.headers, said, strict=True) if not some))

    def without(self, *names: str) -> Grid:
        """The grid without the columns of these headers."""
        return self.only([i for i, header in enumerate(self.headers) if header not in names])

    def only(self, kept: Sequence[int]) -> Grid:
        """The grid with the columns at these places alone."""
        headers, *rows = (tuple(row[i] for i in kept) for row in (self.headers, *self.rows))
        numeric = frozenset(new for new, old in enumerate(kept) if old in self.numeric)
        return replace(self, headers=headers, rows=tuple(rows), numeric=numeric)


def html_table(
    grid: Grid,
    *,
    label: str = "",
    named: int = 0,
    heads: Sequence[Attributes] = (),
    rows: Sequence[Attributes] = (),
    **attributes: str | None,
) -> Markup:
    """A grid as an HTML table with a scrollbar of its own where the screen is narrow.

    Args:
        grid: what to draw.
        label: what a screen reader calls it; its title where empty.
        named: the column that names the row.
        heads: attributes of the headers.
        rows: attributes of the rows.
        attributes: of the table.
    """
    numeric = ["n" if i in grid.numeric else None for i in range(len(grid.headers))]
    kinds = [tag("th", scope="row") if i == named else tag("td", class_=kind) for i, kind in enumerate(numeric)]
    top = [
        tag("th", head, scope="col", class_=kind, **more)
        for head, kind, more in zip(grid.headers, numeric, heads or [{}] * len(numeric), strict=True)
    ]
    body = [
        tag("tr", in_row(kinds, cells), **more)
        for cells, more in zip(grid.rows, rows or [{}] * len(grid.rows), strict=True)
    ]
    inside = (tag("caption", grid.title), tag("thead", tag("tr", top)), tag("tbody", body))
    region = {"role": "region", "aria-label": label or grid.title, "tabindex": "0"}
    return tag("div", tag("table", inside, **attributes), class_="scroll", **region)


def bare_table(grid: Grid) -> Markup:
    """A table without anything a page would have to know of, for a notebook."""
    classes = ["ng-n" if i in grid.numeric else None for i in range(len(grid.headers))]
    heads, cells = ([tag(name, class_=kind) for kind in classes] for name in ("th", "td"))
    body = (tag("tr", in_row(cells, row)) for row in grid.rows)
    return tag("table", tag("thead", tag("tr", in_row(heads, grid.headers))), tag("tbody", body))


def markdown_table(grid: Grid) -> list[str]:
    """The lines of a table in Markdown."""
    drawn = ["| " + " | ".join(map(markdown_words, row)) + " |" for row in (grid.headers, *grid.rows)]
    return [drawn[0], "|" + " --- |" * len(grid.headers), *drawn[1:]]


def markdown_words(text: str) -> str:
    """Plain words on one line: signs that Markdown would read are escaped."""
    shown = " ".join(text.split())
    for sign in MARKS:
        shown = shown.replace(sign, f"\\{sign}")
    return shown
