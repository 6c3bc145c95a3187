"""Plots of a sweep: a measure against one setting, seeds as dots with the line of their means; two as a heat map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from normgauge.render import svg
from normgauge.render.svg import NARROW, WIDE, Scale, Shape
from normgauge.render.sweep import figure, settings_words, spell, title
from normgauge.render.sweep_points import Outcome, average

TOP, BOTTOM = 14.0, 46.0
LOG_FROM = 20.0  # a range of positive settings that spans this factor gets a logarithmic axis
MOST_CELLS = 16  # values of a setting in a heat map
ROW = 34.0


@dataclass(frozen=True, slots=True)
class Axis:
    """Where each value of a setting stands: numbers by their size, anything else side by side."""

    values: tuple[Any, ...]
    places: Mapping[str, float]

    def at(self, value: Any) -> float:
        """The pixel of a value."""
        return self.places[spell(value)]


def setting_axis(values: Sequence[Any], start: float, end: float) -> Axis:
    """The axis of a setting between two pixels."""
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    distinct = tuple({spell(value): value for value in values}.values())
    if not numeric or len(distinct) < 2:
        step = (end - start) / len(distinct)
        return Axis(distinct, {spell(value): start + step * (i + 0.5) for i, value in enumerate(distinct)})
    ordered = tuple(sorted(distinct))
    logarithmic = ordered[0] > 0 and ordered[-1] / ordered[0] >= LOG_FROM
    along = [math.log(value) if logarithmic else float(value) for value in ordered]
    inner = Scale(along[0], along[-1], start + 24, end - 24)
    return Axis(ordered, {spell(value): inner.at(size) for value, size in zip(ordered, along, strict=True)})


def value_scale(values: Sequence[float], start: float, end: float) -> Scale:
    """A scale that holds every value with a little room; zero is not forced into it."""
    low, high = min(values), max(values)
    room = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    return Scale(low - room, high + room, start, end)


def plottable(outcomes: Sequence[Outcome], keys: Sequence[str], measure: str) -> list[Outcome]:
    """The outcomes that have the settings and a finite measure."""
    return [
        o for o in outcomes if math.isfinite(o.values.get(measure, math.nan)) and all(key in o.point for key in keys)
    ]


def chart(outcomes: Sequence[Outcome], key: str, measure: str, shape: Shape = WIDE, *, joined: bool = True) -> str:
    """A measure against one setting; "" where there is nothing to draw.

    Args:
        outcomes: the trials.
        key: the setting along x.
        measure: what stands along y.
        shape: wide or narrow.
        joined: draw the line of the means; a random draw has one trial a value, and no line.

    Returns:
        The drawing.
    """
    shown = plottable(outcomes, (key,), measure)
    if not shown:
        return ""
    left, right, floor = shape.left + 26, shape.width - 12, TOP + shape.height
    across = setting_axis([o.point[key] for o in shown], left, right)
    up = value_scale([o.values[measure] for o in shown], floor, TOP)
    parts = [*_levels(up, left, right, measure), *_names(across, floor, (right - left), shape)]
    if joined:
        parts.append(_means(shown, key, measure, across, up))
    parts += [
        f'<circle class="norm" fill-opacity=".6" cx="{across.at(o.point[key]):.1f}" '
        f'cy="{up.at(o.values[measure]):.1f}" r="4"><title>'
        f"{escape(f'{settings_words(o)}: {title(measure)} {figure(o.values[measure], measure)}')}</title></circle>"
        for o in shown
    ]
    parts.append(svg.text((left + right) / 2, floor + 38, svg.fit(key, right - left), "soft", "middle"))
    label = f"{title(measure)} against {key}, {len(shown)} trials"
    return svg.drawing(shape.width, floor + BOTTOM, shape.name, label, parts)


def _levels(up: Scale, left: float, right: float, measure: str) -> list[str]:
    parts = []
    for value in svg.ticks(up, 6):
        parts.append(svg.line(left, up.at(value), right, up.at(value), "grid"))
        percent = measure.endswith("accuracy") or measure == "gap"
        parts.append(
            svg.text(left - 6, up.at(value) + 4, f"{100 * value:.6g}%" if percent else f"{value:.6g}", "tiny", "end")
        )
    return parts


def _names(across: Axis, floor: float, width: float, shape: Shape) -> list[str]:
    """The values along x, as many as have room."""
    parts, last = [], -math.inf
    for value in across.values:
        x = across.at(value)
        words = svg.fit(spell(value), width / min(len(across.values), 4))
        half = svg.text_width(words, 12) / 2
        if x - half > last + 4:
            parts.append(svg.text(x, floor + 20, words, "tiny", "middle"))
            last = x + half
    return parts


def _means(shown: Sequence[Outcome], key: str, measure: str, across: Axis, up: Scale) -> str:
    corners = []
    for value in across.values:
        mean = average([o.values[measure] for o in shown if spell(o.point[key]) == spell(value)])
        if mean is not None:
            corners.append(f"{across.at(value):.1f},{up.at(mean):.1f}")
    return f'<polyline class="reached" points="{" ".join(corners)}"/>'


def heat_map(outcomes: Sequence[Outcome], keys: tuple[str, str], measure: str, shape: Shape = WIDE) -> str:
    """The mean of a measure for every pair of two settings; "" where there are too many values or none."""
    shown = plottable(outcomes, keys, measure)
    columns, rows = (_distinct([o.point[key] for o in shown]) for key in keys)
    if not shown or max(len(columns), len(rows)) > MOST_CELLS:
        return ""
    means = {
        (spell(c), spell(r)): mean
        for c in columns
        for r in rows
        if (mean := average([o.values[measure] for o in shown if _is(o, keys, (c, r))])) is not None
    }
    low, high = min(means.values()), max(means.values())
    left = min(max(svg.text_width(spell(r), 12) for r in rows) + 16, shape.width / 3)
    size = (shape.width - left - 8) / len(columns)
    parts = [svg.text(4, TOP, svg.fit(f"{keys[1]} ↓   {keys[0]} →", shape.width - 8), "tiny")]
    for j, row in enumerate(rows):
        y = TOP + 28 + ROW * j
        parts.append(svg.text(left - 6, y + ROW / 2 + 4, svg.fit(spell(row), left - 8), "tiny", "end"))
        for i, column in enumerate(columns):
            mean = means.get((spell(column), spell(row)))
            if mean is not None:
                share = (mean - low) / (high - low) if high > low else 0.5
                parts.append(_cell(left + size * i, y, size, share, figure(mean, measure)))
    for i, column in enumerate(columns):
        parts.append(svg.text(left + size * (i + 0.5), TOP + 22, svg.fit(spell(column), size), "tiny", "middle"))
    height = TOP + 28 + ROW * len(rows) + 8
    return svg.drawing(shape.width, height, shape.name, f"{title(measure)} by {keys[0]} and {keys[1]}", parts)


def _is(outcome: Outcome, keys: tuple[str, str], values: tuple[Any, Any]) -> bool:
    return all(spell(outcome.point[key]) == spell(value) for key, value in zip(keys, values, strict=True))


def _cell(x: float, y: float, size: float, share: float, words: str) -> str:
    # at most half opaque: the number on it must stay readable in light and dark
    rect = (
        f'<rect class="norm" fill-opacity="{0.06 + 0.44 * share:.2f}" x="{x + 1:.1f}" y="{y + 1:.1f}" '
        f'width="{size - 2:.1f}" height="{ROW - 2:.1f}"/>'
    )
    fits = svg.text_width(words, 12) < size
    return rect + (svg.text(x + size / 2, y + ROW / 2 + 4, words, "ink tiny", "middle") if fits else "")


def _distinct(values: Sequence[Any]) -> list[Any]:
    found = list({spell(value): value for value in values}.values())
    numeric = all(isinstance(value, int | float) for value in found)
    return sorted(found) if numeric else found


def both_shapes(draw: Any, *arguments: Any, **options: Any) -> str:
    """A drawing wide and narrow; the page shows the one that fits."""
    return "".join(draw(*arguments, shape, **options) for shape in (WIDE, NARROW))
