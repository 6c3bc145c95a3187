"""The grammar of all figures: one axis, its grid, and the few marks that are put on it.

The figures are drawn by hand rather than by a plotting library: nothing to install, a few kilobytes each, colours that
follow the page's theme, bars that can be hovered and focused, and text that stays text for a screen reader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from normgauge.render.markup import Content, Markup, markup, powers, tag

FONT = 13.0
TINY = 12.0  # of the words at an axis
RAISED = 4  # pixels an exponent stands above its base
NARROW_LETTERS, WIDE_LETTERS = frozenset("ijltf.,:;'|!()[]· "), frozenset("mwMW@%…−")
ROOM = 0.06  # of the values' range, left free at both ends of an axis
PLAIN = 3  # decades on both sides of 1 that are written out
FEW = 2.5  # decades on an axis below which 2 and 5 are written too
FINE, COARSE = (1, 1.5, 2, 3, 5, 7), (1, 2, 5)  # what is written in each decade there, the first where it fits
ROUNDING = 1e-9  # steps by which an end may miss a tick
Point = tuple[float, float]


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
    bars: int = 0

    @property
    def wide(self) -> bool:
        """Whether labels take one line: the figure is wide."""
        return self.name == "wide"


WIDE = Shape("wide", 960, 250, 40, 176, 240)
NARROW = Shape("narrow", 380, 160, 32, 98, 80)


@dataclass(frozen=True, slots=True)
class Axis:
    """Values to pixels, straight between knots; what lies outside, infinities above all, sits at the edge.

    Attributes:
        knots: values, or their decimal logs, with their pixels; values ascend.
        logarithmic: which of the two.
        least: where ticks begin; below it, on a logarithmic axis, there is a gap and then zero.
    """

    knots: tuple[Point, ...]
    logarithmic: bool = False
    least: float = -math.inf

    @property
    def start(self) -> float:
        """The pixel of the lowest value."""
        return self.knots[0][1]

    @property
    def end(self) -> float:
        """The pixel of the highest value."""
        return self.knots[-1][1]

    def at(self, value: float) -> float:
        """The pixel of a value; zero has none on a logarithmic axis and sits at its start."""
        if self.logarithmic:
            value = math.log10(value) if value > 0 else -math.inf
        return self.pixel(value)

    def pixel(self, place: float) -> float:
        """The pixel of a value, or of its decimal log on a logarithmic axis."""
        for (low, start), (high, end) in pairwise(self.knots):
            if place <= high:
                return start + (end - start) * (max(place, low) - low) / (high - low)
        return self.end

    def ticks(self, most: int = 7, spell: Callable[[float], str] = "{:.6g}".format) -> list[tuple[float, str]]:
        """Pixel and words of round values, about ``most``, and of zero where it stands apart."""
        low, high = max(self.knots[0][0], self.least), self.knots[-1][0]
        zero = [(self.start, "0")] if low > self.knots[0][0] else []
        if self.logarithmic:
            return [
                *zero,
                *((self.pixel(log), power_words(log, abs(log) <= PLAIN)) for log in decade_ticks(low, high, most)),
            ]
        return [(self.pixel(value), spell(value)) for value in round_ticks(low, high, most)]


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Round values between two ends, at most ``most`` and one.

    >>> round_ticks(0, 100, 5), round_ticks(-1.2, 0.9, 5)
    ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [-1.0, -0.5, 0.0, 0.5])
    """
    unit = 10 ** math.floor(math.log10(high - low))
    step = next(unit * k for k in (0.1, 0.2, 0.5, 1, 2, 5, 10) if (high - low) / (unit * k) <= 1.001 * most)
    inside = range(math.ceil(low / step - ROUNDING), math.floor(high / step + ROUNDING) + 1)
    return [float(f"{k * step:.12g}") for k in inside]


def decade_ticks(low: float, high: float, most: int) -> list[float]:
    """Ticks of a logarithmic axis between two decimal logs: round numbers, 1, 2 and 5, or decades, as it widens.

    >>> decade_ticks(-3.2, 12, 5), [round(10**k) for k in decade_ticks(1.9, 2.9, 5)]
    ([0.0, 5.0, 10.0], [100, 200, 500])
    >>> [round(10**k, 1) for k in decade_ticks(-0.1, 0.15, 5)]
    [0.8, 1.0, 1.2, 1.4]
    >>> [round(10**k, 1) for k in decade_ticks(0.85, 1.35, 8)]
    [10.0, 15.0, 20.0]
    """
    if high - low >= FEW:
        return [value for value in round_ticks(low, high, most) if value == round(value)]
    if high - low < 0.5:
        whole = math.floor(low)  # what is far from 1 is no float of its own
        return [whole + math.log10(value) for value in round_ticks(10 ** (low - whole), 10 ** (high - whole), most)]
    wholes = range(math.floor(low), math.ceil(high) + 1)
    for steps in (FINE, COARSE):
        fine = [k + math.log10(m) for k in wholes for m in steps]
        inside = [value for value in fine if low <= value <= high]
        if len(inside) <= most:
            break
    return inside


def power_words(log: float, plain: bool) -> str:
    """What is written for a decimal log: a plain number where that is asked for.

    >>> power_words(3, True), power_words(3, False), power_words(-25, False), power_words(math.log10(2e5), False)
    ('1,000', '10^3', '10^-25', '2·10^5')
    """
    if log == 0 or plain:
        return f"{float(f'{10**log:.3g}'):,g}"
    whole = math.floor(log + ROUNDING)
    lead = f"{10 ** (log - whole):.3g}"
    return f"10^{whole}" if lead == "1" else f"{lead}·10^{whole}"


def axis(values: Iterable[float], start: float, end: float, *, logarithmic: bool = False) -> Axis:
    """An axis that holds every finite value, with a little room; a logarithmic one has a place for zero, apart."""
    fine = [value for value in values if math.isfinite(value)]
    positive = [value for value in fine if value > 0]
    logarithmic = logarithmic and bool(positive)
    shown = [math.log10(value) for value in positive] if logarithmic else fine
    low, high = min(shown, default=0.0), max(shown, default=1.0)
    room = ROOM * (high - low) or 0.1 * abs(high) or 0.5
    gap = 0.2 * max(high - low, 1.0) if logarithmic and len(positive) < len(fine) else 0.0
    return Axis(((low - room - gap, start), (high + room, end)), logarithmic, low - room)


def level_axis(values: Sequence[float], start: float, end: float) -> Axis:
    """An axis of decades that holds zero and every finite value, with more room on the side of an infinite one."""
    finite = [v for v in (*values, 0.0) if math.isfinite(v)]
    room = ROOM * max(max(finite) - min(finite), 0.5)
    below, above = (5 if infinite in values else 1 for infinite in (-math.inf, math.inf))
    return Axis(((min(finite) - below * room, start), (max(finite) + above * room, end)))


def levels(ticks: Iterable[tuple[float, str]], left: float, right: float, kind: str = "tiny") -> list[Markup]:
    """Level lines across a plot, with their words left of it."""
    return [
        markup(line(left, y, right, y, _ground(told)), text_line(left - 5, y + 4, told, kind, "end"))
        for y, told in ticks
    ]


def uprights(
    ticks: Iterable[tuple[float, str]], top: float, floor: float, edge: float, below: float = 15.0
) -> list[Markup]:
    """Upright lines, none where top is floor; under them their words, inside the edge and wherever there is room."""
    parts, free = [], 0.0
    for x, told in ticks:
        parts += [line(x, top, x, floor, _ground(told))] if top < floor else []
        half = text_width(told, TINY) / 2
        middle = max(min(x, edge - half), half)
        if middle - half >= free and middle + half <= edge:
            parts.append(text_line(middle, floor + below, told, "tiny", "middle"))
            free = middle + half + 6
    return parts


def _ground(told: str) -> str:
    return "zero" if told == "0" else "grid"


def drawing(
    size: Point, kind: str, label: str, *parts: Content, key: Sequence[tuple[str, str]] = (), left: float = 4.0
) -> Markup:
    """Return a whole figure as one SVG element.

    Args:
        size: width and height, without the key.
        kind: its class.
        label: what a screen reader says.
        parts: of it.
        key: kinds and words of the legend under it.
        left: where the legend begins.
    """
    width, height = size
    swatches, taken = legend(key, height, left, width - 4) if key else ([], 0.0)
    view = {"viewBox": f"0 0 {width:g} {height + taken + 4 * bool(key):g}", "role": "group", "aria-label": label}
    return tag("svg", parts, swatches, xmlns="http://www.w3.org/2000/svg", class_=f"fig {kind}", **view)


def captioned_figure(caption: str, *drawings: str, **attributes: str | float | None) -> Markup:
    """Drawings of one thing, of which the style sheet shows the one that fits; nothing where there are none."""
    head = tag("figcaption", caption) if caption else None
    return tag("figure", head, drawings, **attributes) if any(drawings) else Markup()


def both_shapes(draw: Callable[[Shape], str]) -> Markup:
    """Return a drawing in both shapes, wide and narrow."""
    return markup(draw(WIDE), draw(NARROW))


def text_line(x: float, y: float, content: str, kind: str = "soft", anchor: str | None = None) -> Markup:
    """A line of text, with powers of ten raised as on the page; ``baseline-shift`` is not drawn by every browser."""
    first, raised = powers(content)
    spans = [
        (tag("tspan", power, class_="sup", dy=-RAISED), tag("tspan", after, dy=RAISED) if after else None)
        for power, after in raised
    ]
    return tag("text", first, spans, class_=kind, x=float(x), y=float(y), text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line."""
    return tag("line", class_=kind, x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2))


def box(x: float, y: float, width: float, height: float, kind: str, **more: str | float | None) -> Markup:
    """A rectangle, at least a hair wide and high."""
    size = {"width": max(float(width), 0.5), "height": max(float(height), 1.5)}
    return tag("rect", class_=kind, x=float(x), y=float(y), **size, **more)


def point_mark(x: float, y: float, kind: str, radius: float = 2.5, told: str | None = None, **more: str) -> Markup:
    """A point; ``told`` where it is hovered."""
    title = tag("title", told) if told else None
    return tag("circle", title, class_=kind, cx=float(x), cy=float(y), r=radius, **more)


def group(told: str, *parts: Content, **attributes: str | None) -> Markup:
    """Marks that belong together, and what they say where they are hovered."""
    return tag("g", tag("title", told), parts, **attributes)


def path(points: Iterable[Point], kind: str, name: str = "polyline", told: str | None = None) -> Markup:
    """A line through points, or what it encloses where it is a ``polygon``."""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return tag(name, tag("title", told) if told else None, class_=kind, points=places)


def arrow(x: float, y: float, dx: float, dy: float, kind: str = "open") -> Markup:
    """A triangle that points off the edge: this goes on to infinity."""
    tip, side = 8.0, 5.0
    corners = [(x + tip * dx, y + tip * dy), (x - side * dy, y + side * dx), (x + side * dy, y - side * dx)]
    return path(corners, kind, "polygon")


def curve(points: Sequence[Point], at: tuple[Axis, Axis], style: str, dotted: int, told: str | None = None) -> Markup:
    """A line through the points, broken where one is not finite.

    Args:
        points: of it.
        at: the axes.
        style: its colour, or that and more.
        dotted: fewer points than this are marked one by one, so that a line over a gap is seen to be one.
        told: where it is hovered.
    """
    across, up = at
    finite = groupby(points, key=lambda point: all(map(math.isfinite, point)))
    pieces = [[(across.at(x), up.at(y)) for x, y in piece] for fine, piece in finite if fine]
    colour = style.split()[0]
    return markup(
        (
            path(piece, f"curve {style}", told=told),
            [point_mark(*place, f"dot {colour}") for place in piece]
            if len(points) < dotted or len(piece) == 1
            else None,
        )
        for piece in pieces
    )


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


def spread_places(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places at least ``gap`` apart between ``low`` and ``high``, in order, close to the sorted places wanted."""
    places: list[float] = []
    for place in wanted:
        places.append(max(place, places[-1] + gap if places else low))
    limit = high
    for index in reversed(range(len(places))):
        places[index] = min(places[index], limit)
        limit = places[index] - gap
    return places


def legend(entries: Sequence[tuple[str, str]], y: float, left: float, right: float) -> tuple[list[Markup], float]:
    """Swatches with words, in as many lines as needed; also the height taken.

    A kind that begins with ``line`` is drawn as a level line, one that begins with ``tick`` as an upright one,
    one that begins with ``dot`` as a point.
    """
    parts, x, row = [], left, 0
    for kind, told in entries:
        needed = 18 + text_width(told, TINY) + 14
        if x > left and x + needed > right:
            x, row = left, row + 1
        middle = y + 20 * row + 9
        if kind.startswith("line "):
            parts.append(line(x, middle, x + 13, middle, kind.removeprefix("line ")))
        elif kind.startswith("tick "):
            parts.append(line(x + 6.5, middle - 7, x + 6.5, middle + 7, kind.removeprefix("tick ")))
        elif kind.startswith("dot "):
            parts.append(point_mark(x + 6.5, middle, kind.removeprefix("dot "), 3.5))
        else:
            parts.append(box(x, middle - 5, 13, 10, kind))
        parts.append(text_line(x + 18, middle + 4, told, "key"))
        x += needed
    return parts, 20.0 * (row + 1)
