"""The waterfall: log10 gain by depth, drawn by hand as one inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from normgauge.core.reading import LayerRecord, Reading
from normgauge.core.spelled import LN10
from normgauge.render.numbers import decades

WIDTH, HEIGHT = 960, 320
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 14, 26
WIDEST = 60


@dataclass(frozen=True, slots=True)
class Axis:
    """Decades to pixels, and layer numbers to pixels."""

    low: float
    high: float
    count: int

    def y(self, value: float) -> float:
        """The height of ``value``; infinities sit at the edge."""
        inside = min(max(value, self.low), self.high)
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - inside) / (self.high - self.low)

    def x(self, index: float) -> float:
        """The place of layer ``index``."""
        return LEFT + (WIDTH - LEFT - RIGHT) * index / self.count


def waterfall(reading: Reading) -> str:
    """Bars: each layer's own gain stacked as if in series. Line: the bound from the input to that layer."""
    records = reading.layers
    if not records:
        return ""
    ends = _running(records)
    cumulative = [None if r.log_cumulative is None else r.log_cumulative / LN10 for r in records]
    finite = [v for v in (*sum(ends, ()), *(c for c in cumulative if c is not None), 0.0) if math.isfinite(v)]
    pad = 0.05 * max(max(finite) - min(finite), 1.0)
    axis = Axis(min(finite) - pad, max(finite) + pad, len(records))
    parts = [*_grid(axis), *_bars(records, ends, axis), _line(cumulative, axis)]
    label = escape(f"log10 gain by depth, scope {reading.scope}", quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" class="waterfall">'
        + "".join(parts)
        + "</svg>"
    )


def _running(records: Sequence[LayerRecord]) -> list[tuple[float, float]]:
    """Start and end of every bar. An infinite gain is drawn to the edge and then left out of the sum."""
    level, ends = 0.0, []
    for record in records:
        gain = record.gain.hi / LN10
        ends.append((level, level + gain))
        level += gain if math.isfinite(gain) else 0.0
    return ends


def _grid(axis: Axis) -> list[str]:
    step = 10 ** math.floor(math.log10(axis.high - axis.low))
    step = next(step * k for k in (0.2, 0.5, 1, 2, 5) if (axis.high - axis.low) / (step * k) <= 8)
    first, last = math.ceil(axis.low / step), math.floor(axis.high / step)
    lines = []
    for tick in range(first, last + 1):
        y = axis.y(tick * step)
        kind = "zero" if tick == 0 else "tick"
        lines.append(f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text class="axis" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick * step:g}</text>')
    lines.append(f'<text class="axis" x="2" y="{HEIGHT - 6}">log10</text>')
    lines.append(f'<text class="axis" x="{LEFT}" y="{HEIGHT - 6}">input</text>')
    lines.append(f'<text class="axis" x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">output</text>')
    return lines


def _bars(records: Sequence[LayerRecord], ends: Sequence[tuple[float, float]], axis: Axis) -> list[str]:
    bars = []
    thick = min(max((WIDTH - LEFT - RIGHT) / axis.count * 0.8, 0.5), WIDEST)
    for index, (record, (start, end)) in enumerate(zip(records, ends, strict=True)):
        top, bottom = sorted((axis.y(start), axis.y(end)))
        kind = "norm" if record.sigma is not None else "open" if math.isinf(end) else "weight"
        told = escape(f"{record.name} ({record.kind}): log10 gain {decades(record.gain.hi)}")
        bars.append(
            f'<rect class="{kind}" x="{axis.x(index + 0.5) - thick / 2:.1f}" y="{top:.1f}" width="{thick:.1f}" '
            f'height="{max(bottom - top, 1):.1f}"><title>{told}</title></rect>'
        )
    return bars


def _line(cumulative: Sequence[float | None], axis: Axis) -> str:
    points = " ".join(
        f"{axis.x(index + 0.5):.1f},{axis.y(value):.1f}" for index, value in enumerate(cumulative) if value is not None
    )
    return f'<polyline class="line" points="{points}"/>'
