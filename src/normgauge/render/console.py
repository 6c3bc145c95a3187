"""Text and tables on a terminal, with rich where it is installed, in plain columns where it is not; readings too."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TextIO

from normgauge.core.fields import declared_fields
from normgauge.core.reading import InverseSigma, Published, Reading
from normgauge.render import verdict
from normgauge.render.layertable import reading_layers
from normgauge.render.markup import clean
from normgauge.render.numbers import ABSENT, format_factor, format_power, plural, scope_words
from normgauge.render.table import Grid

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 120
NAME_WIDTH, KIND_WIDTH = 24, 12  # where a narrow terminal begins to fold text
GAP = 3  # characters between columns
Block = str | Grid
PRODUCTS = {  # under names people know; the keys of the JSON form stay as they are
    **{field.key.removeprefix("log10_"): field.told.sentence for field in declared_fields(Published)},
    **{f"prod_inv_sigma, {end.key}": end.told.sentence for end in declared_fields(InverseSigma)},
}


def reading_text(reading: Reading, every: bool = False) -> str:
    """One reading as the text that ``print(reading)`` shows."""
    return as_text(reading_blocks([reading], every))


def reading_blocks(readings: Sequence[Reading], every: bool = False) -> list[Block]:
    """Head, totals, layers of the first reading, then a paragraph for each scope and the published products."""
    first = readings[0]
    batch = f", {plural(len(first.samples), 'sample')}" if first.samples else ""
    measured = "" if first.input_name == "input" else f", measured in {first.input_name}"
    alarms = [verdict.refutation_sentence(reading) for reading in readings if reading.log_refuted is not None]
    parts: list[Block] = [*alarms, f"{first.model}, mode {first.mode}{measured}{batch}", reading_totals(readings)]
    if first.layers:
        parts += [reading_layers(first, every), ""]
    told = set(alarms)  # scopes share most of their notes
    for reading in readings:
        sentences = [sentence for sentence in verdict.reading_verdict(reading) if sentence not in told]
        told.update(sentences)
        parts.append(f"{reading.scope}: {verdict.gap_line(reading)}")
        parts.extend(f"  {sentence}" for sentence in sentences)
    parts += filter(None, [verdict.balance_sentence(first)])
    if first.gauges:
        parts.append("Minimised over: " + "; ".join(first.gauges) + ".")
    if first.published:
        parts.append(printed_products(first))
    return parts


def reading_totals(readings: Sequence[Reading]) -> Grid:
    """One labelled upper bound for each scope beside the slope found there, and the largest slope found."""
    rows = [
        (
            f"at most, {scope_words(r.scope)}",
            str(r.scope),
            format_power(r.log_upper),
            verdict.evidence_words(r),
            format_factor(r.log_lower),
        )
        for r in readings
    ]
    found = max(readings, key=lambda r: r.log_lower)
    rows.append(
        ("at least, the largest slope found", str(found.scope), format_power(found.log_lower), "observed", ABSENT)
    )
    headers = ("", "scope", "factor", "evidence", "found there")
    return Grid("How much a small change of the input can grow", headers, tuple(rows), frozenset({2, 4}))


def printed_products(reading: Reading) -> Grid:
    """The papers' products, labelled as what they are, in decades; those without a name here are shown as they are."""
    title = "Published quantities: gauge-dependent, a rescaling that leaves the function alone moves them"
    found = reading.products.items()
    rows = tuple((PRODUCTS.get(name, name), ABSENT if log is None else f"{log:.2f}") for name, log in found)
    return Grid(title, ("quantity", "log10"), rows, frozenset({1}))


def as_text(parts: Sequence[Block]) -> str:
    """Blocks as plain text, as wide as usual."""
    stream = io.StringIO()
    draw_blocks(parts, stream, WIDTH)
    return stream.getvalue().rstrip("\n")


def draw_blocks(parts: Sequence[Block], stream: TextIO, width: int | None = None) -> None:
    """Draw blocks on a stream; nothing in them can steer the terminal.

    Args:
        parts: sentences and tables.
        stream: where to.
        width: of the terminal; its own where None.
    """
    parts = [clean(part) if isinstance(part, str) else _cleaned(part) for part in parts]
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
        for piece in fitting(part, width):
            # rich crops what does not fit; a wrapped line is ugly, a number that is not there is wrong
            size = max(width, sum(_least(piece)) + GAP * (len(piece.headers) - 1))
            console(least=size).print(_rich(piece, size))
        if part.footer:
            console().print(part.footer, style="dim")
    stream.write(buffer.getvalue())


def _cleaned(grid: Grid) -> Grid:
    headers, *rows = (tuple(map(clean, row)) for row in (grid.headers, *grid.rows))
    return Grid(clean(grid.title), headers, tuple(rows), grid.numeric, clean(grid.footer))


def _least(grid: Grid) -> list[int]:
    """The width each column needs: numbers in full, names up to a limit beyond which they fold."""
    longest = _longest(grid)
    limits = [NAME_WIDTH if i == 0 else KIND_WIDTH for i in range(len(longest))]
    return [n if i in grid.numeric else min(n, limits[i]) for i, n in enumerate(longest)]


def fitting(grid: Grid, width: int) -> list[Grid]:
    """The table in as many pieces as it takes to fit: each has the first column and some of the others."""
    least = _least(grid)
    pieces: list[list[int]] = [[]]
    for i in range(1, len(least)):
        if pieces[-1] and least[0] + sum(GAP + least[k] for k in (*pieces[-1], i)) > width:
            pieces.append([])
        pieces[-1].append(i)
    return [grid.only([0, *piece]) for piece in pieces]


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
    widths = _longest(grid)
    drawn = [
        "  ".join(
            cell.rjust(size) if i in grid.numeric else cell.ljust(size)
            for i, (cell, size) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join(["", grid.title, *drawn, *([grid.footer] if grid.footer else [])])
