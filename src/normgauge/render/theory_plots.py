"""Small plots of a claim: its comparisons as dots on one axis, and the lines its check offers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from normgauge.core.claim import Curve, Finding, Kind, Outcome
from normgauge.render import svg
from normgauge.render.theory import number
from normgauge.render.theory_axes import Axis, axis, finite, spread_wide

WIDTH, LEFT, RIGHT, TOP = 380.0, 58.0, 12.0, 24.0
EDGE = 16.0  # left of the dots, which have their words above them
ROW, HEIGHT, FOOT = 40.0, 150.0, 40.0
ROWS = 8  # comparisons in one plot; the table beside it has all
ROUNDING = 1e-8  # relative; below it two numbers are one
STYLES = 6  # of lines, told apart by colour and by dashes
DOTTED = 16  # points below which each is marked
MARKS = (("published", "published"), ("predicted", "predicted"), ("measured", "measured"))


def dots(outcome: Outcome) -> str:
    """Published, predicted and measured of every comparison with numbers; "" where there is one number or none."""
    shown = [f for f in outcome.findings if f.kind is not Kind.SHOWN and finite(_numbers(f).values())][:ROWS]
    values = [value for f in shown for value in _numbers(f).values()]
    if len(set(values)) < 2:
        return ""
    across = axis(values, EDGE, WIDTH - EDGE, logarithmic=spread_wide(values))
    floor = TOP + ROW * len(shown)
    parts = list(_upright(across, TOP, floor))
    for index, finding in enumerate(shown):
        parts.extend(_row(finding, across, TOP + ROW * index))
    parts.append(svg.line(across.scale.start, floor, across.scale.end, floor, "zero"))
    parts.extend(_key(shown, 12))
    label = f"{outcome.claim.id}: published, predicted and measured numbers of {len(shown)} comparisons"
    caption = f"Numbers of the check{', logarithmic axis' if across.logarithmic else ''}"
    return _figure(caption, svg.drawing(WIDTH, floor + 22, "mini", label, parts))


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


def _numbers(finding: Finding) -> dict[str, float]:
    """The sides of a comparison; what is equal up to rounding is drawn as equal, also where it is zero."""
    rounded = finding.kind is Kind.EQUAL and finding.passed and finding.error < ROUNDING
    measured = finding.predicted if rounded else finding.measured
    sides = {"published": finding.published, "predicted": finding.predicted, "measured": measured}
    return {name: value for name, value in sides.items() if value is not None and not math.isnan(value)}


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


def _row(finding: Finding, across: Axis, top: float) -> Iterator[str]:
    middle = top + 28
    yield svg.text(EDGE, top + 14, svg.fit(finding.what, WIDTH - 2 * EDGE), "tiny halo")
    yield svg.line(across.scale.start, middle, across.scale.end, middle, "thread")
    found = _numbers(finding)
    for name, words in MARKS:
        if name in found:
            yield mark(name, across.at(found[name]), middle, f"{finding.what}: {words} {number(found[name])}")
    for value in found.values():
        if math.isinf(value):
            side = 1.0 if value > 0 else -1.0
            yield svg.arrow(across.at(value) + 6 * side, middle, side, 0.0, "endless")


def mark(kind: str, x: float, y: float, told: str) -> str:
    """A dot for what was measured, a ring for what is predicted, a cross for what is printed."""
    title = f"<title>{escape(told)}</title>"
    if kind == "published":
        return f'<path class="published" d="M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10">{title}</path>'
    radius = 7.0 if kind == "predicted" else 3.5
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}">{title}</circle>'


def _key(shown: Sequence[Finding], y: float) -> Iterator[str]:
    """The marks that occur, with their words."""
    moved = all(finding.kind is Kind.MOVES for finding in shown)
    x = EDGE
    for name, words in MARKS:
        if any(name in _numbers(finding) for finding in shown):
            said = {"published": "before", "measured": "after"}.get(name, words) if moved else words
            yield mark(name, x, y - 4, said)
            yield svg.text(x + 12, y, said, "key")
            x += 12 + svg.text_width(said, 12) + 22


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
