"""The few SVG elements the figures are made of, and the arithmetic of axes and labels.

The figures are drawn by hand rather than by a plotting library: nothing to install, a few kilobytes each, colours that
follow the page's theme, bars that can be hovered and focused, and text that stays text for a screen reader.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

FONT = 13.0
RAISED = 4  # pixels an exponent stands above its base
POWER = re.compile(r"(?<=\b10)\^(-?\d+(?:\.\d+)?)")
NARROW_LETTERS, WIDE_LETTERS = frozenset("ijltf.,:;'|!()[]· "), frozenset("mwMW@%…−")


@dataclass(frozen=True, slots=True)
class Shape:
    """A figure's size. Every figure is drawn twice, wide and narrow; the page shows the one that fits.

    Attributes:
        name: its class in the page.
        width: of the whole drawing.
        height: of the plot inside it.
        left: room for the axis.
        right: room for labels.
        bars: more layers than this share bars.
    """

    name: str
    width: float
    height: float
    left: float
    right: float
    bars: int

    @property
    def wide(self) -> bool:
        """Labels take one line."""
        return self.name == "wide"


WIDE = Shape("wide", 960, 250, 40, 176, 240)
NARROW = Shape("narrow", 380, 160, 32, 98, 80)


@dataclass(frozen=True, slots=True)
class Scale:
    """Values to pixels; what lies outside, infinities above all, sits at the edge."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of ``value``."""
        inside = min(max(value, self.low), self.high)
        return self.start + (self.end - self.start) * (inside - self.low) / (self.high - self.low)


def scale(values: Sequence[float], start: float, end: float) -> Scale:
    """A scale that holds zero and every finite value, with a little room, and more on the side of an infinite one."""
    finite = [v for v in (*values, 0.0) if math.isfinite(v)]
    pad = 0.06 * max(max(finite) - min(finite), 0.5)
    below, above = (5 if infinite in values else 1 for infinite in (-math.inf, math.inf))
    return Scale(min(finite) - below * pad, max(finite) + above * pad, start, end)


def ticks(axis: Scale, most: int = 7) -> list[float]:
    """Round values along an axis, at most ``most`` of them."""
    span = axis.high - axis.low
    unit = 10 ** math.floor(math.log10(span))
    step = next(unit * k for k in (0.1, 0.2, 0.5, 1, 2, 5, 10) if span / (unit * k) <= most)
    return [k * step for k in range(math.ceil(axis.low / step), math.floor(axis.high / step) + 1)]


def drawing(width: float, height: float, kind: str, label: str, parts: Sequence[str]) -> str:
    """A whole figure; ``label`` is what a screen reader says."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fig {kind}" viewBox="0 0 {width:g} {height:g}" role="group" '
        f'aria-label="{escape(label)}">' + "".join(parts) + "</svg>"
    )


def text(x: float, y: float, content: str, kind: str = "soft", anchor: str = "start") -> str:
    """A line of text, with powers of ten raised as on the page."""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{place}>{_raised(content)}</text>'


def _raised(content: str) -> str:
    """Escaped, with the exponents of ``10^1.5`` as superscripts; ``baseline-shift`` is not drawn by every browser."""
    first, *rest = POWER.split(content)
    shown = escape(first)
    for exponent, after in zip(rest[::2], rest[1::2], strict=True):
        shown += f'<tspan class="sup" dy="-{RAISED}">{exponent}</tspan>'
        shown += f'<tspan dy="{RAISED}">{escape(after)}</tspan>' if after else ""
    return shown


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A rectangle, at least a hair wide and high."""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{max(height, 1.5):.1f}"/>'
    )


def arrow(x: float, y: float, dx: float, dy: float, kind: str = "open") -> str:
    """A triangle that points off the edge: this goes on to infinity."""
    tip, side = 8.0, 5.0
    points = [(x + tip * dx, y + tip * dy), (x - side * dy, y + side * dx), (x + side * dy, y - side * dx)]
    return f'<polygon class="{kind}" points="{" ".join(f"{px:.1f},{py:.1f}" for px, py in points)}"/>'


def text_width(content: str, size: float = FONT) -> float:
    """How wide a text comes out at most, in any usual sans-serif font."""
    return size * sum(
        0.42 if c in NARROW_LETTERS else 1.0 if c in WIDE_LETTERS else 0.74 if c.isupper() else 0.64 for c in content
    )


def fit(content: str, width: float) -> str:
    """The text, shortened in the middle where it is too wide."""
    kept = len(content)
    shown = content
    while text_width(shown) > width and kept > 2:
        kept -= 1
        shown = content[: (kept + 1) // 2] + "…" + content[len(content) - kept // 2 :]
    return shown


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places at least ``gap`` apart between ``low`` and ``high``, in order, close to the sorted places wanted."""
    places: list[float] = []
    for place in wanted:
        places.append(max(place, places[-1] + gap if places else low))
    limit = high
    for index in reversed(range(len(places))):
        places[index] = min(places[index], limit)
        limit = places[index] - gap
    return places


def legend(entries: Sequence[tuple[str, str]], y: float, left: float, right: float) -> tuple[list[str], float]:
    """Swatches with words, in as many lines as needed; also the height taken.

    A kind that begins with ``line`` is drawn as a level line, one that begins with ``tick`` as an upright one.
    """
    parts, x, row = [], left, 0
    for kind, words in entries:
        needed = 18 + text_width(words, 12) + 14
        if x > left and x + needed > right:
            x, row = left, row + 1
        middle = y + 20 * row + 9
        if kind.startswith("line"):
            parts.append(line(x, middle, x + 13, middle, kind.removeprefix("line ")))
        elif kind.startswith("tick"):
            parts.append(line(x + 6.5, middle - 7, x + 6.5, middle + 7, kind.removeprefix("tick ")))
        else:
            parts.append(box(x, middle - 5, 13, 10, kind))
        parts.append(text(x + 18, middle + 4, words, "key"))
        x += needed
    return parts, 20.0 * (row + 1)
