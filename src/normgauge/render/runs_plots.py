"""Curves over steps: one figure for all runs, enclosures as bands, alarms as upright marks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from normgauge.render import svg
from normgauge.render.runs_axes import Axis, axis
from normgauge.render.runs_data import Band, Pairs, thin_band
from normgauge.render.svg import Scale, Shape

WIDE = Shape("wide", 640, 200, 54, 14, 0)
NARROW = Shape("narrow", 380, 150, 46, 8, 0)
TOP, FOOT, COLOURS = 22.0, 22.0, 8
MARKS = 200  # alarms drawn one by one
DOTTED = 40  # points below which each is marked, so that a line over a gap is seen to be one
STRIP = 20.0  # above the curves, for what is not finite


@dataclass(frozen=True, slots=True)
class Curve:
    """One quantity of one run.

    Attributes:
        label: what the tooltip calls it.
        colour: the run's number.
        pairs: steps and values.
        band: steps and the two ends of an enclosure, or of a range; thinned where it is drawn.
        kind: ``solid`` or ``dashed``.
    """

    label: str
    colour: int
    pairs: Pairs
    band: Band = ()
    kind: str = "solid"


@dataclass(frozen=True, slots=True)
class Plot:
    """What a figure shows.

    Attributes:
        caption, unit: words above it.
        curves: what is drawn.
        span: the first and the last step.
        marks: the alarms' steps with the number of their run.
        legend: kinds and words.
        decades: the axis is logarithmic where the values span enough of them.
    """

    caption: str
    unit: str
    curves: Sequence[Curve]
    span: tuple[int, int]
    marks: Sequence[tuple[int, int]] = ()
    legend: Sequence[tuple[str, str]] = ()
    decades: bool = False


def figure(plot: Plot) -> str:
    """The figure in both shapes, with the numbers its tooltip tells."""
    if not any(curve.pairs or curve.band for curve in plot.curves):
        return ""
    told = [_told(curve) for curve in plot.curves]
    data = escape(json.dumps(told, separators=(",", ":"), ensure_ascii=False))
    drawn = "".join(_drawing(plot, shape) for shape in (WIDE, NARROW))
    return f'<figure class="plot" data-curves="{data}"><figcaption>{escape(plot.caption)}</figcaption>{drawn}</figure>'


def _told(curve: Curve) -> dict[str, object]:
    known = {step for step, _ in curve.pairs}
    ends = {step: (low, high) for step, low, high in curve.band if step in known}
    return {
        "label": curve.label,
        "steps": [step for step, _ in curve.pairs],
        "values": [_short(value) for _, value in curve.pairs],
        **({"ends": [[_short(e) for e in ends[s]] if s in ends else None for s, _ in curve.pairs]} if ends else {}),
    }


def _short(value: float) -> float | str:
    return float(f"{value:.4g}") if math.isfinite(value) else str(value)


def _drawing(plot: Plot, shape: Shape) -> str:
    across = Scale(*plot.span, shape.left, shape.width - shape.right)
    gone = [step for curve in plot.curves for step, value in curve.pairs if not math.isfinite(value)]
    up = axis(_values(plot.curves), TOP + shape.height, TOP + (STRIP if gone else 0.0), plot.decades)
    bottom = TOP + shape.height + FOOT
    swatches, taken = svg.legend(plot.legend, bottom + 4, shape.left, shape.width - 4) if plot.legend else ([], 0.0)
    inner = [*_grid(across, up, shape, plot.unit), *_marks(plot.marks, across, up)]
    for curve in plot.curves:
        inner.extend(_curve(curve, across, up))
    inner.extend(_gone(gone, across))
    frame = (
        f'<rect class="hit" x="{shape.left:g}" y="{TOP:g}" width="{across.end - across.start:g}" '
        f'height="{shape.height:g}" data-first="{plot.span[0]}" data-last="{plot.span[1]}"/>'
        f'<line class="cursor" x1="0" x2="0" y1="{TOP:g}" y2="{TOP + shape.height:g}"/>'
    )
    label = f"{plot.caption}: {len(plot.curves)} curves over steps {plot.span[0]} to {plot.span[1]}."
    return svg.drawing(shape.width, bottom + taken + 4, shape.name, label, [*inner, frame, *swatches])


def _values(curves: Sequence[Curve]) -> list[float]:
    return [v for c in curves for v in (*(v for _, v in c.pairs), *(end for _, *ends in c.band for end in ends))]


def _grid(across: Scale, up: Axis, shape: Shape, unit: str) -> Iterator[str]:
    for y, words in up.ticks(6 if shape.wide else 5):
        yield svg.line(across.start, y, across.end, y, "grid")
        yield svg.text(shape.left - 5, y + 4, words, "tiny", "end")
    for value in svg.ticks(across, 7 if shape.wide else 4):
        if value == round(value):
            near_end = across.at(value) > across.end - 30
            yield svg.text(across.at(value), up.bottom + 15, f"{value:,.0f}", "tiny", "end" if near_end else "middle")
    yield svg.line(across.start, up.bottom, across.end, up.bottom, "zero")
    yield svg.text(2, 12, f"{unit}, logarithmic" if up.logarithmic else unit, "tiny")
    yield svg.text(across.end, 12, "step →", "tiny", "end")


def _marks(marks: Sequence[tuple[int, int]], across: Scale, up: Axis) -> Iterator[str]:
    """One line a pixel at most: a run that warns at every step is a wall, not ten thousand lines."""
    places = dict.fromkeys(round(across.at(step)) for step, _ in marks)
    for x in list(places)[:MARKS]:
        yield svg.line(x, TOP, x, up.bottom, "alarm")
        yield svg.arrow(x, TOP - 2, 0, 0.8, "alarmed")


def _curve(curve: Curve, across: Scale, up: Axis) -> Iterator[str]:
    colour = f"c{curve.colour % COLOURS}"
    if curve.band:
        band = thin_band(curve.band)
        there = [f"{across.at(step):.1f},{up.at(high):.1f}" for step, _, high in band]
        back = [f"{across.at(step):.1f},{up.at(low):.1f}" for step, low, _ in reversed(band)]
        yield f'<polygon class="band {colour}" points="{" ".join(there + back)}"/>'
    kind = f"curve {colour}" + (" dashed" if curve.kind == "dashed" else "")
    pieces: list[list[str]] = [[]]
    for step, value in curve.pairs:
        if math.isfinite(value):
            pieces[-1].append(f"{across.at(step):.1f},{up.at(value):.1f}")
        elif pieces[-1]:
            pieces.append([])
    for piece in filter(None, pieces):
        if len(piece) > 1:
            yield f'<polyline class="{kind}" points="{" ".join(piece)}"/>'
        if len(piece) == 1 or len(curve.pairs) < DOTTED:
            yield from (_dot(place, colour) for place in piece)


def _dot(place: str, colour: str) -> str:
    x, y = place.split(",")
    return f'<circle class="dot {colour}" cx="{x}" cy="{y}" r="2.5"/>'


def _gone(steps: Sequence[int], across: Scale) -> Iterator[str]:
    """Where values are not finite, in the strip above the curves; the words stand at the first."""
    for x in dict.fromkeys(round(across.at(step)) for step in steps):
        yield svg.arrow(x, TOP + 13, 0, -1, "alarmed")
    if steps:
        first = across.at(min(steps))
        late = first > across.end - 90
        yield svg.text(
            first - 8 if late else first + 8, TOP + 15, "not finite", "tiny halo", "end" if late else "start"
        )
