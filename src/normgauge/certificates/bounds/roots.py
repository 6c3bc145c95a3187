"""The place where a condition stops holding: numbers by halving, sample sizes by doubling and halving."""

from __future__ import annotations

from collections.abc import Callable

FEW = 10**6  # samples up to which a bound that is dear to compute is tried


def upper_end(low: float, high: float, below: Callable[[float], bool], width: float = 0.0) -> float:
    """The root found by bisection, rounded up: the upper end of the last interval.

    Args:
        low: where ``below`` holds.
        high: where it does not.
        below: holds up to some point, and not beyond.
        width: of the last interval; 0 goes on to neighbouring floats.

    >>> upper_end(0.0, 2.0, lambda x: x * x < 2)
    1.414213562373095...
    """
    while (middle := (low + high) / 2) not in (low, high) and high - low > width:
        low, high = (middle, high) if below(middle) else (low, middle)
    return high


def samples_needed(at: Callable[[int], float], m: int, limit: float, largest: int, parts: int = 100) -> int | None:
    """The smallest number of samples at which a bound would be below its limit, up to one part in ``parts``.

    Args:
        at: the bound as a function of the number of samples, all else equal.
        m: samples at hand, too few.
        limit: what the bound must get below.
        largest: where to give up.
        parts: how near to come.

    Returns:
        The number, or None where it is above ``largest``.
    """
    low = high = m
    while at(high) >= limit:
        if high > largest:
            return None
        low, high = high, 2 * high
    while high - low > max(1, high // parts):
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle) >= limit else (low, middle)
    return high
