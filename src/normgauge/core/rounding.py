"""Every outward rounding step, once: how far a proved end moves to cover what float64 lost, and why that is enough.

A result of float64 arithmetic is off by at most u = 2⁻⁵³ of itself an operation, and a chain or sum of n operations by
about n·u (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., Lemma 3.1 and (3.5)). So the steps differ in
how many operations they cover:

    `STEPS`  1e-12 = 9,007 u    what a rule does to one number: products, roots, exp, and sums of a few thousand terms
    `HOUSE`  1e-9 = 9,007,199 u a constant that ends a longer computation: a norm, a sum over a whole weight
    `LOGS`   1e-15 = 9 u        one logarithm or one logaddexp of numbers about 1

Sizes (numbers that are not negative) move by a factor, ends of a range (of any sign) by a part of themselves, and
logarithms by an amount. Each function takes floats and tensors.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Protocol, Self, TypeVar

INF = math.inf
UNIT = 2.0**-53
"""Unit roundoff of float64."""

STEPS = 1e-12
HOUSE = 1e-9
LOGS = 1e-15
LOOSE = 4e-15
"""A part, 36 u, by which one operation on intervals widens its result: torch's functions are right to a few u."""

CANCELLED = 1e-14
"""A part, 90 u, of the largest terms of Σ p x² − (Σ p x)² with Σ p = 1, which may cancel to nothing."""

LOG_SOFTMAX = 1e-13
"""A part, 900 u, of 1 + |log p|: far above what torch's log_softmax loses in float64."""

TINY = 1e-300
"""Above the smallest normal number of float64, below anything measured: what underflow may hide, a divisor's floor."""

TINY_SINGLE = 1e-30
"""The same for float32, and for squares of float64."""

LARGEST_LOG = 709.0
"""A log whose exp float64 still holds."""

SQUARED = (1e-100, 1e100)
"""Sizes between which a sum of squares keeps all its digits: what float64 loses of it is far below one of them."""


class Real(Protocol):
    """What can be rounded: a float or a tensor of them."""

    def __mul__(self, other: Any, /) -> Self: ...

    def __add__(self, other: Any, /) -> Self: ...

    def __sub__(self, other: Any, /) -> Self: ...

    def __abs__(self) -> Self: ...


R = TypeVar("R", bound=Real)


def size_up(size: R) -> R:
    """A size ≥ 0 after a few operations, from above: size·(1 + 1e-12)."""
    return size * (1 + STEPS)


def size_down(size: R) -> R:
    """A size ≥ 0 after a few operations, from below: size·(1 − 1e-12)."""
    return size * (1 - STEPS)


def house_up(size: R) -> R:
    """A size ≥ 0 after a long computation, from above: size·(1 + 1e-9)."""
    return size * (1 + HOUSE)


def house_down(size: R) -> R:
    """A size ≥ 0 after a long computation, from below: size·(1 − 1e-9)."""
    return size * (1 - HOUSE)


def end_up(end: R) -> R:
    """The upper end of a range after a few operations, of any sign; +∞ stays."""
    return end + abs(end) * STEPS


def end_down(end: R) -> R:
    """The lower end of a range after a few operations, of any sign; −∞ stays."""
    return end - abs(end) * STEPS


def log_above(log: R) -> R:
    """log of a constant that was computed, from above: the constant times e^1e-9."""
    return log + HOUSE


def log_below(log: R) -> R:
    """log of a constant that was computed, from below."""
    return log - HOUSE


def log_outward(value: float) -> float:
    """log of a constant that was computed, from above; log 0 = −inf."""
    return -INF if value == 0 else log_above(math.log(value))


def log_inward(value: float) -> float:
    """log of a constant that was computed, from below; log 0 = −inf."""
    return -INF if value == 0 else log_below(math.log(value))


def log_root(count: int) -> float:
    """log √count of a whole number, from above: exact for 0 and 1, and no other is off by 1e-15 below √count = e¹⁶."""
    return math.log(count) / 2 + LOGS if count > 1 else (0.0 if count else -INF)


def log_root_below(count: int) -> float:
    """log √count of a whole number, from below."""
    return math.log(count) / 2 - LOGS if count > 1 else log_root(count)


def log_joined(log: R, terms: int) -> R:
    """log of a sum of ``terms`` exponentials, from above: each costs one exp and one addition of numbers up to 1."""
    return log + LOGS * terms


def step_down(value: float) -> float:
    """The float64 below; an infinity stays."""
    return value if math.isinf(value) else math.nextafter(value, -INF)


def step_up(value: float) -> float:
    """The float64 above; an infinity stays."""
    return value if math.isinf(value) else math.nextafter(value, INF)


def log_up(value: float) -> float:
    """Natural log of ``value`` rounded up by more than the error of `math.log`; log 0 = −inf."""
    return -INF if value == 0 else step_up(step_up(math.log(value)))


def log_down(value: float) -> float:
    """Natural log of ``value`` rounded down; log 0 = −inf."""
    return -INF if value == 0 else step_down(step_down(math.log(value)))


def power_up(log: float) -> float:
    """exp of a log, from above: `math.exp` is right to a few u; infinite where float64 has no such number.

    >>> power_up(0.0) > 1, power_up(800.0), power_up(-INF)
    (True, inf, 0.0)
    """
    try:
        return 0.0 if log == -INF else step_up(size_up(math.exp(log)))
    except OverflowError:
        return INF


def power_down(log: float) -> float:
    """exp of a log, from below; the largest number of float64 where it is larger than that."""
    if log == INF:
        return INF
    try:
        return max(0.0, step_down(size_down(math.exp(log))))
    except OverflowError:
        return sys.float_info.max


def dot_error(terms: int) -> float:
    """Relative error of a sum of ``terms`` products, each real or complex: 2(n + 8) u, in any order, fused or not.

    Source: Higham, (3.5) and Lemma 3.5; the factor 2 covers complex products.
    """
    return 2 * (terms + 8) * UNIT


def eigenvalue_error(order: int) -> float:
    """Error of LAPACK's Hermitian eigenvalues as a part of the largest: they are those of M + E, ‖E‖ ≤ p(n) u ‖M‖.

    Source: Anderson et al., LAPACK Users' Guide, 3rd ed., §4.7; p(n) = 16 n is taken.
    """
    return 16 * order * UNIT
