"""Small plots: the lines that a check or a certificate offers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from normgauge.core.claim import Curve
from normgauge.render import svg
from normgauge.render.theory_axes import Axis, axis, finite

WIDTH, LEFT, RIGHT, TOP = 380.0, 58.0, 12.0, 24.0
EDGE = 16.0  # left of the legend
HEIGHT, FOOT = 150.0, 40.0
STYLES = 6  # of lines, told apart by colour and by dashes
DOTTED = 16  # points below which each is marked


def curve_plot(curve: Curve) -> str:
    """The lines of a curve; "" where nothing in it is finite."""
    values = [v for _, line in curve.lines for v in line]
    if not finite(values) or not finite(curve.x):
        return ""
    floor = TOP + HEIGHT
    across = axis(curve.x, LEFT, WIDTH - RIGHT, logarithmic=curve.log_x)
    up = axis(values, floor, TOP, logarithmic=curve.log_y)
    parts = [*_upright(across, TOP, floor), *_level(up, across)]
    parts.append(svg.line(across.scale.start, floor, across.scale.end, floor, "zero"))
    for index, (name, line) in enumerate(curve.lines):
        parts.extend(_line(list(zip(curve.x, line, strict=False)), across, up, f"l{index % STYLES}", name))
    parts.append(svg.text(2, 14, svg.fit(curve.y_label, WIDTH - 4), "tiny"))
    parts.append(svg.text(WIDTH - RIGHT, floor + 34, svg.fit(f"{curve.x_label} →", WIDTH - LEFT), "tiny", "end"))
    entries = [
        (f"line curve l{i % STYLES}", svg.fit(name, WIDTH - LEFT - 60)) for i, (name, _) in enumerate(curve.lines)
    ]
    swatches, taken = svg.legend(entries, floor + FOOT, EDGE, WIDTH - 4)
    names = ", ".join(name for name, _ in curve.lines)
    label = f"{curve.title}: {curve.y_label} against {curve.x_label}; lines: {names}"
    return _figure(curve.title, svg.drawing(WIDTH, floor + FOOT + taken + 2, "mini", label, [*parts, *swatches]))


def _upright(across: Axis, top: float, floor: float) -> Iterator[str]:
    last = -math.inf
    for x, words in across.ticks(5):
        yield svg.line(x, top, x, floor, "grid")
        half = svg.text_width(words, 12) / 2
        if x - half > max(last, 0) and x + half < WIDTH:
            yield svg.text(x, floor + 16, words, "tiny", "middle")
            last = x + half + 6


def _level(up: Axis, across: Axis) -> Iterator[str]:
    for y, words in up.ticks(5):
        yield svg.line(across.scale.start, y, across.scale.end, y, "grid")
        yield svg.text(LEFT - 6, y + 4, words, "tiny", "end")


def _line(points: Sequence[tuple[float, float]], across: Axis, up: Axis, style: str, name: str) -> Iterator[str]:
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            pieces[-1].append((across.at(x), up.at(y)))
        elif pieces[-1]:
            pieces.append([])
    title = f"<title>{escape(name)}</title>"
    for piece in filter(None, pieces):
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in piece)
        yield f'<polyline class="curve {style}" points="{places}">{title}</polyline>'
        if len(points) < DOTTED or len(piece) == 1:
            yield from (f'<circle class="dot {style}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in piece)


def _figure(caption: str, drawn: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{drawn}</figure>"
