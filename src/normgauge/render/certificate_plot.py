"""Pictures of a certificate: every bound on one axis, and the terms of one of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from normgauge.core.certificate import NETWORK, Kind, Row
from normgauge.render import svg
from normgauge.render.certificate_families import ordered
from normgauge.render.certificate_steps import TOTAL, Step, Track, is_even, steps, track
from normgauge.render.certificate_words import called, confidence, shown, term, worst
from normgauge.render.numbers import plural
from normgauge.render.parts import words
from normgauge.render.svg import Scale, Shape

TOP, FOOT, EDGE = 34.0, 24.0, 6.0
NAMES, VALUES = 360.0, 84.0  # columns left and right of a wide picture
MINI, ROW, THICK = 380.0, 34.0, 11.0
LEFT_SHARE = 0.55  # of the width: below the limit, where a reader looks
KEY = (
    ("norm", "bound for this network"),
    ("mixed", "bound for another predictor"),
    ("other", "vacuous: says nothing"),
    ("line balanced", "the worst possible value"),
)


@dataclass(frozen=True, slots=True)
class Sides:
    """Shares of the limit to pixels: two logarithmic scales that meet at the limit.

    One scale for both would squeeze what is promised into a corner as soon as a row is wrong by twenty decades.
    """

    below: Scale
    above: Scale

    def at(self, share: float) -> float:
        """The pixel of a share of the limit."""
        log = math.log10(share) if share > 0 else -math.inf
        return (self.below if log <= 0 else self.above).at(log)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Pixel and words of whole decades."""
        for power in _decades(self.below, 4):
            yield self.below.at(power), f"{100 * 10**power:g} %"
        for power in _decades(self.above, 3):
            if power > 0:
                yield self.above.at(power), f"10^{power:g}"


def _decades(scale: Scale, most: int) -> list[float]:
    step = max(1, math.ceil((scale.high - scale.low) / most))
    count = math.floor(max(abs(scale.low), abs(scale.high)) / step)
    return [k * step for k in range(-count, count + 1) if scale.low <= k * step <= scale.high]


def drawn_rows(rows: Sequence[Row]) -> list[Row]:
    """Those with a place on the axis: bounds, and vacuous ones, the smallest share of the limit first."""
    return ordered([row for row in rows if row.kind in (Kind.BOUND, Kind.VACUOUS)])


def overview(rows: Sequence[Row], shape: Shape = svg.WIDE) -> str:
    """Every bound and vacuous row as a bar: the truth may be anywhere in it. Empty without rows."""
    shown_rows = drawn_rows(rows)
    if not shown_rows:
        return ""
    height = 22.0 if shape.wide else ROW
    left, right = (NAMES, shape.width - VALUES) if shape.wide else (EDGE, shape.width - EDGE)
    axis = sides([_share(row) for row in shown_rows], left, right)
    floor = TOP + height * len(shown_rows)
    parts = list(_ground(axis, floor, shape.width))
    for index, row in enumerate(shown_rows):
        parts += _bar(row, axis, TOP + height * index, shape)
    used = {tone(row) for row in shown_rows} | {"line balanced"}
    swatches, taken = svg.legend([e for e in KEY if e[0] in used], floor + FOOT, EDGE, shape.width - EDGE)
    return svg.drawing(shape.width, floor + FOOT + taken + 4, shape.name, described(shown_rows), [*parts, *swatches])


def described(rows: Sequence[Row]) -> str:
    """The picture in one sentence."""
    bounds = sum(row.kind is Kind.BOUND for row in rows)
    return f"{plural(bounds, 'bound')} and {len(rows) - bounds} vacuous rows on a logarithmic axis."


def sides(shares: Sequence[float], left: float, right: float) -> Sides:
    """An axis that holds every finite share, with the limit at the same place in every certificate."""
    logs = [math.log10(share) for share in shares if share > 0 and math.isfinite(share)]
    low, high = min([-1.0, *logs]) - 0.4, max([1.0, *logs]) * 1.06
    middle = left + LEFT_SHARE * (right - left)
    return Sides(Scale(low, 0.0, left, middle), Scale(0.0, high, middle, right))


def tone(row: Row) -> str:
    """The class of a row's bar."""
    if row.kind is Kind.VACUOUS:
        return "other"
    return "norm" if row.about == NETWORK else "mixed"


def _share(row: Row) -> float:
    return math.inf if row.value is None else row.value / row.limit


def _ground(axis: Sides, floor: float, width: float) -> Iterator[str]:
    """Grid, numbers and the limit."""
    limit, last = axis.at(1.0), -math.inf
    for x, number in axis.ticks():
        yield svg.line(x, TOP, x, floor, "grid")
        half = svg.text_width(number, 12) / 2
        if x - half > last and x + half <= width - 2:
            yield svg.text(x, floor + 15, number, "tiny", "middle")
            last = x + half + 6
    yield svg.line(limit, TOP - 16, limit, floor, "balanced")
    yield svg.text(limit - 6, TOP - 8, "← says something", "tiny", "end")
    yield svg.text(limit + 6, TOP - 8, "says nothing →", "tiny")


def _bar(row: Row, axis: Sides, top: float, shape: Shape) -> Iterator[str]:
    start, end = axis.below.start, axis.at(_share(row))
    middle = top + (11 if shape.wide else 26)
    yield f'<g class="bar"><title>{escape(told(row))}</title>'
    yield svg.box(0, top, shape.width, 22 if shape.wide else ROW, "hit")
    yield svg.box(start, middle - THICK / 2, end - start, THICK, tone(row))
    if _share(row) == math.inf:
        yield svg.arrow(end, middle, 1, 0, "other")
    number = svg.text_width(shown(row)) + 12
    baseline = middle + 4 if shape.wide else top + 15
    room = NAMES - 2 * EDGE if shape.wide else shape.width - 2 * EDGE - number
    yield svg.text(EDGE, baseline, _label(row, room), "tiny halo")
    yield svg.text(shape.width - EDGE, baseline, shown(row), "ink halo" if row.kind is Kind.BOUND else "halo", "end")
    yield "</g>"


def _label(row: Row, room: float) -> str:
    """Family and name, or the name alone where there is no room for both."""
    return called(row) if svg.text_width(called(row)) <= room else svg.fit(row.name, room)


def told(row: Row) -> str:
    """A bar in words."""
    sure = f", confidence {confidence(row)}" if row.confidence is not None else ""
    return f"{called(row)}: {row.kind}, {row.quantity} of {row.about} at most {shown(row)}{sure}"


def stack(row: Row) -> str:
    """The terms of a row, one bar each, then their sum; the limit is a dashed line."""
    axis, found = track(row), steps(row)
    floor = TOP + ROW * len(found)
    parts = list(_limit(axis, floor, worst(row)))
    for index, step in enumerate(found):
        parts += _step(row, step, axis, TOP + ROW * index)
    label = f"Terms of {row.name}: " + ", ".join(f"{s.name} {_number(row, s)}" for s in found)
    aside = "" if row.about == NETWORK else ", not about this network"
    caption = f"{called(row)}: {shown(row)}{aside}"
    caption += "" if is_even(row) else ", logarithmic, each term from the left"
    drawn = svg.drawing(MINI, floor + 6, "mini", label, parts)
    return f"<figure><figcaption>{words(caption)}</figcaption>{drawn}</figure>"


def _limit(axis: Track, floor: float, limit: str) -> Iterator[str]:
    if not axis.limited:
        yield svg.text(EDGE, 14, f"far from {limit}, the worst possible", "tiny")
        return
    x = place(axis, 1.0)
    anchor, shift = ("end", -5.0) if x > MINI / 2 else ("start", 5.0)
    yield svg.line(x, TOP - 16, x, floor, "balanced")
    yield svg.text(x + shift, 14, f"says nothing from {limit} on", "tiny", anchor)


def place(axis: Track, share: float) -> float:
    """The pixel of a share in a small picture."""
    return EDGE + (MINI - VALUES - 2 * EDGE) * axis.at(share)


def _step(row: Row, step: Step, axis: Track, top: float) -> Iterator[str]:
    low, high = sorted((place(axis, step.start), place(axis, step.end)))
    kind = "other" if step.name == TOTAL else "weight" if step.culprit else "norm"
    yield svg.box(low, top + 20, high - low, THICK, kind)
    if math.isinf(step.end):
        yield svg.arrow(high, top + 20 + THICK / 2, 1, 0, kind)
    number = _number(row, step)
    yield svg.text(EDGE, top + 15, svg.fit(step.name, MINI - 4 * EDGE - svg.text_width(number)), "tiny halo")
    yield svg.text(MINI - EDGE, top + 15, number, "ink halo" if step.culprit else "halo", "end")


def _number(row: Row, step: Step) -> str:
    return shown(row) if step.name == TOTAL else term(row, step.value)
