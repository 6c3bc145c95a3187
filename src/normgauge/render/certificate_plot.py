"""Pictures of a certificate: every bound on one axis, and the terms of one of them, which a terminal draws as well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from normgauge.core.certificate import NETWORK, Row, RowKind
from normgauge.render import svg
from normgauge.render.certificate_families import ordered_rows
from normgauge.render.certificate_words import (
    adds_up,
    format_term,
    is_left_unfinished,
    row_confidence,
    row_limit,
    row_name,
    row_value,
)
from normgauge.render.markup import Content, Markup, sentence_markup
from normgauge.render.numbers import plural
from normgauge.render.svg import Axis, Shape

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
EVEN = 4.0  # totals up to so many times the limit are drawn on an even axis
FAR = 0.25  # totals below this share of the limit are drawn without it
FAINTEST = 1e-6  # shares of the limit below this sit at the start of a logarithmic axis
TOTAL = "total"


@dataclass(frozen=True, slots=True)
class TermBar:
    """One bar, in shares of the limit: from 1 on a row says nothing.

    Attributes:
        name: of the term; ``total`` for the last bar.
        value: of the term.
        start: where the bar begins; 0 on a logarithmic axis, which has no place for sums.
        end: where it ends.
        culprit: this term alone reaches the limit, or it is the largest of a row that says nothing.
    """

    name: str
    value: float
    start: float
    end: float
    culprit: bool = False


def stackable_rows(rows: Sequence[Row]) -> list[Row]:
    """Rows whose terms add up to them, best first."""
    told = (RowKind.BOUND, RowKind.VACUOUS, RowKind.ESTIMATE)
    return ordered_rows([row for row in rows if row.kind in told and len(row.terms) > 1 and adds_up(row)])


def is_even(row: Row) -> bool:
    """Whether the terms can be seen on an even axis together with the limit."""
    size = sum(abs(value) for _, value in row.terms)
    return math.isfinite(size) and size <= EVEN * row.limit


def term_bars(row: Row) -> list[TermBar]:
    """The terms on top of each other, or each from the start where they span decades; the last bar is the total."""
    even, level = is_even(row), 0.0
    found = []
    for name, value in row.terms:
        culprit = value >= row.limit or (row.kind is RowKind.VACUOUS and name == row.heaviest)
        start = level if even else 0.0
        found.append(TermBar(name, value, start / row.limit, (start + value) / row.limit, culprit))
        level += value
    total = level if row.value is None else row.value
    return [*found, TermBar(TOTAL, total, 0.0, total / row.limit)]


def shows_limit(row: Row) -> bool:
    """Whether the limit has a place on the axis of a row's bars: not where they would be hairs beside it."""
    return not (is_even(row) and 0 < max(_ends(row)) < FAR)


def term_axis(row: Row) -> Axis:
    """The axis of a row's bars, shares of the limit to places between 0 and 1."""
    ends = [*_ends(row), 1.0] if shows_limit(row) else _ends(row)
    if is_even(row):
        return Axis(((min(0.0, *ends), 0.0), (1.04 * max(ends), 1.0)))
    logs = [math.log10(share) for share in ends if share > FAINTEST]
    return Axis(((min(logs) - 0.5, 0.0), (max(logs) + 0.5, 1.0)), logarithmic=True)


def _ends(row: Row) -> list[float]:
    return [place for step in term_bars(row) for place in (step.start, step.end) if math.isfinite(place)]


def bar_value(row: Row, step: TermBar) -> str:
    """Return the number written beside a bar."""
    return row_value(row) if step.name == TOTAL else format_term(row, step.value)


def drawn_rows(rows: Sequence[Row]) -> list[Row]:
    """Those with a place on the axis: bounds, and vacuous ones, the smallest share of the limit first."""
    return ordered_rows([row for row in rows if row.kind in (RowKind.BOUND, RowKind.VACUOUS)])


def certificate_overview(rows: Sequence[Row], shape: Shape = svg.WIDE) -> Markup:
    """Every bound and vacuous row as a bar: the truth may be anywhere in it. Empty without rows."""
    shown_rows = drawn_rows(rows)
    if not shown_rows:
        return Markup()
    height = 22.0 if shape.wide else ROW
    left, right = (NAMES, shape.width - VALUES) if shape.wide else (EDGE, shape.width - EDGE)
    axis = sides([_share(row) for row in shown_rows], left, right)
    floor = TOP + height * len(shown_rows)
    used = {row_tone(row) for row in shown_rows} | {"line balanced"}
    limit = axis.at(1.0)
    return svg.drawing(
        (shape.width, floor + FOOT),
        shape.name,
        describe_overview(shown_rows),
        svg.uprights(share_ticks(axis), TOP, floor, shape.width - 2),
        svg.line(limit, TOP - 16, limit, floor, "balanced"),
        svg.text_line(limit - 6, TOP - 8, "← says something", "tiny", "end"),
        svg.text_line(limit + 6, TOP - 8, "says nothing →", "tiny"),
        [_bar(row, axis, TOP + height * index, shape) for index, row in enumerate(shown_rows)],
        key=[entry for entry in KEY if entry[0] in used],
    )


def describe_overview(rows: Sequence[Row]) -> str:
    """Describe the picture in one sentence."""
    bounds = sum(row.kind is RowKind.BOUND for row in rows)
    return f"{plural(bounds, 'bound')} and {len(rows) - bounds} vacuous rows on a logarithmic axis."


def sides(shares: Sequence[float], left: float, right: float) -> Axis:
    """A logarithmic axis that holds every finite share, with the limit at the same place in every certificate.

    One scale for both sides would squeeze what is promised into a corner as soon as a row is wrong by twenty decades.
    """
    logs = [math.log10(share) for share in shares if share > 0 and math.isfinite(share)]
    low, high = min([-1.0, *logs]) - 0.4, max([1.0, *logs]) * 1.06
    middle = left + LEFT_SHARE * (right - left)
    return Axis(((low, left), (0.0, middle), (high, right)), logarithmic=True)


def share_ticks(axis: Axis) -> list[tuple[float, str]]:
    """Pixel and words of whole decades, few on each side of the limit."""
    low, high = axis.knots[0][0], axis.knots[-1][0]
    below, above = max(1, math.ceil(-low / 4)), max(1, math.ceil(high / 3))
    shares = [(power, f"{100 * 10.0**power:g} %") for power in range(-below * int(-low / below), 1, below)]
    limits = [(power, f"10^{power}") for power in range(above, math.floor(high) + 1, above)]
    return [(axis.pixel(power), words) for power, words in [*shares, *limits]]


def row_tone(row: Row) -> str:
    """The class of a row's bar."""
    if row.kind is RowKind.VACUOUS:
        return "other"
    return "norm" if row.about == NETWORK else "mixed"


def _share(row: Row) -> float:
    return math.inf if row.value is None else row.value / row.limit


def _bar(row: Row, axis: Axis, top: float, shape: Shape) -> Markup:
    start, end = axis.start, axis.at(_share(row))
    middle, baseline = (top + 11, top + 15) if shape.wide else (top + 26, top + 15)
    room = NAMES - 2 * EDGE if shape.wide else shape.width - 2 * EDGE - svg.text_width(row_value(row)) - 12
    name = row_name(row) if svg.text_width(row_name(row)) <= room else svg.fit(row.name, room)
    return svg.group(
        describe_row_bar(row),
        svg.box(0, top, shape.width, 22 if shape.wide else ROW, "hit"),
        svg.box(start, middle - THICK / 2, end - start, THICK, row_tone(row)),
        svg.arrow(end, middle, 1, 0, "other") if _share(row) == math.inf else None,
        svg.text_line(EDGE, baseline, name, "tiny halo"),
        svg.text_line(
            shape.width - EDGE, baseline, row_value(row), "ink halo" if row.kind is RowKind.BOUND else "halo", "end"
        ),
        class_="bar",
    )


def describe_row_bar(row: Row) -> str:
    """Describe a row's bar in words."""
    sure = f", confidence {row_confidence(row)}" if row.confidence is not None else ""
    if is_left_unfinished(row):
        return f"{row_name(row)}: {row.kind}, no bound was worked out, as it would be {row_value(row)}"
    return f"{row_name(row)}: {row.kind}, {row.quantity} of {row.about} at most {row_value(row)}{sure}"


def term_stack(row: Row) -> Markup:
    """The terms of a row, one bar each, then their sum; the limit is a dashed line."""
    axis, found = term_axis(row), term_bars(row)
    floor = TOP + ROW * len(found)
    aside = "" if row.about == NETWORK else ", not about this network"
    scale = ", logarithmic, each term from the left" if axis.logarithmic else ""
    drawn = svg.drawing(
        (MINI, floor + 6),
        "mini",
        f"Terms of {row.name}: " + ", ".join(f"{step.name} {bar_value(row, step)}" for step in found),
        _limit(row, axis, floor),
        [_step(row, step, axis, TOP + ROW * index) for index, step in enumerate(found)],
    )
    return svg.captioned_figure(sentence_markup(f"{row_name(row)}: {row_value(row)}{aside}{scale}"), drawn)


def _limit(row: Row, axis: Axis, floor: float) -> Content:
    if not shows_limit(row):
        return svg.text_line(EDGE, 14, f"far from {row_limit(row)}, the worst possible", "tiny")
    x = share_pixel(axis, 1.0)
    anchor, shift = ("end", -5.0) if x > MINI / 2 else (None, 5.0)
    told = svg.text_line(x + shift, 14, f"says nothing from {row_limit(row)} on", "tiny", anchor)
    return svg.line(x, TOP - 16, x, floor, "balanced"), told


def share_pixel(axis: Axis, share: float) -> float:
    """The pixel of a share in a small picture."""
    return EDGE + (MINI - VALUES - 2 * EDGE) * axis.at(share)


def _step(row: Row, step: TermBar, axis: Axis, top: float) -> Content:
    low, high = sorted((share_pixel(axis, step.start), share_pixel(axis, step.end)))
    kind = "other" if step.name == TOTAL else "weight" if step.culprit else "norm"
    number = bar_value(row, step)
    name = svg.fit(step.name, MINI - 4 * EDGE - svg.text_width(number))
    return (
        svg.box(low, top + 20, high - low, THICK, kind),
        svg.arrow(high, top + 20 + THICK / 2, 1, 0, kind) if math.isinf(step.end) else None,
        svg.text_line(EDGE, top + 15, name, "tiny halo"),
        svg.text_line(MINI - EDGE, top + 15, number, "ink halo" if step.culprit else "halo", "end"),
    )
