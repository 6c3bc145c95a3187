"""The curves of a page of runs: all runs in one figure, enclosures as bands, alarms as upright marks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from normgauge.render import svg
from normgauge.render.markup import Content, Markup, tag
from normgauge.render.runs_data import (
    Band,
    LabelledRun,
    Pairs,
    both_ends,
    loss_series,
    rate_moved,
    step_span,
    thin_band,
    thin_series,
    told_band,
    total_evidence,
)
from normgauge.render.svg import Axis, Shape

WIDE = Shape("wide", 640, 200, 54, 14)
NARROW = Shape("narrow", 380, 150, 46, 8)
TOP, FOOT, COLOURS = 22.0, 22.0, 8
MARKS = 200  # alarms drawn one by one
DOTTED = 40  # points below which each is marked, so that a line over a gap is seen to be one
STRIP = 20.0  # above the curves, for what is not finite
SPREAD = 100  # largest over smallest value beyond which an even axis hides the small ones
SIGMA, WEIGHTS = "log10_prod_inv_sigma", "log10_P_w"
FREE = "free of the scale in front of normalizers"


@dataclass(frozen=True, slots=True)
class RunCurve:
    """One line of a figure: one quantity of one run.

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
    """Everything that one figure shows.

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
    curves: Sequence[RunCurve]
    span: tuple[int, int]
    marks: Sequence[tuple[int, int]] = ()
    legend: Sequence[tuple[str, str]] = ()
    decades: bool = False


def curves(items: Sequence[LabelledRun]) -> Markup:
    """Loss, products and gradient over the steps, all runs in each figure."""
    reach = step_span(items)
    marks = [(w["step"], i) for i, item in enumerate(items) for w in item.run.alarms if isinstance(w.get("step"), int)]
    alarm = [("tick alarm", "alarm")] if marks else []

    def plot(
        caption: str,
        unit: str,
        curve: Callable[[int, LabelledRun], list[RunCurve]],
        more: Sequence[tuple[str, str]] = (),
    ) -> Markup:
        lines = [c for i, item in enumerate(items) for c in curve(i, item) if c.pairs]
        drawn = sorted({c.colour for c in lines}) if len(items) > 1 else []
        key = [(f"line curve c{i % COLOURS}", items[i].label) for i in drawn]
        return plot_figure(
            Plot(caption, unit, lines, reach, marks, [*key, *more, *alarm], not unit.startswith("log10"))
        )

    def total(name: str) -> Callable[[int, LabelledRun], list[RunCurve]]:
        return lambda i, item: [RunCurve(f"{item.label} {name}", i, thin_series(item.run.total(name)))]

    first = items[0].run
    folded = f"Product of folded gains ({total_evidence(first, 'log10_folded')}); {FREE}"
    caption, kinds = _named(items)
    scheduled = any(rate_moved(item.run) for item in items)
    return tag(
        "div",
        plot(
            "Loss (observed; of several steps the mean)",
            "loss",
            lambda i, item: [RunCurve(f"{item.label} loss", i, thin_series(loss_series(item.run)))],
        ),
        plot("Learning rate (observed)", "learning rate", total("lr")) if scheduled else None,
        plot(folded, "log10", total("log10_folded")),
        plot(caption, "log10", product_curves, kinds),
        plot(f"Gradient norm, behind any clip ({total_evidence(first, 'gradient')})", "‖∇‖", total("gradient")),
        class_="plots",
    )


def _named(items: Sequence[LabelledRun]) -> tuple[str, list[tuple[str, str]]]:
    """Caption and legend of the products: only those that any run has."""
    kinds = (
        ("P_w", f"{WEIGHTS}_lower", "line curve plain", "P_w, lower end; band up to the upper end"),
        ("Π1/σ", f"{SIGMA}_rms", "line curve plain dashed", "Π1/σ (rms); band from largest to smallest σ"),
    )
    run = items[0].run
    found = [kind for kind in kinds if any(item.run.total(kind[1]) for item in items)]
    told = " and ".join(f"{name} ({total_evidence(run, total)})" for name, total, _, _ in found)
    return f"{told}: depend{'s' if len(found) == 1 else ''} on the gauge", [kind[2:] for kind in found]


def product_curves(index: int, item: LabelledRun) -> list[RunCurve]:
    """P_w, whose line is its lower end since the upper one shows the slack between two proofs, and Π1/σ."""
    total = item.run.total
    lower = total(f"{WEIGHTS}_lower")
    norms, sigmas = thin_series(lower), thin_series(total(f"{SIGMA}_rms"))
    ends = both_ends(total(f"{SIGMA}_max"), total(f"{SIGMA}_min"))
    return [
        RunCurve(f"{item.label} P_w", index, norms, told_band(both_ends(lower, total(WEIGHTS)), norms)),
        RunCurve(f"{item.label} Π1/σ", index, sigmas, told_band(ends, sigmas), "dashed"),
    ]


def plot_figure(plot: Plot) -> Markup:
    """The figure in both shapes, with the numbers its tooltip tells."""
    if not any(curve.pairs or curve.band for curve in plot.curves):
        return Markup()
    told = json.dumps([_told(curve) for curve in plot.curves], separators=(",", ":"), ensure_ascii=False)
    drawn = (plot_drawing(plot, shape) for shape in (WIDE, NARROW))
    return svg.captioned_figure(plot.caption, *drawn, class_="plot", data_curves=told)


def _told(curve: RunCurve) -> dict[str, object]:
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


def upright(values: Sequence[float], bottom: float, top: float, may_be_logarithmic: bool) -> Axis:
    """The axis of a curve: logarithmic where that is allowed and the values span decades."""
    fine = [value for value in values if math.isfinite(value)]
    positive = [value for value in fine if value > 0]
    wide = bool(positive) and max(positive) / min(positive) > SPREAD
    logarithmic = may_be_logarithmic and wide and min(fine) >= 0  # a negative loss has no place there
    return svg.axis(fine, bottom, top, logarithmic=logarithmic)


def steps_axis(span: tuple[int, int], shape: Shape) -> tuple[Axis, list[tuple[float, str]]]:
    """The axis of the steps, with ticks at whole ones."""
    across = Axis(((span[0], shape.left), (span[1], shape.width - shape.right)))
    ticks = [value for value in svg.round_ticks(*span, 7 if shape.wide else 4) if value == round(value)]
    return across, [(across.at(value), f"{value:,.0f}") for value in ticks]


def plot_drawing(plot: Plot, shape: Shape) -> Markup:
    """The figure in one shape."""
    across, ticks = steps_axis(plot.span, shape)
    floor = TOP + shape.height
    gone = [step for curve in plot.curves for step, value in curve.pairs if not math.isfinite(value)]
    values = [v for c in plot.curves for v in (*(v for _, v in c.pairs), *(end for _, *ends in c.band for end in ends))]
    up = upright(values, floor, TOP + (STRIP if gone else 0.0), plot.decades)
    width = across.end - across.start
    return svg.drawing(
        (shape.width, floor + FOOT + 4),
        shape.name,
        f"{plot.caption}: {len(plot.curves)} curves over steps {plot.span[0]} to {plot.span[1]}.",
        svg.levels(up.ticks(6 if shape.wide else 5), across.start, across.end),
        svg.uprights(ticks, floor, floor, shape.width),
        svg.line(across.start, floor, across.end, floor, "zero"),
        svg.text_line(2, 12, f"{plot.unit}, logarithmic" if up.logarithmic else plot.unit, "tiny"),
        svg.text_line(across.end, 12, "step →", "tiny", "end"),
        _marks(plot.marks, across, floor),
        [_curve(curve, across, up) for curve in plot.curves],
        _gone(gone, across),
        svg.box(shape.left, TOP, width, shape.height, "hit", data_first=plot.span[0], data_last=plot.span[1]),
        svg.line(0, TOP, 0, floor, "cursor"),
        key=plot.legend,
        left=shape.left,
    )


def _marks(marks: Sequence[tuple[int, int]], across: Axis, floor: float) -> Content:
    """One line a pixel at most: a run that warns at every step is a wall, not ten thousand lines."""
    places = dict.fromkeys(round(across.at(step)) for step, _ in marks)
    return [
        (svg.line(x, TOP, x, floor, "alarm"), svg.arrow(x, TOP - 2, 0, 0.8, "alarmed")) for x in list(places)[:MARKS]
    ]


def _curve(curve: RunCurve, across: Axis, up: Axis) -> Content:
    colour, band = f"c{curve.colour % COLOURS}", thin_band(curve.band) if curve.band else []
    there = [(across.at(step), up.at(high)) for step, _, high in band]
    back = [(across.at(step), up.at(low)) for step, low, _ in reversed(band)]
    style = f"{colour} dashed" if curve.kind == "dashed" else colour
    enclosed = svg.path([*there, *back], f"band {colour}", "polygon") if band else None
    return enclosed, svg.curve(curve.pairs, (across, up), style, DOTTED)


def _gone(steps: Sequence[int], across: Axis) -> Content:
    """Where values are not finite, in the strip above the curves; the words stand at the first."""
    if not steps:
        return None
    first = across.at(min(steps))
    shift, anchor = (-8, "end") if first > across.end - 90 else (8, None)
    places = dict.fromkeys(round(across.at(step)) for step in steps)
    told = svg.text_line(first + shift, TOP + 15, "not finite", "tiny halo", anchor)
    return [svg.arrow(x, TOP + 13, 0, -1, "alarmed") for x in places], told
