"""The bracket: for each reading the slope found, the bound above it and the median sample, on one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10
from normgauge.render import svg
from normgauge.render.markup import Content, Markup
from normgauge.render.numbers import DOWN, UP, format_factor, plural
from normgauge.render.svg import ROOM, Axis, Shape
from normgauge.render.verdict import median_words, other_weights

THICK = 12.0
SEEN = 2.0  # pixels of a bar that can be told from a line
LEAST = 0.2  # decades that an axis spans
KEY = (
    ("tick found solid", "found"),
    ("tick balanced solid", "at most"),
    ("truth strong", "the truth lies between"),
    ("tick median", "the median sample"),
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
    def marks(self) -> tuple[float, ...]:
        """Found and at most, then both ends of the median sample where there is one, in decades."""
        median = self.reading.log_median
        ends = [self.reading.log_lower, self.reading.log_upper, *((median.lo, median.hi) if median else ())]
        return tuple(end / LN10 for end in ends)

    @property
    def numbers(self) -> str:
        """From the slope found to the upper bound, in full, and the median."""
        found, most, median = format_factor(self.reading.log_lower, DOWN), self.reading.log_upper, self.median
        ends = f"{found}, no finite bound" if most == math.inf else f"{found} to {format_factor(most, UP)}"
        return f"{ends}; median {median}" if median else ends

    @property
    def median(self) -> str:
        """The median sample in words; empty where there is none."""
        return median_words(self.reading)


def bracket(rows: Sequence[BracketRow], shape: Shape = svg.WIDE) -> Markup:
    """Draw one horizontal bar a row, from the slope found to the upper bound; all numbers are factors.

    What is infinite runs off the right edge, nothing found off the left.
    """
    longest = max(svg.text_width(row.numbers) for row in rows)
    label_room, number_room = (262.0, max(170.0, longest + 8)) if shape.wide else (4.0, 4.0)
    height = 28.0 if shape.wide else 40.0
    marks = [row.marks for row in rows]
    axis = _axis([v for row in marks for v in row], label_room + 10, shape.width - number_room - 12)
    bottom = 6 + height * len(rows)
    shown = {"tick found solid", "tick balanced solid"}
    shown |= (
        {"truth strong"} if any(axis.pixel(most) - axis.pixel(found) > SEEN for found, most, *_ in marks) else set()
    )
    shown |= {"tick median"} if any(row.median for row in rows) else set()
    shown |= {"reference"} if any(row.kind == "beside" for row in rows) else set()
    return svg.drawing(
        (shape.width, bottom + 40),
        shape.name,
        describe_bracket(rows),
        svg.uprights(axis.ticks(8 if shape.wide else 6), 4, bottom, shape.width),
        svg.text_line(shape.width / 2, bottom + 32, _told(rows, shape.width - 8), "soft", "middle"),
        [_row(row, marks[index], axis, shape, 6 + height * index) for index, row in enumerate(rows)],
        key=[entry for entry in KEY if entry[0] in shown],
    )


def _axis(values: Sequence[float], start: float, end: float) -> Axis:
    """An axis that holds every finite decade, with more room on the side of an infinite one."""
    finite = [v for v in values if math.isfinite(v)] or [0.0]
    span = max(max(finite) - min(finite), LEAST)
    below, above = (5 * ROOM * span if infinite in values else ROOM * span for infinite in (-math.inf, math.inf))
    return Axis(((min(finite) - below, start), (min(finite) + span + above, end)), logarithmic=True)


def _told(rows: Sequence[BracketRow], room: float) -> str:
    """What the axis counts; where there is room for it at how many samples, and that one training is one."""
    counts = {len(row.reading.samples) for row in rows if row.median}
    at = f", at the steepest of {plural(counts.pop(), 'sample')} and at their median" if len(counts) == 1 else ""
    once = "; one training of each" if other_weights([row.reading for row in rows]) else ""
    short = "how many times a small change grows"
    return next((long for long in (f"{short}{at}{once}", f"{short}{once}") if svg.text_width(long) <= room), short)


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


def _row(row: BracketRow, marks: Sequence[float], axis: Axis, shape: Shape, y: float) -> Markup:
    middle, baseline = (y + 14, y + 18) if shape.wide else (y + 29, y + 14)
    tone = "ink" if row.kind == "now" else "soft"
    room = 258 if shape.wide else shape.width - 16 - svg.text_width(row.numbers)
    return svg.group(
        f"{row.label}: found {row.numbers}",
        svg.text_line(4, baseline, svg.fit(row.label, room), tone),
        svg.text_line(shape.width - 4, baseline, row.numbers, tone, "end"),
        _bar(row, marks, axis, middle),
        class_=f"row {row.kind}",
    )


def _bar(row: BracketRow, marks: Sequence[float], axis: Axis, middle: float) -> Content:
    """The bar, a tick up from it at the bound and one down at the slope found; an arrow where there is no end."""
    found, balanced, *median = marks
    x, top = axis.pixel(found), axis.pixel(balanced)

    def tick(at: float, end: float, kind: str) -> Markup:
        return svg.line(at, middle, at, middle + end, kind)

    bar = svg.box(x, middle - THICK / 2, top - x, THICK, "reference" if row.kind == "beside" else "truth strong")
    high = svg.arrow(top, middle, 1, 0) if balanced == math.inf else tick(top, -9, "balanced solid")
    low = svg.arrow(x, middle, -1, 0) if found == -math.inf else tick(x, 9, "found solid")
    ends = [axis.pixel(end) for end in median]
    rough = svg.box(ends[0], middle - 1, ends[1] - ends[0], 2, "rest") if ends and ends[1] - ends[0] > SEEN else None
    return bar, rough, high, low, [(tick(end, 7, "median"), tick(end, -7, "median")) for end in ends[:1]]
