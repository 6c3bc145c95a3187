"""Line plots as SVG that follow the reader's light or dark screen; standard library only.

Logarithmic panels take decimal logarithms and write powers of ten at their ticks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape

Point = tuple[float, float]

WIDTH, HEIGHT = 400, 250  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 54, 34
HEAD = 56  # the title and what is under it
HUES = (
    ("#0b5cad", "#7ab8ff"),
    ("#c8553d", "#e8795f"),
    ("#1a7f47", "#4cc38a"),
    ("#8a6d00", "#d9b02c"),
    ("#7d3fb5", "#bb86fc"),
    ("#545d68", "#aab2bc"),
    ("#b0307a", "#f080b8"),
    ("#00797a", "#4fc5c5"),
)
FEW = 2.5  # decades on an axis below which 2 and 5 are written too
PLAIN = 5.7  # decimal log of what fits beside an axis as a plain number
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# depth, first layer to last
RAMP = (("#9cc9e8", "#24506e"), ("#5a9fd0", "#3a7ba8"), ("#2b6cb0", "#5fa8dc"), ("#1b4178", "#9fd0f5"))


@dataclass(frozen=True, slots=True)
class Line:
    """One curve.

    Attributes:
        label: in the legend; "" for none.
        points: those that are not finite are left out.
        hue: which colour, counted from 0; a fraction of depth in [0, 1] where ``ramp``.
        dashed: drawn dashed.
        marks: a dot at every point.
        joined: a line through the points.
        ramp: coloured by depth.
        band: lowest and highest value at each point, drawn as whiskers.
    """

    label: str
    points: tuple[Point, ...]
    hue: float = 0
    dashed: bool = False
    marks: bool = False
    ramp: bool = False
    band: tuple[tuple[float, float, float], ...] = ()
    joined: bool = True


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes.

    Attributes:
        y: "log" for decimal logs, "%" for shares, "" for plain numbers.
        rules: horizontal lines with a word.
        ticks: named places on the x axis.
        floor: nothing below it is shown.
    """

    title: str
    lines: tuple[Line, ...]
    x: str = "epoch"
    y: str = ""
    rules: tuple[tuple[float, str], ...] = ()
    ticks: tuple[tuple[float, str], ...] = ()
    floor: float = -math.inf


def figure(title: str, panels: Sequence[Panel], *, columns: int = 3, below: str = "") -> str:
    """Panels in a grid under one title.

    Args:
        title: what the figure shows, one line.
        panels: row by row.
        columns: panels a row.
        below: a smaller line under the title.

    Returns:
        One SVG document.
    """
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    width, height = columns * WIDTH, HEAD + rows * HEIGHT + 6
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}"><style>{_css()}</style>',
        f'<defs><clipPath id="in"><path d="M{LEFT} {TOP}H{WIDTH}V{HEIGHT - BOTTOM}H{LEFT}z"/></clipPath></defs>',
        f'<rect class="bg" width="{width}" height="{height}"/>',
        f'<text class="head" x="14" y="24">{escape(title)}</text>',
        f'<text class="soft" x="14" y="43">{escape(below)}</text>' if below else "",
    ]
    for k, panel in enumerate(panels):
        row, column = divmod(k, columns)
        body.append(f'<g transform="translate({column * WIDTH},{HEAD + row * HEIGHT})">{_panel(panel)}</g>')
    return "".join([*body, "</svg>\n"])


def _panel(panel: Panel) -> str:
    lines = [_finite(line) for line in panel.lines]
    xs = [x for line in lines for x, _ in line.points] + [x for x, _ in panel.ticks]
    ys = [y for line in lines for _, y in line.points] + [y for y, _ in panel.rules]
    ys += [y for line in lines for _, low, high in line.band for y in (low, high)]
    parts = [f'<text class="title" x="{LEFT}" y="16">{escape(panel.title)}</text>']
    if not xs or not ys:
        return "".join([*parts, f'<text class="soft" x="{LEFT}" y="80">no runs</text>'])
    (x0, x1), (y0, y1) = _span(xs), _padded(*_span([max(y, panel.floor) for y in ys]))
    place = _Place(x0, x1, y0, y1)
    parts += _axes(panel, place)
    parts += _legend([line for line in lines if line.label])
    for value, _ in panel.rules:
        parts.append(f'<path class="rule" d="M{LEFT} {place.y(value):.1f}H{WIDTH - RIGHT}"/>')
    parts.append('<g clip-path="url(#in)">' if math.isfinite(panel.floor) else "<g>")
    parts += [*(_curve(line, place) for line in lines), "</g>"]
    for value, word in panel.rules:  # above the curves, with a halo
        x, y = WIDTH - RIGHT - 2, place.y(value) - 3
        parts.append(f'<text class="tiny halo" x="{x}" y="{y:.1f}" text-anchor="end">{escape(word)}</text>')
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class _Place:
    """Data to pixels."""

    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: float) -> float:
        return LEFT + (value - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.y0) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM)


def _axes(panel: Panel, place: _Place) -> Iterable[str]:
    for value, word in _labels(panel.y, place.y0, place.y1):
        y = place.y(value)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text class="tiny" x="{LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{word}</text>'
    named = panel.ticks or [(v, _number(v)) for v in ticks(place.x0, place.x1) if panel.x != "epoch" or v == int(v)]
    for value, word in named:
        x = place.x(value)
        yield f'<text class="tiny" x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{escape(word)}</text>'
    yield f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text class="tiny" x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{escape(panel.x)}</text>'


def _labels(kind: str, low: float, high: float) -> list[tuple[float, str]]:
    """Places on the y axis with what is written there."""
    if kind == "log":
        plain = high - low < FEW and high < PLAIN
        return [(value, power(value, plain=plain)) for value in decades(low, high)]
    if kind == "%":
        return [(value, f"{100 * value:g} %".replace("-", "−")) for value in ticks(low, high)]
    return [(value, _number(value)) for value in ticks(low, high)]


def _legend(lines: Sequence[Line]) -> Iterable[str]:
    """Swatches with words, in at most two rows under the title."""
    x, y = LEFT, 31
    for line in lines:
        wide = 22 + 6.6 * len(line.label) + 8
        if x + wide > WIDTH and x > LEFT:
            x, y = LEFT, y + 14
        dash = " dash" if line.dashed else ""
        yield f'<path class="line {_hue(line)}{dash}" d="M{x} {y - 4}h16"/>'
        yield f'<text class="tiny" x="{x + 20}" y="{y}">{escape(line.label)}</text>'
        x += round(wide)


def _curve(line: Line, place: _Place) -> str:
    hue = _hue(line)
    path = _path([(place.x(x), place.y(y)) for x, y in line.points]) if line.joined else ""
    extra = f"{' dash' if line.dashed else ''}{' thin' if line.ramp else ''}"
    parts = [f'<path class="line {hue}{extra}" d="{path}"/>'] if path else []
    parts += [
        f'<path class="line thin {hue}" d="M{place.x(x):.1f} {place.y(low):.1f}V{place.y(high):.1f}"/>'
        for x, low, high in line.band
    ]
    if line.marks:
        parts += [f'<circle class="{hue}" cx="{place.x(x):.1f}" cy="{place.y(y):.1f}" r="3"/>' for x, y in line.points]
    return "".join(parts)


def _path(points: Sequence[Point]) -> str:
    """Steps from point to point, in tenths of a pixel: shorter to write than places, and no error adds up."""
    tenths = [(round(10 * x), round(10 * y)) for x, y in points]
    if not tenths:
        return ""
    moves = [(x - a, y - b) for (a, b), (x, y) in itertools.pairwise(tenths)]
    first = f"M{tenths[0][0] / 10:g} {tenths[0][1] / 10:g}"
    return first + "".join(f"l{x / 10:g}{'' if y < 0 else ' '}{y / 10:g}" for x, y in moves)


def _hue(line: Line) -> str:
    if line.ramp:
        return f"d{min(len(RAMP) - 1, int(line.hue * len(RAMP)))}"
    return f"h{int(line.hue) % len(HUES)}"


def _finite(line: Line) -> Line:
    kept = tuple((x, y) for x, y in line.points if math.isfinite(x) and math.isfinite(y))
    band = tuple(row for row in line.band if all(map(math.isfinite, row)))
    return replace(line, points=kept, band=band)


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _padded(low: float, high: float) -> tuple[float, float]:
    pad = 0.06 * (high - low)
    return low - pad, high + pad


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between two ends.

    >>> ticks(0, 100), ticks(-1.2, 0.9)
    ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [-1.0, -0.5, 0.0, 0.5])
    """
    raw = (high - low) / about
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= 0.999 * raw)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) + 0.0 for k in range(first, math.floor(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis between two decimal logs: whole decades, 1, 2 and 5, or round numbers, as it widens.

    >>> decades(-3.2, 12), [round(10**k) for k in decades(1.9, 2.9)], [round(10**k, 1) for k in decades(-0.1, 0.15)]
    ([0.0, 5.0, 10.0], [100, 200, 500], [0.8, 1.0, 1.2, 1.4])
    """
    if high - low >= FEW:
        return [value for value in ticks(low, high) if value == int(value)]
    if high - low < 0.5:
        return [math.log10(value) for value in ticks(10**low, 10**high)]
    whole = range(math.floor(low), math.ceil(high) + 1)
    fine = (k + math.log10(m) for k in whole for m in (1, 2, 5))
    return [value for value in fine if low <= value <= high]


def power(log: float, *, plain: bool) -> str:
    """What is written for a decimal log: as a plain number where that is asked for and short.

    >>> power(3, plain=True), power(3, plain=False), power(-25, plain=True), power(math.log10(0.5), plain=True)
    ('1,000', '10³', '10⁻²⁵', '0.5')
    """
    if log == 0 or (plain and -2.5 < log < PLAIN):
        return f"{float(f'{10**log:.3g}'):,g}"
    whole = math.floor(log + 1e-9)
    lead = round(10 ** (log - whole))
    return ("" if lead == 1 else f"{lead}·") + "10" + str(whole).translate(RAISED)


def _number(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _css() -> str:
    def colours(k: int) -> str:
        both = [(f"h{i}", pair[k]) for i, pair in enumerate(HUES)] + [(f"d{i}", pair[k]) for i, pair in enumerate(RAMP)]
        return "".join(f".{name}{{stroke:{colour}}}circle.{name}{{fill:{colour}}}" for name, colour in both)

    def base(ground: str, ink: str, soft: str, grid: str, axis: str) -> str:
        return (
            f".bg{{fill:{ground}}}text{{fill:{soft}}}.head,.title{{fill:{ink}}}.grid{{stroke:{grid}}}"
            f".axis,.rule{{stroke:{axis}}}.halo{{stroke:{ground}}}"
        )

    return (
        'text{font:13px system-ui,"Segoe UI",Roboto,"DejaVu Sans",Arial,sans-serif}'
        ".head{font-size:16px;font-weight:600}.title{font-weight:600}.tiny{font-size:11px}.soft{font-size:12px}"
        ".line{fill:none;stroke-width:1.8;stroke-linejoin:round}.thin{stroke-width:1}.dash{stroke-dasharray:5 4}"
        ".grid,.axis,.rule{fill:none;stroke-width:1}.rule{stroke-dasharray:2 3}"
        ".halo{paint-order:stroke;stroke-width:4px}"
        + base("#ffffff", "#1b1f24", "#545d68", "#e3e7ec", "#8b949e")
        + colours(0)
        + "@media (prefers-color-scheme:dark){"
        + base("#14171c", "#e8eaed", "#aab2bc", "#2b323b", "#7d8794")
        + colours(1)
        + "}"
    )
