"""The bracket: for each reading the slope found, the bound above it and the median sample, on one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from normgauge.core.compare import apart_readings
from normgauge.core.interval import LogInterval
from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10
from normgauge.render import svg
from normgauge.render.markup import Content, Markup
from normgauge.render.numbers import format_between, plural
from normgauge.render.svg import ROOM, Axis, Shape
from normgauge.render.trainings import (
    median_slopes,
    middle_slope,
    reading_slopes,
    slope_lines,
    slope_words,
    steepest_slopes,
)
from normgauge.render.verdict import (
    bracket_encloses,
    edit_contradicts,
    found_words,
    median_words,
    most_words,
    open_words,
    other_weights,
)

THICK = 12.0
SEEN = 2.0  # pixels of a bar that can be told from a line
LEAST = 0.2  # decades that an axis spans
KEY = (
    ("tick found solid", "found"),
    ("tick balanced solid", "at most"),
    ("truth strong", "the truth lies between"),
    ("tick median", "found at the median sample"),
    ("dot steepest", "the steepest slope found in a training"),
    ("dot typical", "found at its median sample"),
    ("tick median solid", "the median of the dots"),
    ("reference", "for comparison"),
)
UNSURE = ("truth strong", "from found to at most")  # where a bound is not known to hold
LINE = 16.0  # pixels from one line of numbers to the next


@dataclass(frozen=True, slots=True)
class BracketRow:
    """One row: what is measured here, or a reference beside it.

    Attributes:
        label: in words.
        reading: whose bounds.
        kind: ``now`` for the one the page speaks of, ``beside`` for a reference, else empty.
        others: further trainings of the same network, read in the same scope; the row is then about all of them.
        names: what each reading is called where its dot is hovered; its row's label where none is given.
    """

    label: str
    reading: Reading
    kind: str = ""
    others: tuple[Reading, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def readings(self) -> tuple[Reading, ...]:
        """All that the row is about."""
        return (self.reading, *self.others)

    @property
    def marks(self) -> tuple[float, ...]:
        """Found and at most, then both ends of the median sample where there is one, in decades; of each reading."""
        ends = [end for r in self.readings for end in (r.log_lower, r.log_upper)]
        ends += [end for r in self.readings if r.log_median for end in (r.log_median.lo, r.log_median.hi)]
        return tuple(end / LN10 for end in ends)

    @property
    def told(self) -> str:
        """All of its numbers in words: what was found, what is at most, the median."""
        if self.others:
            return "; ".join(self.lines)
        infinite = self.reading.log_upper == math.inf
        most = open_words(self.reading) if infinite else f"at most {most_words(self.reading)}"
        return f"found {found_words(self.reading)}, {most}{f'; median {self.median}' * bool(self.median)}"

    @property
    def lines(self) -> list[str]:
        """From the slope found to the upper bound, in full, and the median; of several trainings the spread of each."""
        if self.others:
            medians = median_slopes(self.readings)
            steepest = [f"{'steepest ' * bool(medians)}{line}" for line in reading_slopes(self.readings)]
            return [*steepest, *(f"median {line}" for line in (slope_lines(medians) if medians else []))]
        low, high, median = self.reading.log_lower, self.reading.log_upper, self.median
        open_ = f"{found_words(self.reading)}, {open_words(self.reading)}"
        ends = open_ if high == math.inf else format_between(low, high)
        return [f"{ends}; median {median}" if median else ends]

    @property
    def median(self) -> str:
        """The median sample in words; empty where there is none."""
        return median_words(self.reading)


def bracket(rows: Sequence[BracketRow], shape: Shape = svg.WIDE) -> Markup:
    """Draw one horizontal bar a row, from the slope found to the upper bound; all numbers are factors.

    What is infinite runs off the right edge, nothing found off the left.
    """
    longest = max(svg.text_width(line) for row in rows for line in row.lines)
    label_room, number_room = (262.0, max(170.0, longest + 8)) if shape.wide else (4.0, 4.0)
    height = _height(rows, shape)
    marks = [row.marks for row in rows]
    axis = _axis([v for row in marks for v in row], label_room + 10, shape.width - number_room - 12)
    bottom = 6 + height * len(rows)
    shown = _shown(rows, axis)
    return svg.drawing(
        (shape.width, bottom + 40),
        shape.name,
        describe_bracket(rows),
        svg.uprights(axis.ticks(8 if shape.wide else 6), 4, bottom, shape.width),
        svg.text_line(shape.width / 2, bottom + 32, _told(rows, shape.width - 8), "soft", "middle"),
        [_row(row, marks[index], axis, shape, (6 + height * index, height)) for index, row in enumerate(rows)],
        key=[UNSURE if entry[0] == UNSURE[0] and not _sure(rows) else entry for entry in KEY if entry[0] in shown],
    )


def bracket_figure(rows: Sequence[BracketRow]) -> Markup:
    """The drawing in both shapes under its caption; nothing where no row is of a sound file."""
    rows = sound_rows(rows)
    caption = "Where the truth lies" if _sure(rows) else "From what was found to the bounds"
    return svg.captioned_figure(caption, svg.both_shapes(lambda shape: bracket(rows, shape))) if rows else Markup()


def sound_rows(rows: Sequence[BracketRow]) -> list[BracketRow]:
    """The rows but those of files whose numbers an edit has put against each other."""
    return [row for row in rows if not edit_contradicts(row.reading)]


def _sure(rows: Sequence[BracketRow]) -> bool:
    return all(bracket_encloses(reading) for row in rows for reading in row.readings)


def _height(rows: Sequence[BracketRow], shape: Shape) -> float:
    """Of one row; in a narrow figure the numbers have lines of their own if one does not fit beside its label."""
    most = max(len(row.lines) for row in rows)
    if shape.wide:
        return 12.0 + LINE * most if most > 1 else 28.0
    return 40.0 if all(_beside(row, shape) for row in rows) else 46.0 + LINE * most


def _beside(row: BracketRow, shape: Shape) -> bool:
    """Whether the numbers are one line that fits beside the label, which may lose a third."""
    room = shape.width - 16 - svg.text_width(row.lines[0])
    return len(row.lines) == 1 and room >= min(svg.text_width(row.label), shape.width / 3)


def _shown(rows: Sequence[BracketRow], axis: Axis) -> set[str]:
    """What the key has to explain."""
    alone = [row for row in rows if not row.others]
    wide = any(
        axis.pixel(r.log_upper / LN10) - axis.pixel(r.log_lower / LN10) > SEEN for row in rows for r in row.readings
    )
    return {
        kind
        for kind, there in (
            ("tick found solid", alone),
            ("tick balanced solid", alone),
            ("truth strong", wide),
            ("tick median", any(row.median for row in alone)),
            ("reference", any(row.kind == "beside" for row in rows)),
            ("dot steepest", len(alone) < len(rows)),
            ("tick median solid", len(alone) < len(rows)),
            ("dot typical", any(median_slopes(row.readings) for row in rows if row.others)),
        )
        if there
    }


def _axis(values: Sequence[float], start: float, end: float) -> Axis:
    """An axis that holds every finite decade, with more room on the side of an infinite one."""
    finite = [v for v in values if math.isfinite(v)] or [0.0]
    span = max(max(finite) - min(finite), LEAST)
    below, above = (5 * ROOM * span if infinite in values else ROOM * span for infinite in (-math.inf, math.inf))
    return Axis(((min(finite) - below, start), (min(finite) + span + above, end)), logarithmic=True)


def _told(rows: Sequence[BracketRow], room: float) -> str:
    """What the axis counts; where there is room for it at how many samples, and that one training is one.

    What does not hold of all rows is not said of them: those at the samples are named where there are others, and rows
    that were measured on different samples are told so before anything else.
    """
    own = [row for row in rows if row.kind != "beside"]
    every = [reading for row in own for reading in row.readings]
    once = "; one training of each" if other_weights([row.reading for row in own]) else ""
    once = "; a dot is one training" if any(row.others for row in own) else once
    axis, apart = "how many times a small change grows, logarithmic", "different samples: not to be compared"
    told = [f"{axis}{_samples(every)}{once}", f"{axis}{once}", axis]
    if apart_readings(every):
        told = [f"measured on {apart} at them; {axis}", apart]
    return next((long for long in told if svg.text_width(long) <= room), told[-1])


def _samples(readings: Sequence[Reading]) -> str:
    """At how many samples was measured, if it is the same wherever it was at samples, with a median each."""
    near = [r for r in readings if r.scope.kind == "point"]
    counts = {len(r.samples) if r.log_median else 0 for r in near}
    if len(counts) != 1 or 0 in counts:
        return ""
    count = plural(counts.pop(), "sample")
    if len(near) < len(readings):
        return f"; at the samples: the steepest of {count} and their median"
    return f", at the steepest of {count} and at their median"


def describe_bracket(rows: Sequence[BracketRow]) -> str:
    """Describe the figure in words, for a screen reader."""
    return f"Slopes found and bounds: {'; '.join(f'{row.label}: {row.told}' for row in rows)}."


def _row(row: BracketRow, marks: Sequence[float], axis: Axis, shape: Shape, place: tuple[float, float]) -> Markup:
    """One row at the height ``place`` begins with: label and numbers, in a narrow figure above the marks."""
    y, height = place
    stacked = height > 40 and not shape.wide
    middle, baseline = (
        (y + height / 2, y + height / 2 + 4) if shape.wide else (y + height - (17 if stacked else 11), y + 14)
    )
    tone, lines = "ink" if row.kind == "now" else "soft", row.lines
    room = 258 if shape.wide else shape.width - 8 - (0 if stacked else 8 + svg.text_width(lines[0]))
    first = baseline - LINE * (len(lines) - 1) / 2 if shape.wide else baseline + LINE * stacked
    return svg.group(
        f"{row.label}: {row.told}",
        svg.text_line(4, baseline, svg.fit(row.label, room), tone),
        [svg.text_line(shape.width - 4, first + LINE * i, line, tone, "end") for i, line in enumerate(lines)],
        _dots(row, axis, middle) if row.others else _bar(row, marks, axis, middle),
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


def _dots(row: BracketRow, axis: Axis, middle: float) -> Content:
    """A dot a training: its steepest slope above, that of its median sample below; a tick at the median of each."""
    medians = median_slopes(row.readings)
    upper, lower = (middle - 6, middle + 7) if medians else (middle, middle)
    return (
        _level(row, steepest_slopes(row.readings), axis, upper, "steepest"),
        _level(row, medians, axis, lower, "typical") if medians else None,
    )


def _level(row: BracketRow, ends: Sequence[LogInterval], axis: Axis, y: float, kind: str) -> Content:
    """The dots of one kind, each with a line up to its bound where that can be seen."""
    middle = middle_slope(ends).lo / LN10
    reach = [(axis.pixel(e.lo / LN10), axis.pixel(e.hi / LN10)) for e in ends]
    return (
        [svg.box(low, y - 1.5, high - low, 3.0, "truth strong") for low, high in reach if high - low > SEEN],
        [svg.arrow(high, y, 1, 0) for e, (_, high) in zip(ends, reach, strict=True) if e.hi == math.inf][:1],
        svg.line(axis.pixel(middle), y - 6, axis.pixel(middle), y + 6, "median solid"),
        [
            svg.point_mark(low, y, kind, 3.5, f"{name}: {slope_words([e])}")
            for name, e, (low, _) in zip(row.names or [row.label] * len(ends), ends, reach, strict=True)
        ],
    )
