"""A sweep as one self-contained HTML page: the table, plots and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import combinations

from normgauge.render.numbers import plural
from normgauge.render.page import document
from normgauge.render.parts import html_table, words
from normgauge.render.sweep import failures, result_grid, title
from normgauge.render.sweep_plot import both_shapes, chart, heat_map, plottable
from normgauge.render.sweep_points import Outcome, points

MOST_PLOTS = 4


@dataclass(frozen=True, slots=True)
class View:
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


def sweep_page(outcomes: Sequence[Outcome], view: View) -> str:
    """The page as a string."""
    found = points(outcomes)
    opening = "".join(f'<p class="verdict">{words(sentence)}</p>' for sentence in view.told)
    table = html_table(result_grid(found, view.keys, view.sort, view.name)) if found else ""
    figures = "".join(_figures(outcomes, view, measure) for measure in view.shown)
    notes = [f"{o.id}: {note}" for o in outcomes for note in o.notes]
    body = (
        opening
        + f"<section><h2>Results</h2>{table}</section>"
        + (f"<section><h2>Plots</h2>{figures}</section>" if figures else "")
        + _listed("Failed trials", failures(outcomes))
        + _listed("Notes", notes)
    )
    subtitle = f"{plural(len(found), 'point')}, {plural(len(outcomes), 'trial')}"
    return document(f"Sweep {view.name}", subtitle, body)


def _figures(outcomes: Sequence[Outcome], view: View, measure: str) -> str:
    if len(view.axes) == 2:
        wanted: list[tuple[str, ...]] = [(view.axes[0], view.axes[1])]
    elif view.axes:
        wanted = [view.axes]
    else:
        pairs = [pair for pair in combinations(view.keys, 2) if not set(pair) & view.drawn]
        wanted = [(key,) for key in view.keys[:MOST_PLOTS]] + list(pairs[:1])
    return "".join(_figure(outcomes, view, axes, measure) for axes in wanted)


def _figure(outcomes: Sequence[Outcome], view: View, axes: tuple[str, ...], measure: str) -> str:
    if len(axes) == 2:
        drawn = both_shapes(heat_map, outcomes, axes, measure)
    else:
        drawn = both_shapes(chart, outcomes, axes[0], measure, joined=axes[0] not in view.drawn)
    if not drawn:
        return ""
    caption = f"{title(measure)} by {' and '.join(axes)}"
    others = [key for key in view.keys if key not in axes]
    told = f"; a mean is over seeds and over {', '.join(others)}" if others else "; a mean is over seeds"
    left_out = sum(measure in o.values for o in outcomes) - len(plottable(outcomes, axes, measure))
    told += (
        f"; {plural(left_out, 'value')} that {'is' if left_out == 1 else 'are'} not finite left out" if left_out else ""
    )
    return f"<figure><figcaption>{escape(caption + told)}</figcaption>{drawn}</figure>"


def _listed(heading: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<section><h2>{escape(heading)}</h2><ul>{items}</ul></section>"
