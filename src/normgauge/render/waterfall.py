"""The waterfall: how the bound grows and shrinks with depth, and how much of that a real direction did."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from normgauge.core.reading import LayerRecord, Reading
from normgauge.core.spelled import LN10
from normgauge.render import svg
from normgauge.render.levels import Bar, bars, called_layer, followed_direction, layer_product
from normgauge.render.markup import Content, Markup
from normgauge.render.numbers import DOWN, UP, format_decades, known_decimals, plural, scope_words
from normgauge.render.svg import Axis, Shape
from normgauge.render.verdict import bracket_encloses, open_words

TOP, WIDEST, ROW, SEEN = 24.0, 56.0, 22.0, 6.0
MOST_RUNS = 8  # enough names under the plot
SEEN_BAND = 2.0  # less than this cannot be told from a line
LEAST_NAME = 24.0  # less room than this holds no name
KEY = (
    ("weight", "weights"),
    ("norm", "normalizers"),
    ("other", "other steps"),
    ("mixed", "several layers in a row"),
    ("open", "no finite gain, left out of what follows"),
    ("truth", "{lies}"),
    ("truth endless", "the truth lies here or above: {open}"),
    ("floor", "reached for sure"),
    ("line reached", "what {followed} did"),
)


class Mark(NamedTuple):
    """A level named beside the plot."""

    name: str
    number: str
    level: float
    kind: str

    @property
    def words(self) -> str:
        """Name and number, or that there is no bound."""
        return f"{self.name} {self.number}" if self.level < math.inf else f"{self.number} {self.name}"


def waterfall(reading: Reading, shape: Shape = svg.WIDE, key: str = "") -> Markup:
    """Draw the waterfall; empty without layers.

    One bar a layer, from the largest level of its inputs to the level at its output. Dashed: the balanced bound.
    Shaded: below the slope found, and between the two, where the truth lies. Line: what the steepest
    direction did at the sample where the search for slopes began.

    Args:
        reading: what to draw.
        shape: wide or narrow.
        key: bars carry ``data-row="{key}{position}"``, the id of their row in the page's table.
    """
    if not reading.layers:
        return Markup()
    drawn = bars(reading, shape.bars)
    marks = _marks(reading)
    reached = [None if r.log_reached is None else r.log_reached / LN10 for r in reading.layers]
    values = [v for bar in drawn for v in (bar.start, bar.end)] + [v for _, _, v, _ in marks]
    up = svg.level_axis([*values, *(v for v in reached if v is not None)], TOP + shape.height, TOP)
    across = Axis(((0.0, shape.left), (len(reading.layers), shape.width - shape.right)))
    bottom = TOP + shape.height + ROW
    way = [(across.at(i + 0.5), up.at(v)) for i, v in enumerate(reached) if v is not None]
    band = up.at(reading.log_lower / LN10) - up.at(reading.log_upper / LN10)
    truth = {"truth endless"} if reading.log_upper == math.inf else {"truth"} if band > SEEN_BAND else set()
    shown = {bar.tone for bar in drawn} | truth
    shown |= {"floor"} if reading.log_lower > -math.inf else set()
    shown |= {"line reached"} if way else set()
    return svg.drawing(
        (shape.width, bottom + 4),
        shape.name,
        describe_waterfall(reading, marks),
        _ground(reading, up, shape),
        svg.levels(up.ticks(7 if shape.wide else 6), shape.left, shape.width - shape.right, "soft"),
        svg.text_line(2, 12, "log10 of the growth since the input", "soft"),
        [_bar(bar, (across, up), shape, key) for bar in drawn],
        [svg.path(way, kind) for kind in ("reached halo", "reached") if way],  # the halo shows on a bar as well
        _levels(marks, up, shape),
        _names(reading.layers, across, bottom - 6),
        key=[(mark, told.format(**_told(reading))) for mark, told in KEY if mark in shown],
        left=shape.left,
    )


def _told(reading: Reading) -> dict[str, str]:
    """What the key says of this reading alone."""
    lies = "the truth lies here" if bracket_encloses(reading) else "from found to at most"
    return {"followed": followed_direction(reading), "lies": lies, "open": open_words(reading)}


def describe_waterfall(reading: Reading, marks: Sequence[Mark]) -> str:
    """Describe the figure in one sentence."""
    levels = ", ".join(mark.words for mark in marks)
    return f"Log10 gain by depth, {scope_words(reading.scope)}: {plural(len(reading.layers), 'layer')}; {levels}."


def _marks(reading: Reading) -> list[Mark]:
    """The levels named at the right. An infinite product is left out: the balanced bound says as much."""
    one_by_one = layer_product(reading)
    capacity, decimals = reading.log_capacity, known_decimals(reading.gap * LN10)
    digits = {"at most": decimals, "found": decimals}
    known = [("bound" if capacity == math.inf else "balanced", capacity, "balanced")]
    if capacity == math.inf > reading.log_upper:  # another method has a bound
        known = []
    if reading.log_upper < capacity:
        known.append(("at most", reading.log_upper, "balanced"))
    known.append(("found", reading.log_lower, "found"))
    if one_by_one is not None and one_by_one < math.inf:
        known.insert(0, ("layer by layer", one_by_one, "product"))
    return [
        Mark(
            name,
            open_words(reading).removesuffix(" bound")
            if log == math.inf
            else format_decades(log, digits.get(name), DOWN if kind == "found" else UP),
            log / LN10,
            kind,
        )
        for name, log, kind in known
        if log > -math.inf
    ]


def _ground(reading: Reading, up: Axis, shape: Shape) -> Content:
    """Shade what was reached, and the band above it in which the truth lies."""
    x, width = shape.left, shape.width - shape.left - shape.right
    top, floor = up.at(reading.log_upper / LN10), up.at(reading.log_lower / LN10)
    sure = svg.box(x, floor, width, up.start - floor, "floor") if reading.log_lower != -math.inf else None
    return sure, svg.box(x, top, width, floor - top, "truth")


def _bar(bar: Bar, at: tuple[Axis, Axis], shape: Shape, key: str) -> Markup:
    across, up = at
    left = across.at(bar.first)
    room = across.at(bar.first + len(bar.records)) - left
    thick = min(max(room * 0.78, 1.0), WIDEST)
    top, bottom = sorted((up.at(bar.start), up.at(bar.end)))
    x, end = left + (room - thick) / 2, None
    if bar.end == math.inf:
        end = svg.arrow(x + thick / 2, top, 0, -1)
    elif room > SEEN:  # the end of a bar, drawn on to the next: a fall and a rise must not look alike
        end = svg.line(x, up.at(bar.end), min(x + room, across.end), up.at(bar.end), "step")
    return svg.group(
        describe_layer_bar(bar),
        svg.box(left, TOP, room, shape.height, "hit"),
        svg.box(x, top, thick, bottom - top, bar.tone),
        end,
        class_="bar",
        data_row=f"{key}{bar.first}" if len(bar.records) == 1 else None,
    )


def describe_layer_bar(bar: Bar) -> str:
    """Describe a bar in words."""
    first, last = bar.records[0], bar.records[-1]
    levels = f"level {format_decades(bar.start * LN10, way=UP)} to {format_decades(bar.end * LN10, way=UP)}"
    if first is last:
        return f"{first.name} ({first.kind}): log10 gain {format_decades(first.gain.hi, way=UP)}, {levels}"
    return f"{len(bar.records)} layers, {first.name} to {last.name}: {levels}"


def _levels(marks: Sequence[Mark], up: Axis, shape: Shape) -> Iterator[Content]:
    """Levels across the plot, named at the right; names are moved apart where levels are close."""
    ordered = sorted(marks, key=lambda mark: -mark.level)
    gap, edge = (17.0 if shape.wide else 31.0), shape.width - shape.right
    low = TOP + shape.height - (0 if shape.wide else 14)
    places = svg.spread_places([up.at(mark.level) for mark in ordered], gap, TOP + 2, low)
    for mark, y in zip(ordered, places, strict=True):
        level = up.at(mark.level)
        if mark.level == math.inf:  # an arrow off the top: a line would look like a bound
            yield svg.line(edge, up.at(ordered[-1].level), edge, level, "endless")
            yield svg.arrow(edge, level, 0, -1, "endless")
        else:
            yield svg.line(shape.left, level, edge, level, mark.kind) if mark.kind != "product" else None
            yield svg.line(edge + 1, level, edge + 9, y, f"{mark.kind} lead")
        if shape.wide:
            yield svg.text_line(edge + 13, y + 4, mark.words, "ink" if mark.kind == "balanced" else "soft")
        else:
            yield (
                svg.text_line(edge + 11, y + 2, mark.number, "ink"),
                svg.text_line(edge + 11, y + 15, mark.name, "tiny"),
            )


def _names(records: Sequence[LayerRecord], across: Axis, y: float) -> Iterator[Markup]:
    """Names of layers, or of the modules they belong to, wherever there is room; the first and the last anyway."""
    runs, modules = _runs(records)
    taken: list[tuple[float, float]] = []
    for run in runs:
        left, right = across.at(run[0]), across.at(run[-1] + 1)
        if run[0]:
            yield svg.line(left, y - 14, left, y - 10, "zero")
        for words in _called(records[run[0]], modules[run[0]] if len(run) > 1 else ""):
            if svg.text_width(words, svg.TINY) + 8 <= right - left:
                yield svg.text_line((left + right) / 2, y, words, "tiny", "middle")
                taken.append((left, right))
                break
    yield from _ends(_outer(records, runs, modules), taken, across, y)


def _called(record: LayerRecord, module: str) -> list[str]:
    """What a run may be called, the longest first: its module, or its only layer."""
    return [module] if module else called_layer(record)


def _outer(records: Sequence[LayerRecord], runs: Sequence[Sequence[int]], modules: Sequence[str]) -> list[str]:
    """What the first and the last run are called; the layers themselves where one run holds them all."""
    if len(runs) == 1:
        return [record.name for record in (records[0], *records[1:][-1:])]
    return [records[run[0]].name if len(run) == 1 else modules[run[0]] for run in (runs[0], runs[-1])]


def _ends(names: Sequence[str], taken: Sequence[tuple[float, float]], across: Axis, y: float) -> Iterator[Markup]:
    """First and last name, shortened, where they are not drawn yet and something of them fits."""
    left, right = across.start, across.end
    middle = (left + right) / 2
    rooms = [(taken[0][0] if taken else middle) - left, right - (taken[-1][1] if taken else middle)]
    for name, room, x, anchor in zip(names, rooms, (left, right), (None, "end"), strict=False):
        shown = svg.fit(name, room - 6)
        if room > LEAST_NAME and (shown == name or len(shown) >= 5):
            yield svg.text_line(x, y, shown, "tiny", anchor)


def _runs(records: Sequence[LayerRecord]) -> tuple[list[list[int]], list[str]]:
    """Layers of the same module next to each other, and every layer's module; one level deeper where one holds most."""
    for depth in (1, 2, 3):
        modules = [".".join(record.name.split(".")[:depth]) for record in records]
        runs = [list(run) for _, run in groupby(range(len(records)), key=modules.__getitem__)]
        if max(len(run) for run in runs) <= len(records) / 2 or len(runs) > MOST_RUNS:
            break
    return runs, modules
