"""The bracket: for each reading the slope found, and the bounds above it, on one axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10
from normgauge.render import svg
from normgauge.render.levels import product
from normgauge.render.numbers import decades, factor
from normgauge.render.svg import Scale, Shape

THICK = 12.0
KEY = (
    ("tick found solid", "found"),
    ("tick balanced solid", "balanced"),
    ("truth strong", "the truth lies between"),
    ("rest", "up to folded"),
    ("tick product", "layer by layer"),
    ("reference", "for comparison"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One row: what is measured here, or a reference beside it.

    Attributes:
        label: in words.
        reading: whose bounds.
        kind: ``now`` for the one the page speaks of, ``beside`` for a reference, else empty.
    """

    label: str
    reading: Reading
    kind: str = ""

    @property
    def marks(self) -> tuple[float, float, float, float | None]:
        """Found, balanced, folded and layer by layer, in decades."""
        one_by_one = product(self.reading)
        return (
            self.reading.log_lower / LN10,
            self.reading.log_upper / LN10,
            self.reading.log_folded / LN10,
            None if one_by_one is None else one_by_one / LN10,
        )

    @property
    def numbers(self) -> str:
        """From the slope found to the balanced bound, in full."""
        found, most = factor(self.reading.log_lower), self.reading.log_upper
        return f"{found}, no finite bound" if most == math.inf else f"{found} to {factor(most)}"


def bracket(rows: Sequence[Row], shape: Shape = svg.WIDE) -> str:
    """Draw one horizontal bar a row, from the slope found to the balanced and folded bounds.

    A line marks the bound taken layer by layer. What is infinite runs off the right edge, nothing found off the left.
    """
    longest = max(svg.text_width(row.numbers) for row in rows)
    label_room, number_room = (262.0, max(170.0, longest + 8)) if shape.wide else (4.0, 4.0)
    height = 28.0 if shape.wide else 40.0
    values = [v for row in rows for v in row.marks if v is not None]
    axis = svg.scale(values, label_room + 10, shape.width - number_room - 12)
    bottom = 6 + height * len(rows)
    parts = list(_grid(axis, bottom, 8 if shape.wide else 6))
    for index, row in enumerate(rows):
        parts += _row(row, axis, shape, 6 + height * index)
    swatches, taken = svg.legend(_key(rows), bottom + 40, 4, shape.width - 4)
    return svg.drawing(shape.width, bottom + taken + 44, shape.name, describe(rows), [*parts, *swatches])


def describe(rows: Sequence[Row]) -> str:
    """The figure in words."""
    told = "; ".join(
        f"{row.label}: found {row.numbers}"
        if row.reading.log_upper == math.inf
        else f"{row.label}: found {factor(row.reading.log_lower)}, at most {factor(row.reading.log_upper)}"
        for row in rows
    )
    return f"Slopes found and bounds proved: {told}."


def _key(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The entries of what is drawn."""
    compared = any(row.kind == "beside" for row in rows)
    return [entry for entry in KEY if compared or entry[0] != "reference"]


def _grid(axis: Scale, bottom: float, most: int) -> Iterator[str]:
    for value in svg.ticks(axis, most):
        x = axis.at(value)
        yield svg.line(x, 4, x, bottom, "zero" if value == 0 else "grid")
        yield svg.text(x, bottom + 15, f"{value:g}", "soft", "middle")
    yield svg.text((axis.start + axis.end) / 2, bottom + 32, "log10 of the factor", "soft", "middle")


def _row(row: Row, axis: Scale, shape: Shape, y: float) -> Iterator[str]:
    found, balanced, folded, _ = (None if mark is None else decades(mark * LN10) for mark in row.marks)
    told = f"{row.label}: found {found}, balanced {balanced}, folded {folded}"
    yield f'<g class="row {row.kind}"><title>{escape(told)}</title>'
    middle = y + (14 if shape.wide else 29)
    yield from _words(row, shape, middle + 4 if shape.wide else y + 14)
    yield from _bar(row, axis, middle)
    yield "</g>"


def _words(row: Row, shape: Shape, y: float) -> Iterator[str]:
    tone = "ink" if row.kind == "now" else "soft"
    room = 258 if shape.wide else shape.width - 16 - svg.text_width(row.numbers)
    yield svg.text(4, y, svg.fit(row.label, room), tone)
    yield svg.text(shape.width - 4, y, row.numbers, tone, "end")


def _bar(row: Row, axis: Scale, middle: float) -> Iterator[str]:
    """The bar and its ticks; an arrow where there is no end to put a tick at."""
    found, balanced, folded, one_by_one = row.marks
    x, top = axis.at(found), axis.at(balanced)
    yield svg.box(x, middle - THICK / 2, top - x, THICK, "reference" if row.kind == "beside" else "truth strong")
    if balanced == math.inf:
        yield svg.arrow(top, middle, 1, 0)
    else:
        yield svg.box(top, middle - 2.5, axis.at(folded) - top, 5, "rest")
        yield svg.line(top, middle - 9, top, middle + 9, "balanced solid")
    if found == -math.inf:
        yield svg.arrow(x, middle, -1, 0)
    else:
        yield svg.line(x, middle - 9, x, middle + 9, "found solid")
    if one_by_one is not None and math.isfinite(one_by_one):
        at = axis.at(one_by_one)
        yield svg.line(at, middle - 7, at, middle + 7, "product")
