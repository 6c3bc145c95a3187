"""How numbers are spelled for people: factors as powers of ten, small ones also in full."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from normgauge.core.bound import Scope
from normgauge.core.spelled import LN10

ABSENT = "·"
DIGITS = 3
FULL = 5  # digits of a number whose two ends are `CLOSE`
CENT = Decimal("0.01")
UP, DOWN = math.ceil, math.floor
NEAR = 1e-3  # what rounding one way may move a factor that is written out, as a part of it
CLOSE = 1e-5  # ends that are so near, as a part of them, are told as one number
EXACT: dict[Callable[[float], int], float] = {UP: 2e-9, DOWN: 1e-6}
"""A number so near to what is shown of it, as a part of it, counts as that: the gain of an identity, to which 1e-9 is
added against rounding, is still 1, and a slope of 3, less what its search lost to rounding, still 3."""


def _stepped(value: float, step: float, way: Callable[[float], int] | None, unit: float) -> float:
    """A multiple of ``step``: the nearest one, or the next in one way; ``unit`` is what `EXACT` is a part of."""
    near = round(value / step)
    if way is None or abs(near * step - value) <= EXACT[way] * unit:
        return near * step
    return way(value / step) * step


def _near_enough(value: float, first: int, way: Callable[[float], int] | None, unit: float) -> tuple[float, int]:
    """The value with so few decimals, ``first`` or more, that rounding one way moves it by no more than it may."""
    for decimals in range(first, first + 3):
        shown = _stepped(value, 10.0**-decimals, way, unit)
        if way is None or abs(shown - value) <= NEAR * unit:
            break
    return shown, decimals


def format_decades(
    log_value: float | None, digits: int | None = None, way: Callable[[float], int] | None = None
) -> str:
    """A natural logarithm as a decimal one; "·" where there is none.

    Rounded `UP` or `DOWN` where that is asked for, in as many decimals as keep the factor to a thousandth, two at
    least, if ``digits`` does not say how many.

    >>> format_decades(6.907755), format_decades(float("inf")), format_decades(None), format_decades(0.251, 2, UP)
    ('3.00', 'inf', '·', '0.11')
    >>> format_decades(-1.1971070, way=UP), format_decades(-1.1971071, way=DOWN), format_decades(1e-9, way=UP)
    ('-0.5198', '-0.52', '0.00')
    """
    if log_value is None:
        return ABSENT
    if math.isinf(log_value):
        return "inf" if log_value > 0 else "-inf"
    if digits is None:
        digits = _near_enough(log_value / LN10, 2, way, 1 / LN10)[1]
    shown = f"{_stepped(log_value / LN10, 10.0**-digits, way, 1 / LN10):.{digits}f}"
    return shown.lstrip("-") if float(shown) == 0 else shown


def format_factor(log_value: float, way: Callable[[float], int] | None = None, digits: int = DIGITS) -> str:
    """The factor itself, in full between 0.001 and a million and as a power of ten elsewhere.

    What is said to be at most is rounded `UP`, a slope that was found `DOWN`: in three digits, and in a fourth where
    three would move it by more than a thousandth. Where more ``digits`` are asked for, the zeros at their end stay.

    >>> format_factor(0.0), format_factor(6.907755), format_factor(69.07755), format_factor(float("-inf"))
    ('1', '1,000', '10^30.00', '0')
    >>> format_factor(3.6456725, UP), format_factor(3.6456725, DOWN)
    ('38.31', '38.3')
    >>> format_factor(2.5808, UP, FULL), format_factor(2.58021683, digits=FULL), format_factor(2.302585093, UP, FULL)
    ('13.208', '13.200', '10')
    """
    if math.isinf(log_value):
        return "infinite" if log_value > 0 else "0"
    if not -3 <= log_value / LN10 < 6:
        return f"10^{format_decades(log_value, 2 if digits < FULL else digits - 1, way)}"
    value = math.exp(log_value)
    first = max(digits - 1 - math.floor(math.log10(value)), 0)
    shown = "{:,.{}f}".format(*_near_enough(value, first, way, value))
    whole, _, rest = shown.partition(".")
    return whole if not rest.strip("0") else shown.rstrip("0") if digits == DIGITS else shown


def known_decimals(log_width: float) -> int | None:
    """How many decimals are shown of a log whose two ends lie so far apart; None where they need not be many."""
    return FULL if log_width <= CLOSE else None


def known_digits(log_width: float) -> int:
    """How many digits are shown of a number whose two ends lie so far apart."""
    return FULL if log_width <= CLOSE else DIGITS


def format_between(low: float, high: float) -> str:
    """A factor by the logs of its two ends: one number to the nearest where they are `CLOSE`, both of them elsewhere.

    >>> format_between(2.58075, 2.58075 + 1e-8), format_between(2.5807, 2.5812)
    ('13.207', '13.2 to 13.22')
    """
    if high - low <= CLOSE:
        return format_factor((low + high) / 2, digits=FULL)
    return f"{format_factor(low, DOWN)} to {format_factor(high, UP)}"


def signed_decades(log_value: float | None, digits: int | None = None) -> str:
    """A change in decades with its sign, to the nearest; "·" where there is none.

    >>> signed_decades(0.4062, 4), signed_decades(0.0), signed_decades(float("-inf")), signed_decades(None)
    ('+0.1764', '+0.00', '-inf', '·')
    """
    shown = format_decades(log_value, digits)
    return shown if shown.startswith("-") or log_value is None else f"+{shown}"


def decimals(shown: str) -> int:
    """How many decimals a number is shown with.

    >>> decimals("1.2224"), decimals("inf")
    (4, 0)
    """
    return len(shown.partition(".")[2])


def sigma_range(sigma: Mapping[str, float] | None) -> str:
    """The range of a normalizer's √(variance + ε); "·" for any other layer."""
    if sigma is None:
        return ABSENT
    ends = [f"{sigma[end]:.2g}" for end in ("min", "max") if end in sigma]
    return "…".join(dict.fromkeys(ends)) or ABSENT


def scope_words(scope: Scope) -> str:
    """Return a scope in words."""
    if scope.kind == "ball":
        return f"within {scope.radius:g} of the samples"
    return {"point": "at the samples", "global": "everywhere"}[scope.kind]


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural where it is not one.

    >>> plural(1, "layer"), plural(2, "layer")
    ('1 layer', '2 layers')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shortened_names(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are.

    >>> shortened_names(["stem", "head"], 2), shortened_names(["a", "b", "c", "d"], 2)
    ('stem, head', 'a, b and 2 more')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def enclosure(lower: float | None, upper: float | None) -> str:
    """The two ends of a norm; one of them where only one is known.

    >>> enclosure(2.4349, 17.61), enclosure(None, 3.0), enclosure(2.5, 2.5)
    ('2.43 to 17.7', '≤ 3', '2.5')
    """
    return _joined(
        lower,
        upper,
        lambda value, way: f"{float(Context(prec=DIGITS, rounding=way).create_decimal(repr(value))):.{DIGITS}g}",
    )


def format_below(value: float) -> str:
    """A number in three digits, none of which promises more than it.

    >>> format_below(0.128999), format_below(float("inf"))
    ('0.128', 'inf')
    """
    return enclosure(value, None).removeprefix("≥ ")


def format_above(value: float | None) -> str:
    """A number in three digits, not below it; "·" where there is none.

    >>> format_above(0.128111), format_above(None)
    ('0.129', '·')
    """
    return enclosure(None, value).removeprefix("≤ ")


def format_chance(probability: float) -> str:
    """The chance that something fails, in one digit, not below it but for `EXACT`: sums of chances are rounded up.

    >>> format_chance(3.04e-8), format_chance(3e-8), format_chance(3.00000000001e-8)
    ('4e-08', '3e-08', '3e-08')
    """
    nearly = repr(probability * (1 - EXACT[UP]))
    return f"{float(Context(prec=1, rounding=ROUND_CEILING).create_decimal(nearly)):.1g}"


def log_enclosure(lower: float | None, upper: float | None) -> str:
    """The two ends of a decimal log, with two decimals.

    >>> log_enclosure(4.789, 4.811), log_enclosure(-0.001, None)
    ('4.78 to 4.82', '≥ -0.01')
    """
    return _joined(lower, upper, lambda value, way: f"{Decimal(repr(value)).quantize(CENT, rounding=way) + 0:f}")


def _joined(lower: float | None, upper: float | None, spell: Callable[[float, str], str]) -> str:
    """Both ends in few digits, rounded outwards, so that what is shown still encloses."""
    low, high = (
        "" if value is None else spell(value, way) if math.isfinite(value) else str(value)
        for value, way in ((lower, ROUND_FLOOR), (upper, ROUND_CEILING))
    )
    if low == "nan" and not high:
        return low
    if low and high:
        return low if low == high else f"{low} to {high}"
    return f"≥ {low}" if low else f"≤ {high}" if high else ABSENT


def format_number(value: float | None, digits: int = 5) -> str:
    """A number with so many digits at most; "·" where there is none.

    >>> [format_number(value) for value in (2.2912878, None, 0.0, 1e50, float("inf"))]
    ['2.2913', '·', '0', '1e+50', 'inf']
    """
    return ABSENT if value is None else f"{value:.{digits}g}"


def told_apart(names: Sequence[str], again: str) -> list[str]:
    """The names, with a number behind one that stands there again.

    >>> told_apart(["a", "b", "a"], "{} ({})")
    ['a', 'b', 'a (2)']
    """
    counts = [names[: i + 1].count(name) for i, name in enumerate(names)]
    return [name if count == 1 else again.format(name, count) for name, count in zip(names, counts, strict=True)]
