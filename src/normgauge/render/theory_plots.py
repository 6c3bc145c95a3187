"""Small plots: the lines that a check or a certificate offers."""

from __future__ import annotations

import math

from normgauge.core.claim import Curve
from normgauge.render import svg
from normgauge.render.markup import Markup

WIDTH, LEFT, RIGHT, TOP = 380.0, 58.0, 12.0, 24.0
EDGE = 16.0  # left of the legend
HEIGHT, FOOT = 150.0, 40.0
STYLES = 6  # of lines, told apart by colour and by dashes
DOTTED = 16  # points below which each is marked


def curve_plot(curve: Curve) -> Markup:
    """The lines of a curve; "" where nothing in it is finite."""
    values = [v for _, line in curve.lines for v in line]
    if not any(map(math.isfinite, values)) or not any(map(math.isfinite, curve.x)):
        return Markup()
    floor = TOP + HEIGHT
    across = svg.axis(curve.x, LEFT, WIDTH - RIGHT, logarithmic=curve.log_x)
    up = svg.axis(values, floor, TOP, logarithmic=curve.log_y)
    named = [(f"l{i % STYLES}", name, line) for i, (name, line) in enumerate(curve.lines)]
    drawn = svg.drawing(
        (WIDTH, floor + FOOT),
        "mini",
        f"{curve.title}: {curve.y_label} against {curve.x_label}; lines: {', '.join(name for _, name, _ in named)}",
        svg.uprights(across.ticks(5), TOP, floor, WIDTH),
        svg.levels(up.ticks(5), LEFT, WIDTH - RIGHT),
        svg.line(LEFT, floor, WIDTH - RIGHT, floor, "zero"),
        [
            svg.curve(list(zip(curve.x, line, strict=False)), (across, up), style, DOTTED, name)
            for style, name, line in named
        ],
        svg.text_line(2, 14, svg.fit(curve.y_label, WIDTH - 4), "tiny"),
        svg.text_line(WIDTH - RIGHT, floor + 34, svg.fit(f"{curve.x_label} →", WIDTH - LEFT), "tiny", "end"),
        key=[(f"line curve {style}", svg.fit(name, WIDTH - LEFT - 60)) for style, name, _ in named],
        left=EDGE,
    )
    return svg.captioned_figure(curve.title, drawn)
