"""Every quantity of some runs over the steps, each as a drawing of its own: totals, capacity, and columns by layer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from normgauge.core.errors import ReadingError
from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10
from normgauge.core.store import Run
from normgauge.render.document import LIGHT, asset
from normgauge.render.markup import Markup
from normgauge.render.numbers import told_apart
from normgauge.render.runs_curves import (
    COLOURS,
    SIGMA,
    WEIGHTS,
    Plot,
    RunCurve,
    plot_drawing,
    product_curves,
)
from normgauge.render.runs_data import (
    LabelledRun,
    Pairs,
    column_evidence,
    layer_cells,
    loss_series,
    step_span,
    thin_series,
    total_evidence,
)
from normgauge.render.svg import Shape, fit

MARKS = {
    "curve": "fill:none;stroke:{};stroke-width:1.6;stroke-linejoin:round",
    "band": "fill:{};fill-opacity:.2",
    "dot": "fill:{}",
}
LINES = 4000  # of a run that are read for its columns; of longer ones every second, third, ...
FILE = Shape("wide", 640, 200, 70, 14)  # with room for the longest number at its axis
KEY = FILE.width - 2 * FILE.left  # room for a name in the legend
COSTS = frozenset({"seconds", "share"})  # what measuring took is no quantity of the network


def run_drawings(items: Sequence[LabelledRun]) -> list[tuple[str, Markup]]:
    """The name of a file and a drawing for every quantity: one for all runs of a total, one a run of a column."""
    found = [*_totals(items), *(drawn for item in items for drawn in _columns(item, len(items) > 1))]
    plain = [re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:80] or "column" for name, _ in found]
    drawings = (plot_drawing(plot, FILE) for _, plot in found)
    return list(zip(told_apart(plain, "{}-{}"), drawings, strict=True))


def run_style() -> Markup:
    """Rules for the marks of these drawings with the page's light colours written out: converters know no variables."""
    sheet = asset("runs.css")
    colours = dict(re.findall(r"--(\w+): (#\w+)", sheet.split("@media")[0]))
    rules = [rule for rule in sheet.splitlines() if re.match(r"\.fig \.(dashed|alarmed|cursor)\b", rule)]
    for kind, declared in MARKS.items():
        rules += [f".fig .{kind}.c{i}{{{declared.format(colours[f'run{i}'])}}}" for i in range(COLOURS)]
    return Markup(re.sub(r"var\(--(\w+)\)", lambda found: {**LIGHT, **colours}[found[1]], "\n".join(rules)))


def _totals(items: Sequence[LabelledRun]) -> Iterator[tuple[str, Plot]]:
    own = {key for item in items for step in item.run.steps[-1:] for key in step["totals"]}
    names = sorted(own - COSTS - {name for name in own if name.startswith((WEIGHTS, SIGMA))})
    curves = {"loss": [_curve(i, item, loss_series(item.run)) for i, item in enumerate(items)]}
    curves["P_w"] = [product_curves(i, item)[0] for i, item in enumerate(items)]
    curves["prod_inv_sigma"] = [product_curves(i, item)[1] for i, item in enumerate(items)]
    curves["capacity"] = [_capacity(i, item) for i, item in enumerate(items)]
    curves |= {name: [_curve(i, item, item.run.total(name)) for i, item in enumerate(items)] for name in (*names, "lr")}
    for name, drawn in curves.items():
        shown = [curve for curve in drawn if curve.pairs]
        if shown:
            yield name, _plot(name, items, shown)


def _plot(name: str, items: Sequence[LabelledRun], curves: Sequence[RunCurve]) -> Plot:
    logs = name.startswith("log10") or name in ("P_w", "prod_inv_sigma", "capacity")
    total = {"P_w": WEIGHTS, "prod_inv_sigma": f"{SIGMA}_rms"}.get(name, name)
    known = "upper bounds, bands down to slopes found" if name == "capacity" else total_evidence(items[0].run, total)
    key = [(f"line curve c{c.colour % COLOURS}", fit(items[c.colour].label, KEY)) for c in curves]
    unit = f"{'log10 ' if logs and not name.startswith('log10') else ''}{name} ({known})"
    return Plot(name, unit, curves, step_span(items), (), key if len(items) > 1 else (), not logs)


def _curve(index: int, item: LabelledRun, pairs: Pairs) -> RunCurve:
    return RunCurve(item.label, index, thin_series(pairs))


def _capacity(index: int, item: LabelledRun) -> RunCurve:
    """Both ends of the bracket at the full readings of a run, in the scope of the first."""
    found = _bounds(item.run)
    band = [(step, low, high) for step, low, high in found if math.isfinite(low + high)]
    return RunCurve(item.label, index, [(step, high) for step, _, high in found], band)


def _bounds(run: Run) -> list[tuple[int, float, float]]:
    found = []
    for record in run.readings:
        step = record.get("step")
        try:
            reading = Reading.from_json(record["reading"])
        except (ReadingError, KeyError, TypeError, ValueError):
            continue
        if isinstance(step, int) and abs(step) < 2**53:
            found.append((step, reading.log_lower / LN10, reading.log_upper / LN10))
    return found


def _columns(item: LabelledRun, several: bool) -> Iterator[tuple[str, Plot]]:
    names = item.run.layers
    stride = math.ceil(len(item.run.steps) / LINES) or 1
    steps = item.run.steps[::stride]
    every = f", every {stride}th line" if stride > 1 else ""
    for column in sorted({name for step in (*steps[:1], *steps[-1:]) for name in step["columns"]}):
        lines = [(step.step, layer_cells(step, column, len(names))) for step in steps]
        series = [(name, [(s, v) for s, cells in lines if (v := cells[i]) is not None]) for i, name in enumerate(names)]
        known = [pair for pair in series if pair[1]]
        moved = sorted(known, key=lambda pair: -_change(pair[1]))[:COLOURS]
        if moved:
            of = f", the {len(moved)} of {len(known)} layers that changed most" if len(known) > len(moved) else ""
            unit = f"{column} ({column_evidence(item.run, column)}){of}{every}"
            curves = [RunCurve(name, i, thin_series(pairs)) for i, (name, pairs) in enumerate(moved)]
            key = [(f"line curve c{i}", fit(name, KEY)) for i, (name, _) in enumerate(moved)]
            title = f"{column}-{item.label}" if several else column
            yield title, Plot(column, unit, curves, step_span([item]), (), key, decades=True)


def _change(pairs: Pairs) -> float:
    """By how much a quantity changed: in decades where it is positive; most of all where it is not finite."""
    values = [value for _, value in pairs]
    if not all(map(math.isfinite, values)):
        return math.inf
    low, high = min(values), max(values)
    return math.log10(high / low) if low > 0 else high - low
