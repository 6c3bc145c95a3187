"""A sweep as one self-contained HTML page: the table, plots of a measure against settings, and what failed.

Seeds are dots with the line of their means; a measure against two settings is a heat map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from normgauge.render import svg
from normgauge.render.document import document, listing, paragraphs, section
from normgauge.render.markup import Markup, markup
from normgauge.render.numbers import plural
from normgauge.render.svg import WIDE, Axis, Shape
from normgauge.render.sweep import (
    TrialOutcome,
    average,
    bound_sentences,
    format_measure,
    measure_is_share,
    measure_title,
    result_grid,
    settings_words,
    spelled_setting,
    sweep_points,
    trial_failures,
)
from normgauge.render.table import html_table

MOST_PLOTS = 4
TOP, BOTTOM = 14.0, 46.0
LOG_FROM = 20.0  # a range of positive settings that spans this factor gets a logarithmic axis
MOST_CELLS = 16  # values of a setting in a heat map
ROW = 34.0
COLUMNS = {  # by what stands in a header
    "accuracy gap": "training accuracy less test accuracy",
    "at most": "the upper bound on the slope",
    "found": "the largest slope found: the network has it, and may have larger ones",
    "P_w": "product of the norms of all weights; it depends on the gauge, and bounds nothing alone",
    "Π1/σ": "product of 1/σ of all normalizers, root mean square over channels; it depends on the gauge likewise",
    "alarms": "raised by the monitor while it trained",
}


@dataclass(frozen=True, slots=True)
class SweepView:
    """What of a sweep is shown.

    Attributes:
        name: of the sweep.
        keys: the settings that vary.
        drawn: those of them that were drawn at random: their plots have no line.
        sort: the measure the table is sorted by.
        axes: settings to plot: one for a chart, two for a heat map; all of them where empty.
        shown: measures to plot.
        told: sentences about the sweep.
    """

    name: str
    keys: tuple[str, ...]
    drawn: frozenset[str]
    sort: str
    axes: tuple[str, ...]
    shown: tuple[str, ...]
    told: tuple[str, ...] = ()


def sweep_page(outcomes: Sequence[TrialOutcome], view: SweepView) -> str:
    """Return the page as HTML."""
    found = sweep_points(outcomes)
    grid = result_grid(found, view.keys, view.sort, view.name)
    legend = [f"{title}: {what}." for title, what in COLUMNS.items() if any(title in head for head in grid.headers)]
    legend += [f"{told}." for told in bound_sentences(outcomes)]
    table = markup(html_table(grid), paragraphs([f"{grid.footer}."]), listing(legend)) if found else Markup()
    body = markup(
        paragraphs(view.told, "verdict"),
        section("Results", table),
        section("Plots", (_figure(outcomes, view, axes, measure) for measure in view.shown for axes in _wanted(view))),
        section("Failed trials", listing(trial_failures(outcomes))),
        section("Notes", listing([f"{o.id}: {note}" for o in outcomes for note in o.notes])),
    )
    subtitle = f"{plural(len(found), 'point')}, {plural(len(outcomes), 'trial')}"
    return document(f"Sweep {view.name}", subtitle, body)


def _wanted(view: SweepView) -> list[tuple[str, ...]]:
    """The settings of each plot: those asked for, or each alone and the first two that were not drawn at random."""
    if view.axes:
        return [view.axes]
    pairs = [pair for pair in combinations(view.keys, 2) if not set(pair) & view.drawn]
    return [*((key,) for key in view.keys[:MOST_PLOTS]), *pairs[:1]]


def _figure(outcomes: Sequence[TrialOutcome], view: SweepView, axes: tuple[str, ...], measure: str) -> Markup:
    def draw(shape: Shape) -> Markup:
        if len(axes) == 2:
            return heat_map(outcomes, (axes[0], axes[1]), measure, shape)
        return chart(outcomes, axes[0], measure, shape, joined=axes[0] not in view.drawn)

    others = [key for key in view.keys if key not in axes]
    over = f" and over {', '.join(others)}" if others else ""
    absent = sum(measure in o.values for o in outcomes) - len(plottable(outcomes, axes, measure))
    left_out = (
        f"; {plural(absent, 'value')} that {'is' if absent == 1 else 'are'} not finite left out" if absent else ""
    )
    return svg.captioned_figure(
        f"{measure_title(measure)} by {' and '.join(axes)}; a mean is over seeds{over}{left_out}", svg.both_shapes(draw)
    )


def setting_places(values: Sequence[Any], start: float, end: float) -> dict[str, float]:
    """The pixel of each value of a setting as it is spelled: numbers by their size, anything else side by side."""
    distinct = list({spelled_setting(value): value for value in values}.values())
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if not numeric or len(distinct) < 2:
        step = (end - start) / len(distinct)
        return {spelled_setting(value): start + step * (i + 0.5) for i, value in enumerate(distinct)}
    ordered = sorted(distinct)
    logarithmic = ordered[0] > 0 and ordered[-1] / ordered[0] >= LOG_FROM
    low, high = (math.log10(value) if logarithmic else value for value in (ordered[0], ordered[-1]))
    along = Axis(((low, start + 24), (high, end - 24)), logarithmic)
    return {spelled_setting(value): along.at(value) for value in ordered}


def plottable(outcomes: Sequence[TrialOutcome], keys: Sequence[str], measure: str) -> list[TrialOutcome]:
    """The outcomes that have the settings and a finite measure."""
    return [
        o for o in outcomes if math.isfinite(o.values.get(measure, math.nan)) and all(key in o.point for key in keys)
    ]


def chart(
    outcomes: Sequence[TrialOutcome], key: str, measure: str, shape: Shape = WIDE, *, joined: bool = True
) -> Markup:
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
        return Markup()
    left, right, floor = shape.left + 26, shape.width - 12, TOP + shape.height
    across = setting_places([o.point[key] for o in shown], left, right)
    up = svg.axis([o.values[measure] for o in shown], floor, TOP)
    ticks = up.ticks(6, lambda value: f"{100 * value:.6g}%" if measure_is_share(measure) else f"{value:.6g}")
    seeds = [(across[spelled_setting(o.point[key])], o.values[measure], settings_words(o)) for o in shown]
    means = {x: average([value for at, value, _ in seeds if at == x]) for x in across.values()}
    named = f"{measure_title(measure)} against {key}, {len(shown)} trials"
    room = (right - left) / min(len(across), 4)
    return svg.drawing(
        (shape.width, floor + BOTTOM),
        shape.name,
        named,
        svg.levels(ticks, left, right),
        svg.uprights([(x, svg.fit(name, room)) for name, x in across.items()], floor, floor, shape.width, 20),
        svg.path([(x, up.at(mean)) for x, mean in means.items() if mean is not None], "reached") if joined else None,
        [
            svg.point_mark(
                x,
                up.at(y),
                "norm",
                4.0,
                f"{told}: {measure_title(measure)} {format_measure(y, measure)}",
                fill_opacity=".6",
            )
            for x, y, told in seeds
        ],
        svg.text_line((left + right) / 2, floor + 38, svg.fit(key, right - left), "soft", "middle"),
    )


def heat_map(outcomes: Sequence[TrialOutcome], keys: tuple[str, str], measure: str, shape: Shape = WIDE) -> Markup:
    """The mean of a measure for every pair of two settings; "" where there are too many values or none."""
    shown = plottable(outcomes, keys, measure)
    columns, rows = (_distinct([o.point[key] for o in shown]) for key in keys)
    if not shown or max(len(columns), len(rows)) > MOST_CELLS:
        return Markup()
    cells: dict[tuple[str, ...], list[float]] = {}
    for o in shown:
        cells.setdefault(tuple(spelled_setting(o.point[key]) for key in keys), []).append(o.values[measure])
    means = {place: average(values) or 0.0 for place, values in cells.items()}
    low, high = min(means.values()), max(means.values())
    left = min(max(svg.text_width(r, svg.TINY) for r in rows) + 16, shape.width / 3)
    size = (shape.width - left - 8) / len(columns)
    top = TOP + 28

    def cell(column: str, row: str) -> Markup:
        mean, x, y = means[column, row], left + size * columns.index(column), top + ROW * rows.index(row)
        share = (mean - low) / (high - low) if high > low else 0.5
        told = format_measure(mean, measure)
        number = svg.text_line(x + size / 2, y + ROW / 2 + 4, told, "ink tiny", "middle")
        # at most half opaque: the number on it must stay readable in light and dark
        ground = svg.box(x + 1, y + 1, size - 2, ROW - 2, "norm", fill_opacity=f"{0.06 + 0.44 * share:.2f}")
        return markup(ground, number if svg.text_width(told, svg.TINY) < size else None)

    return svg.drawing(
        (shape.width, top + ROW * len(rows) + 8),
        shape.name,
        f"{measure_title(measure)} by {keys[0]} and {keys[1]}",
        svg.text_line(4, TOP, svg.fit(f"{keys[1]} ↓   {keys[0]} →", shape.width - 8), "tiny"),
        [
            svg.text_line(left - 6, top + ROW * (j + 0.5) + 4, svg.fit(r, left - 8), "tiny", "end")
            for j, r in enumerate(rows)
        ],
        [cell(column, row) for row in rows for column in columns if (column, row) in means],
        [
            svg.text_line(left + size * (i + 0.5), TOP + 22, svg.fit(c, size), "tiny", "middle")
            for i, c in enumerate(columns)
        ],
    )


def _distinct(values: Sequence[Any]) -> list[str]:
    found = {spelled_setting(value): value for value in values}
    numeric = all(isinstance(value, int | float) for value in found.values())
    return sorted(found, key=lambda name: found[name]) if numeric else list(found)
