"""The spectrum of a Hessian: its density, and single eigenvalues as ticks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from normgauge.core.curvature import Curvature
from normgauge.render import svg
from normgauge.render.svg import Scale, Shape

TOP, TICK = 16.0, 26.0
POINTS = 240
DECADES = 7.0  # shown below the peak of the density
WIDTH = 0.006  # of a Gaussian, as a share of the axis


def spectrum(found: Curvature, shape: Shape = svg.WIDE) -> str:
    """Draw the density (where it is known) over the eigenvalues found."""
    values = [value.value for value in found.eigenvalues] + [found.smallest.value]
    nodes = [] if found.density is None else [v for v, w in found.density.points() if w > 0]
    left, right = shape.left + 8, shape.width - 12
    across = _padded([*values, *nodes], left, right)
    floor = TOP + (shape.height if found.density is not None else 30.0)
    parts = [*_axis(across, floor, shape), *_density(found, across, floor)]
    for i, value in enumerate(found.eigenvalues):
        parts.append(_tick(across, floor, value.value, f"λ{i + 1} = {value.value:.6g}", "found solid"))
    parts.append(_tick(across, floor, found.smallest.value, f"smallest: {found.smallest.value:.6g}", "balanced solid"))
    key = [("tick found solid", "largest eigenvalues"), ("tick balanced solid", "smallest found")]
    if found.density is not None:
        key.append(("line reached", "density of all, log10"))
    swatches, taken = svg.legend(key, floor + 44, left, right)
    label = f"Spectrum of {found.parameters} eigenvalues from {min(values):.3g} to {max(values):.3g}."
    return svg.drawing(shape.width, floor + 48 + taken, shape.name, label, [*parts, *swatches])


def _padded(values: Sequence[float], start: float, end: float) -> Scale:
    low, high = min(*values, 0.0), max(*values, 0.0)
    room = 0.04 * (high - low) or 1.0
    return Scale(low - room, high + room, start, end)


def _axis(across: Scale, floor: float, shape: Shape) -> Iterator[str]:
    yield svg.line(across.start, floor, across.end, floor, "zero")
    for value in svg.ticks(across, 9 if shape.wide else 5):
        x = across.at(value)
        yield svg.line(x, TOP, x, floor, "zero" if value == 0 else "grid")
        yield svg.text(x, floor + 34, f"{value:.6g}", "tiny", "middle")


def _density(found: Curvature, across: Scale, floor: float) -> Iterator[str]:
    if found.density is None:
        return
    span = across.high - across.low
    at = [across.low + span * i / (POINTS - 1) for i in range(POINTS)]
    heights = [math.log10(max(y * span, 1e-300)) for y in found.density.curve(at, WIDTH * span)]
    up = Scale(max(heights) - DECADES, max(heights), floor, TOP + 4)
    corners = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in zip(at, heights, strict=True))
    yield f'<polyline class="reached" points="{corners}"/>'
    yield svg.text(across.start - 4, TOP + 8, "log10", "tiny", "end")


def _tick(across: Scale, floor: float, value: float, told: str, kind: str) -> str:
    x = across.at(value)
    return f"<g><title>{escape(told)}</title>{svg.line(x, floor - TICK / 2, x, floor + TICK / 2, kind)}</g>"
