"""Natural logarithms inside, decimal ones in files; infinities spelled out, since JSON has none."""

from __future__ import annotations

import math

from normgauge.core.errors import ReadingError

LN10 = math.log(10)


def spell_number(value: float | None) -> float | str | None:
    """A float as strict JSON allows it: infinities are the strings "inf" and "-inf".

    Raises:
        ReadingError: for NaN.
    """
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        raise ReadingError("a NaN cannot be stored in a reading; every bound is a number, inf or -inf")
    return "inf" if value > 0 else "-inf"


def unspell_number(value: float | str | None) -> float | None:
    """Read a number back that `spell_number` wrote."""
    return None if value is None else float(value)


def ceil_log10(log_value: float) -> str:
    """A bound whose natural logarithm is given as a power of ten, rounded up to four decimals.

    >>> ceil_log10(69.07755), ceil_log10(69.0776), ceil_log10(float("inf"))
    ('10^30', '10^30.0001', 'inf')
    """
    if math.isinf(log_value):
        return "inf" if log_value > 0 else "0"
    return f"10^{math.ceil(log_value / LN10 * 1e4 - 1e-5) / 1e4:.10g}"


def to_log10(log_value: float | None) -> float | str | None:
    """A natural logarithm as a decimal one, spelled for JSON."""
    return None if log_value is None else spell_number(log_value / LN10)


def from_log10(value: float | str | None) -> float | None:
    """Return the natural logarithm of what `to_log10` wrote."""
    number = unspell_number(value)
    return None if number is None else number * LN10
