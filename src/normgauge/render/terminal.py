"""Sentences and tables as lines that fit a width: text wraps, and a table that needs more goes on below itself."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from normgauge.render.numbers import ABSENT
from normgauge.render.table import Grid

GAP = 2  # characters between columns
NAME_WIDTH, KIND_WIDTH = 24, 12  # what a column of text keeps, where there is little room


def sentence_lines(text: str, width: int) -> Iterator[str]:
    """The lines of a text, each wrapped under its own indentation; a word longer than a line, such as a path, is whole.

    >>> list(sentence_lines("  one two three", 10))
    ['  one two', '  three']
    """
    for line in text.split("\n"):
        body = line.lstrip(" ")
        indent = " " * min(len(line) - len(body), width // 2)
        yield from textwrap.wrap(
            body, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [""]


def grid_lines(grid: Grid, width: int) -> Iterator[str]:
    """The lines of a table without its title: headers, a rule, rows; below itself with the columns that are left.

    Below, a row that has nothing there is not named again.
    """
    for number, columns in enumerate(_parts(grid, width)):
        if number:
            yield ""
        rows = [row for row in grid.rows if not number or any(row[i] not in ("", ABSENT) for i in columns[grid.keys :])]
        yield from _part_lines(replace(grid, rows=tuple(rows)), columns, width)


def _parts(grid: Grid, width: int) -> Iterator[list[int]]:
    """The columns that stand side by side; those that name the row begin every part."""
    least, keys = _least(grid), [*range(grid.keys)]
    part = keys
    for column in range(len(keys), len(least)):
        if len(part) > len(keys) and sum(least[i] for i in part) + least[column] + GAP * len(part) > width:
            yield part
            part = keys
        part = [*part, column]
    yield part


def _longest(grid: Grid) -> list[int]:
    return [max(len(line[i]) for line in (grid.headers, *grid.rows)) for i in range(len(grid.headers))]


def _least(grid: Grid) -> list[int]:
    """The width each column needs: numbers in full, words up to a limit beyond which they wrap."""
    limits = [NAME_WIDTH, *[KIND_WIDTH] * len(grid.headers)]
    return [
        n if i in grid.numeric else min(n, limit)
        for i, (n, limit) in enumerate(zip(_longest(grid), limits, strict=False))
    ]


def _widths(grid: Grid, columns: Sequence[int], width: int) -> dict[int, int]:
    """Widths that fit, as far as they can: the widest gives way first, none below what it needs."""
    longest, least = _longest(grid), _least(grid)
    widths = {i: longest[i] for i in columns}
    while sum(widths.values()) + GAP * (len(widths) - 1) > width:
        yielding = [(size, i) for i, size in widths.items() if size > least[i]]
        if not yielding:
            break
        widths[max(yielding)[1]] -= 1
    return widths


def _part_lines(grid: Grid, columns: Sequence[int], width: int) -> Iterator[str]:
    widths = _widths(grid, columns, width)
    yield from _row_lines(grid, grid.headers, widths)
    yield "─" * (sum(widths.values()) + GAP * (len(widths) - 1))
    for row in grid.rows:
        yield from _row_lines(grid, row, widths)


def _row_lines(grid: Grid, row: Sequence[str], widths: dict[int, int]) -> Iterator[str]:
    cells = {i: _cell_lines(row[i], size) for i, size in widths.items()}
    for number in range(max(map(len, cells.values()))):
        parts = (
            (lines[number] if number < len(lines) else "").rjust(widths[i])
            if i in grid.numeric
            else (lines[number] if number < len(lines) else "").ljust(widths[i])
            for i, lines in cells.items()
        )
        yield (" " * GAP).join(parts).rstrip()


def _cell_lines(text: str, size: int) -> list[str]:
    """A cell in lines of a size; a dotted name breaks behind its dots, where its parts are short enough."""
    parts = text.split(".")
    if len(text) <= size or " " in text or len(parts) == 1 or max(map(len, parts)) >= size:
        return textwrap.wrap(text, max(size, 1), break_on_hyphens=False) if len(text) > size else [text]
    lines = [""]
    for part in (*(f"{part}." for part in parts[:-1]), parts[-1]):
        lines[-1:] = [lines[-1] + part] if len(lines[-1] + part) <= size else [lines[-1], part]
    return lines
