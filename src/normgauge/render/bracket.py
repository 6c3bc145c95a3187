"""The bracket: for each reading the slope found, and the bounds above it, on one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10
from normgauge.render import svg
from normgauge.render.levels import layer_product
from normgauge.render.markup import Content, Markup
from normgauge.render.numbers import DOWN, UP, format_factor
from normgauge.render.svg import Axis, Shape

THICK = 12.0
PLAIN = 3  # decades up to which a factor is written out
Marks = tuple[float, float, float, float | None]
KEY = (
    ("tick found solid", "found"),
    ("tick balanced solid", "at most"),
    ("truth strong", "the truth lies between"),
    ("rest", "up to folded"),
    ("tick product", "layer by layer"),
    ("reference", "for comparison"),
)


@dataclass(frozen=True, slots=True)
class BracketRow:
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
    def marks(self) -> Marks:
        """Found, at most, folded and layer by layer, in decades."""
        one_by_one = layer_product(self.reading)
        return (
            self.reading.log_lower / LN10,
            self.reading.log_upper / LN10,
            self.reading.log_folded / LN10,
            None if one_by_one is None else one_by_one / LN10,
        )

    @property
    def numbers(self) -> str:
        """From the slope found to the upper bound, in full."""
        found, most = format_factor(self.reading.log_lower, DOWN), self.reading.log_upper
        return f"{found}, no finite bound" if most == math.inf else f"{found} to {format_factor(most, UP)}"


def bracket(rows: Sequence[BracketRow], shape: Shape = svg.WIDE) -> Markup:
    """Draw one horizontal bar a row, from the slope found to the upper and folded bounds; all numbers are factors.

    A line marks the bound taken layer by layer. What is infinite runs off the right edge, nothing found off the left.
    """
    longest = max(svg.text_width(row.numbers) for row in rows)
    label_room, number_room = (262.0, max(170.0, longest + 8)) if shape.wide else (4.0, 4.0)
    height = 28.0 if shape.wide else 40.0
    marks = [row.marks for row in rows]
    values = [v for row in marks for v in row if v is not None]
    axis = svg.level_axis(values, label_room + 10, shape.width - number_room - 12)
    bottom = 6 + height * len(rows)
    compared = any(row.kind == "beside" for row in rows)
    return svg.drawing(
        (shape.width, bottom + 40),
        shape.name,
        describe_bracket(rows),
        svg.uprights(axis.ticks(8 if shape.wide else 6, _factor), 4, bottom, shape.width),
        svg.text_line((axis.start + axis.end) / 2, bottom + 32, "times as much", "soft", "middle"),
        [_row(row, marks[index], axis, shape, 6 + height * index) for index, row in enumerate(rows)],
        key=[entry for entry in KEY if compared or entry[0] != "reference"],
    )


def _factor(decades: float) -> str:
    """A level of the axis as a factor: powers of ten; between them a level stays without words."""
    if decades != round(decades):
        return ""
    return format_factor(decades * LN10) if abs(decades) <= PLAIN else f"10^{decades:.0f}"


def describe_bracket(rows: Sequence[BracketRow]) -> str:
    """Describe the figure in words, for a screen reader."""
    told = "; ".join(
        f"{row.label}: found {row.numbers}"
        if row.reading.log_upper == math.inf
        else f"{row.label}: found {format_factor(row.reading.log_lower, DOWN)}, "
        f"at most {format_factor(row.reading.log_upper, UP)}"
        for row in rows
    )
    return f"Slopes found and bounds proved: {told}."


def _row(row: BracketRow, marks: Marks, axis: Axis, shape: Shape, y: float) -> Markup:
    found, most, folded = (format_factor(mark * LN10, way) for mark, way in zip(marks[:3], (DOWN, UP, UP), strict=True))
    middle, baseline = (y + 14, y + 18) if shape.wide else (y + 29, y + 14)
    tone = "ink" if row.kind == "now" else "soft"
    room = 258 if shape.wide else shape.width - 16 - svg.text_width(row.numbers)
    return svg.group(
        f"{row.label}: found {found}, at most {most}, folded {folded}",
        svg.text_line(4, baseline, svg.fit(row.label, room), tone),
        svg.text_line(shape.width - 4, baseline, row.numbers, tone, "end"),
        _bar(row, marks, axis, middle),
        class_=f"row {row.kind}",
    )


def _bar(row: BracketRow, marks: Marks, axis: Axis, middle: float) -> Content:
    """The bar and its ticks; an arrow where there is no end to put a tick at."""
    found, balanced, folded, one_by_one = marks
    x, top = axis.at(found), axis.at(balanced)

    def tick(at: float, half: float, kind: str) -> Markup:
        return svg.line(at, middle - half, at, middle + half, kind)

    bar = svg.box(x, middle - THICK / 2, top - x, THICK, "reference" if row.kind == "beside" else "truth strong")
    rest = svg.box(top, middle - 2.5, axis.at(folded) - top, 5, "rest")
    high = svg.arrow(top, middle, 1, 0) if balanced == math.inf else (rest, tick(top, 9, "balanced solid"))
    low = svg.arrow(x, middle, -1, 0) if found == -math.inf else tick(x, 9, "found solid")
    alone = None if one_by_one is None or math.isinf(one_by_one) else tick(axis.at(one_by_one), 7, "product")
    return bar, high, low, alone
