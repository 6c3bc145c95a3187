"""Readings as text for a terminal: with rich where it is installed, in plain columns where it is not."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TextIO

from normgauge.core.reading import Reading
from normgauge.render import table, verdict
from normgauge.render.numbers import plural
from normgauge.render.table import Grid

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 120
NAME_WIDTH, KIND_WIDTH = 24, 12  # where a narrow terminal begins to fold text
GAP = 3  # characters between columns
Block = str | Grid


def text(reading: Reading, every: bool = False) -> str:
    """One reading as the text that ``print(reading)`` shows."""
    stream = io.StringIO()
    show([reading], stream, every=every, width=WIDTH)
    return stream.getvalue().rstrip("\n")


def show(readings: Sequence[Reading], stream: TextIO, *, every: bool = False, width: int | None = None) -> None:
    """Write readings of one network, one for each scope, the first in full."""
    draw(blocks(readings, every), stream, width)


def blocks(readings: Sequence[Reading], every: bool = False) -> list[Block]:
    """Head, totals, layers of the first reading, then a paragraph for each scope and the published products."""
    first = readings[0]
    batch = f", {plural(len(first.samples), 'sample')}" if first.samples else ""
    measured = "" if first.input_name == "input" else f", measured in {first.input_name}"
    alarms = [verdict.alarm(reading) for reading in readings if reading.log_refuted is not None]
    parts: list[Block] = [*alarms, f"{first.model}, mode {first.mode}{measured}{batch}", table.totals(readings)]
    if first.layers:
        parts.append(table.layers(first, every))
        parts.append("")
    told = set(alarms)  # scopes share most of their notes
    for reading in readings:
        sentences = [sentence for sentence in verdict.verdict(reading) if sentence not in told]
        told.update(sentences)
        parts.append(f"{reading.scope}: {verdict.gap_line(reading)}")
        parts.extend(f"  {sentence}" for sentence in sentences)
    balance = verdict.balance_sentence(first)
    if balance:
        parts.append(balance)
    if first.gauges:
        parts.append("Minimised over: " + "; ".join(first.gauges) + ".")
    if first.published:
        parts.append(table.published(first))
    return parts


def draw(parts: Sequence[Block], stream: TextIO, width: int | None = None) -> None:
    """Draw blocks on a stream."""
    try:
        from rich.console import Console
    except ImportError:
        stream.writelines((part if isinstance(part, str) else _plain(part)) + "\n" for part in parts)
        return
    if width is None:
        width = Console(file=stream).width if stream.isatty() else WIDTH

    terminal, buffer = stream.isatty(), io.StringIO()  # a buffer, because rich ends the process at a closed pipe

    def console(least: int = 0) -> Console:
        size = max(width, least)
        return Console(file=buffer, force_terminal=terminal, width=size, markup=False, highlight=False, emoji=False)

    for part in parts:
        if isinstance(part, str):
            console().print(part)
            continue
        console().print("\n" + part.title, style="bold")
        # rich crops what does not fit; a line that a narrow terminal wraps is ugly, a number that is not there is wrong
        size = max(width, sum(_least(part)) + GAP * len(part.headers))
        console(least=size).print(_rich(part, size))
        if part.footer:
            console().print(part.footer, style="dim")
    stream.write(buffer.getvalue())


def _least(grid: Grid) -> list[int]:
    """The width each column needs: numbers in full, names up to a limit beyond which they fold."""
    longest = _longest(grid)
    limits = [NAME_WIDTH if i == 0 else KIND_WIDTH for i in range(len(longest))]
    return [n if i in grid.numeric else min(n, limits[i]) for i, n in enumerate(longest)]


def _longest(grid: Grid) -> list[int]:
    return [max(len(line[i]) for line in (grid.headers, *grid.rows)) for i in range(len(grid.headers))]


def _widths(grid: Grid, size: int) -> list[int]:
    """Column widths that fit: the widest gives way first, none below what it needs, which rich does not see to.

    Args:
        grid: the table.
        size: characters there are, at least what all columns need.
    """
    widths, least = _longest(grid), _least(grid)
    while sum(widths) + GAP * (len(widths) - 1) > size:
        _, widest = max((width, i) for i, width in enumerate(widths) if width > least[i])
        widths[widest] -= 1
    return widths


def _rich(grid: Grid, size: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, (header, given) in enumerate(zip(grid.headers, _widths(grid, size), strict=True)):
        numeric = index in grid.numeric
        justify: Literal["left", "right"] = "right" if numeric else "left"
        drawn.add_column(Text(header), justify=justify, no_wrap=numeric, overflow="fold", width=given)
    for row in grid.rows:
        drawn.add_row(*(Text(cell) for cell in row))  # Text: a layer called "[red]" is a name, not markup
    return drawn


def _plain(grid: Grid) -> str:
    lines = [grid.headers, *grid.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(grid.headers))]
    drawn = [
        "  ".join(
            cell.rjust(size) if i in grid.numeric else cell.ljust(size)
            for i, (cell, size) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join(["", grid.title, *drawn, *([grid.footer] if grid.footer else [])])
