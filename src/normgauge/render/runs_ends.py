"""Both ends of an enclosure in few digits, rounded outwards, so that what is shown still encloses."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from normgauge.render.numbers import ABSENT

DIGITS = 3
CENT = Decimal("0.01")
_DOWN, _UP = (Context(prec=DIGITS, rounding=way) for way in (ROUND_FLOOR, ROUND_CEILING))


def enclosure(lower: float | None, upper: float | None) -> str:
    """The two ends of a norm; one of them where only one is known.

    >>> enclosure(2.4349, 17.61), enclosure(None, 3.0), enclosure(2.5, 2.5)
    ('2.43 to 17.7', '≤ 3', '2.5')
    """
    return _joined(_digits(lower, _DOWN), _digits(upper, _UP))


def log_enclosure(lower: float | None, upper: float | None) -> str:
    """The two ends of a decimal log, with two decimals.

    >>> log_enclosure(4.789, 4.811), log_enclosure(-0.001, None)
    ('4.78 to 4.82', '≥ -0.01')
    """
    return _joined(_cents(lower, ROUND_FLOOR), _cents(upper, ROUND_CEILING))


def _joined(low: str, high: str) -> str:
    if not low and not high:
        return ABSENT
    if not low or not high:
        return f"≥ {low}" if low else f"≤ {high}"
    return low if low == high else f"{low} to {high}"


def _digits(value: float | None, way: Context) -> str:
    if value is None or not math.isfinite(value):
        return "" if value is None else str(value)
    return f"{float(way.create_decimal(repr(value))):.{DIGITS}g}"


def _cents(value: float | None, way: str) -> str:
    if value is None or not math.isfinite(value):
        return "" if value is None else str(value)
    return f"{Decimal(repr(value)).quantize(CENT, rounding=way) + 0:f}"
