"""Six significant digits: to the nearest for what is observed, outwards for the ends of an enclosure."""

from __future__ import annotations

import math
from contextlib import suppress
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

DIGITS = 6
SIX = f"%.{DIGITS}g"
_UP = Context(prec=DIGITS, rounding=ROUND_CEILING)
_DOWN = Context(prec=DIGITS, rounding=ROUND_FLOOR)


def rounded_up(value: float) -> float:
    """The smallest number of six significant digits that is not below ``value``.

    >>> rounded_up(1.0000001), rounded_up(2.5), rounded_up(-1.23456789)
    (1.00001, 2.5, -1.23456)
    """
    near = float(SIX % value)
    if near >= value or not math.isfinite(value):
        return near
    return float(_UP.create_decimal_from_float(value))


def rounded_down(value: float) -> float:
    """The largest number of six significant digits that is not above ``value``.

    >>> rounded_down(1.9999999), rounded_down(2.5), rounded_down(-1.23456789)
    (1.99999, 2.5, -1.23457)
    """
    near = float(SIX % value)
    if near <= value or not math.isfinite(value):
        return near
    return float(_DOWN.create_decimal_from_float(value))


def read_number(value: Any) -> float | None:
    """A stored number, with the spelled ones read; None for what was not measured and for what is no number.

    >>> read_number(2), read_number("-inf"), read_number(None), read_number("three"), read_number(10**400)
    (2.0, -inf, None, None, None)
    """
    if type(value) is float:  # nearly all of them
        return value
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int | float) or value in ("inf", "-inf", "nan"):
        with suppress(OverflowError):  # whole numbers in JSON may be longer than float64
            return float(value)
    return None
