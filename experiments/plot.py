"""Line plots as SVG that follow the reader's light or dark screen, in the grammar of all our figures.

Logarithmic panels take decimal logarithms and write powers of ten at their ticks.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from normgauge.render.markup import Content, Markup, markup, tag
from normgauge.render.svg import FEW, Axis, decade_ticks, power_words, round_ticks

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
ABOUT = 5  # ticks on an axis
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
    inside = tag("path", d=f"M{LEFT} {TOP}H{WIDTH}V{HEIGHT - BOTTOM}H{LEFT}z")
    places = [divmod(k, columns) for k in range(len(panels))]
    drawn = tag(
        "svg",
        tag("style", _css()),
        tag("defs", tag("clipPath", inside, id="in")),
        tag("rect", class_="bg", width=width, height=height),
        _text(14, 24, title, "head"),
        _text(14, 43, below, "soft") if below else None,
        (
            tag("g", _panel(panel), transform=f"translate({column * WIDTH},{HEAD + row * HEIGHT})")
            for panel, (row, column) in zip(panels, places, strict=True)
        ),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        aria_label=title,
    )
    return f"{drawn}\n"


def _text(x: float, y: float, content: str, kind: str = "tiny", anchor: str | None = None) -> Markup:
    return tag("text", content, class_=kind, x=x, y=y, text_anchor=anchor)


def _line(d: str, kind: str) -> Markup:
    return tag("path", class_=kind, d=d)


def _panel(panel: Panel) -> Markup:
    lines = [_finite(line) for line in panel.lines]
    xs = [x for line in lines for x, _ in line.points] + [x for x, _ in panel.ticks]
    ys = [y for line in lines for _, y in line.points] + [y for y, _ in panel.rules]
    ys += [y for line in lines for _, low, high in line.band for y in (low, high)]
    title = _text(LEFT, 16, panel.title, "title")
    if not xs or not ys:
        return markup(title, _text(LEFT, 80, "no runs", "soft"))
    (x0, x1), (low, high) = _span(xs), _span([max(y, panel.floor) for y in ys])
    y0, y1 = low - 0.06 * (high - low), high + 0.06 * (high - low)
    far, bottom = min(y0, *ys) - 1, HEIGHT - BOTTOM  # below a floor the axis goes on, and the clip hides it
    slope = (HEIGHT - TOP - BOTTOM) / (y1 - y0)
    across = Axis(((x0, LEFT), (x1, WIDTH - RIGHT)))
    up = Axis(((far, bottom + slope * (y0 - far)), (y0, bottom), (y1, TOP)))
    edge = WIDTH - RIGHT
    return markup(
        title,
        _axes(panel, across, up),
        _legend([line for line in lines if line.label]),
        (_line(f"M{LEFT} {up.at(value):.1f}H{edge}", "rule") for value, _ in panel.rules),
        tag(
            "g",
            (_curve(line, across, up) for line in lines),
            clip_path="url(#in)" if math.isfinite(panel.floor) else None,
        ),
        # above the curves, with a halo
        (_text(edge - 2, up.at(value) - 3, word, "tiny halo", "end") for value, word in panel.rules),
    )


def _axes(panel: Panel, across: Axis, up: Axis) -> Iterator[Content]:
    for value, word in _labels(panel.y, up.knots[1][0], up.knots[2][0]):
        y = up.at(value)
        yield _line(f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}", "grid"), _text(LEFT - 5, y + 4, word, anchor="end")
    ends = across.knots[0][0], across.knots[1][0]
    named = panel.ticks or [(v, _number(v)) for v in round_ticks(*ends, ABOUT) if panel.x != "epoch" or v == int(v)]
    yield [_text(across.at(value), HEIGHT - BOTTOM + 15, word, anchor="middle") for value, word in named]
    yield _line(f"M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}", "axis")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, panel.x, anchor="middle")


def _labels(kind: str, low: float, high: float) -> list[tuple[float, str]]:
    """Places on the y axis with what is written there."""
    if kind == "log":
        plain = high - low < FEW and high < PLAIN
        return [(value, power(value, plain=plain)) for value in decade_ticks(low, high, ABOUT)]
    if kind == "%":
        return [(value, f"{100 * value:g} %".replace("-", "−")) for value in round_ticks(low, high, ABOUT)]
    return [(value, _number(value)) for value in round_ticks(low, high, ABOUT)]


def power(log: float, *, plain: bool) -> str:
    """What is written for a decimal log, with a raised exponent; a plain number where that is asked for and short.

    >>> power(3, plain=True), power(3, plain=False), power(-25, plain=True), power(math.log10(0.5), plain=True)
    ('1,000', '10³', '10⁻²⁵', '0.5')
    """
    words = power_words(log, plain and -2.5 < log < PLAIN)
    return re.sub(r"\^(-?\d+)", lambda found: found[1].translate(RAISED), words)


def _legend(lines: Sequence[Line]) -> Iterator[Content]:
    """Swatches with words, in at most two rows under the title."""
    x, y = LEFT, 31
    for line in lines:
        wide = 22 + 6.6 * len(line.label) + 8
        if x + wide > WIDTH and x > LEFT:
            x, y = LEFT, y + 14
        dash = " dash" if line.dashed else ""
        yield _line(f"M{x} {y - 4}h16", f"line {_hue(line)}{dash}"), _text(x + 20, y, line.label)
        x += round(wide)


def _curve(line: Line, across: Axis, up: Axis) -> Content:
    hue = _hue(line)
    path = _path([(across.at(x), up.at(y)) for x, y in line.points]) if line.joined else ""
    extra = f"{' dash' if line.dashed else ''}{' thin' if line.ramp else ''}"
    whiskers = (f"M{across.at(x):.1f} {up.at(low):.1f}V{up.at(high):.1f}" for x, low, high in line.band)
    return (
        _line(path, f"line {hue}{extra}") if path else None,
        [_line(d, f"line thin {hue}") for d in whiskers],
        [tag("circle", class_=hue, cx=across.at(x), cy=up.at(y), r=3) for x, y in line.points] if line.marks else None,
    )


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


def _number(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _css() -> Markup:
    def colours(k: int) -> str:
        both = [(f"h{i}", pair[k]) for i, pair in enumerate(HUES)] + [(f"d{i}", pair[k]) for i, pair in enumerate(RAMP)]
        return "".join(f".{name}{{stroke:{colour}}}circle.{name}{{fill:{colour}}}" for name, colour in both)

    def base(ground: str, ink: str, soft: str, grid: str, axis: str) -> str:
        return (
            f".bg{{fill:{ground}}}text{{fill:{soft}}}.head,.title{{fill:{ink}}}.grid{{stroke:{grid}}}"
            f".axis,.rule{{stroke:{axis}}}.halo{{stroke:{ground}}}"
        )

    return Markup(
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
