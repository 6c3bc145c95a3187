"""Panels the figures are put together from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.akbar2025.contour import contours
from experiments.akbar2025.results import mean, median
from experiments.plot import RAISED, Line, Panel, Point

BN, PLAIN = 2, 1  # hues: green with BatchNorm, red without, as the paper says
HUES = {"batch": BN, "none": PLAIN, "layer": 4}
NAMES = {"batch": "BatchNorm", "none": "plain", "layer": "LayerNorm"}
LEVELS = (0.2, 0.3, 0.4, 0.55, 0.7, 0.9, 1.2, 1.6, 2.2, 3.0)


def log(value: float) -> float:
    """The decimal log; nan of what has none."""
    return math.log10(value) if value > 0 and math.isfinite(value) else math.nan


def over(
    label: str, xs: Sequence[float], rows: Sequence[Sequence[float]], hue: float, *, logs: bool = True, **more: Any
) -> Line:
    """The median over seeds with lowest and highest, at each x; ``rows`` has one list a seed."""
    columns = [[row[k] for row in rows] for k in range(len(xs))]
    change = log if logs else float
    points = tuple((x, change(median(column))) for x, column in zip(xs, columns, strict=True))
    band = tuple(
        (x, change(min(column)), change(max(column)))
        for x, column in zip(xs, columns, strict=True)
        if all(map(math.isfinite, column))
    )
    return Line(label, points, hue, band=band, **more)


def ticks(values: Sequence[float], every: int = 1) -> tuple[tuple[float, str], ...]:
    """Places on a logarithmic x axis, with the numbers themselves."""
    return tuple((log(v), _tick(v)) for v in values[::every])


def _tick(value: float) -> str:
    """The number, or a power of ten where that is shorter."""
    power = round(log(value))
    whole = value > 0 and abs(value / 10.0**power - 1) < 1e-9
    return f"10{str(power).translate(RAISED)}" if whole and power < -2 else f"{value:g}"


def loss_contours(title: str, grid: Mapping[str, Any], model: str, normal: Sequence[float]) -> Panel:
    """Contour lines of the loss over the plane of w, and the best direction."""
    lines = []
    for k, level in enumerate(LEVELS):
        for chain in contours(grid[model], level, grid["reach"]):
            lines.append(Line("", tuple(chain), k / len(LEVELS), ramp=True))
    far = 0.95 * grid["reach"]
    best = Line("best direction", ((0.0, 0.0), (far * normal[0], far * normal[1])), HUES[model], dashed=True)
    return Panel(title, (*lines, best), x="w₁")


def paths(title: str, models: Mapping[str, Sequence[Mapping[str, Any]]], norms: Sequence[float], lr: float) -> Panel:
    """Where w went from several starting norms, both models."""
    lines = []
    for model, rows in models.items():
        for row in rows:
            if row["norm"] in norms and row["lr"] == lr:
                way: tuple[Point, ...] = tuple((x, y) for x, y in row["path"])
                lines.append(
                    Line(f"{NAMES[model]}, ‖w₀‖ = {row['norm']:g}", way, HUES[model], dashed=row["norm"] == max(norms))
                )
                lines.append(Line("", way[:1], HUES[model], marks=True))
    return Panel(title, tuple(lines), x="w₁")


def curves(title: str, found: Mapping[str, Any], key: str) -> Panel:
    """Medians over seeds against the step, both axes logarithmic."""
    lines = []
    for model in ("batch", "none"):
        at = [s for s in found[model]["steps"] if s > 0]
        rows = [row[-len(at) :] for row in found[model][key]]
        lines.append(over(NAMES[model], [log(s) for s in at], rows, HUES[model]))
    drawn = [x for line in lines for x, y in line.points if math.isfinite(y)]
    named = tuple((k, f"{10**k:,}") for k in range(int(max(drawn, default=0)) + 1))
    return Panel(title, tuple(lines), x="step", y="log", ticks=named)


def histogram(title: str, edges: Sequence[float], models: Mapping[str, Sequence[float]], x: str) -> Panel:
    """Shares of points by margin, as steps."""
    lines = []
    for model, counts in models.items():
        total = sum(counts) or 1.0
        points: list[Point] = []
        some = [k for k, count in enumerate(counts) if count]
        for k in range(min(some, default=0), max(some, default=-1) + 1):
            points += [(edges[k], counts[k] / total), (edges[k + 1], counts[k] / total)]
        lines.append(Line(NAMES[model], tuple(points), HUES[model]))
    return Panel(title, tuple(lines), x=x, y="%")


def shaken(title: str, found: Mapping[str, Any], kinds: Mapping[str, tuple[str, str, bool]], x: str) -> Panel:
    """Mean training accuracy against the size of the noise; kinds: label -> (model, kind, dashed)."""
    lines = []
    for label, (model, kind, dashed) in kinds.items():
        told = found[model]["zero"]["noise"]
        columns = zip(*[row for row in told[kind]["accuracy"] if isinstance(row, list)], strict=True)
        points = tuple((s, mean(list(c))) for s, c in zip(told["levels"], columns, strict=True))
        hue = {"x10": 3, "x0.1": 4}.get(kind, HUES[model])
        lines.append(Line(label, points, hue, dashed=dashed))
    return Panel(title, tuple(lines), x=x, y="%")
