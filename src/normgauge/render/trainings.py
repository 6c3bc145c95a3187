"""What was read of several trainings in words: the slopes found, the bounds, and whether their ranges overlap."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import median

from normgauge.core.interval import LogInterval
from normgauge.core.reading import Reading
from normgauge.render.numbers import DOWN, NEAR, UP, format_factor, known_digits
from normgauge.render.verdict import bracket_encloses, interval_words, open_words

APART, OPEN, OVERLAP = "apart", "open", "overlap"
PAIRS = 3  # that are named
Slopes = Mapping[str, Sequence[LogInterval]]


def steepest_slopes(readings: Sequence[Reading]) -> list[LogInterval]:
    """Of each training the steepest slope found, and its bound."""
    return [LogInterval(min(r.log_lower, r.log_upper), r.log_upper) for r in readings]


def enclosed_slopes(readings: Sequence[Reading]) -> list[LogInterval]:
    """Of each training what encloses its steepest slope: no upper end where the bound is not known to hold."""
    ends = zip(readings, steepest_slopes(readings), strict=True)
    return [e if bracket_encloses(r) else LogInterval(e.lo, math.inf) for r, e in ends]


def median_slopes(readings: Sequence[Reading]) -> list[LogInterval]:
    """Of each training what encloses the slope of its median sample; empty where one has none."""
    found = [r.log_median for r in readings]
    return [ends for ends in found if ends is not None] if None not in found else []


def middle_slope(ends: Sequence[LogInterval]) -> LogInterval:
    """The median over the trainings, between the medians of both ends."""
    return LogInterval(median(e.lo for e in ends), _middle([e.hi for e in ends]))


def _middle(values: Sequence[float]) -> float:
    """The median; the larger of the two in the middle where these are infinite both ways."""
    found = median(values)
    return max(values) if math.isnan(found) else found


def slope_lines(ends: Sequence[LogInterval], without: str = "no finite bound") -> list[str]:
    """The median over the trainings and, where there are several, the smallest and the largest.

    One line where every training's slope is known, elsewhere what was found and what is at most.

    >>> slope_lines([LogInterval(log, log + 1e-9) for log in (2.1, 2.2, 2.4)])
    ['9.0250 (8.1662 to 11.023)']
    >>> slope_lines([LogInterval(2.1, 2.2), LogInterval(2.3, 2.4)])
    ['found 9.02 (8.16 to 9.97)', 'at most 9.98 (9.03 to 11.03)']
    >>> slope_lines([LogInterval(2.1, math.inf)])
    ['found 8.16', 'no finite bound']
    """
    middle, width = middle_slope(ends), max(e.width for e in ends)
    if width <= NEAR:
        digits = known_digits(width)
        return [interval_words(middle) + _range([e.lo for e in ends], None, digits)]
    found, most = [e.lo for e in ends], [e.hi for e in ends]
    lines = [f"found {format_factor(middle.lo, DOWN)}{_range(found, DOWN)}"]
    if min(most) == math.inf:
        return [*lines, without]
    return [*lines, f"at most {format_factor(middle.hi, UP)}{_range(most, UP)}"]


def slope_words(ends: Sequence[LogInterval], without: str = "no finite bound") -> str:
    """The same on one line."""
    return ", ".join(slope_lines(ends, without))


def reading_slopes(readings: Sequence[Reading]) -> list[str]:
    """The lines about the steepest slopes of readings."""
    return slope_lines(steepest_slopes(readings), open_words(max(readings, key=lambda r: r.log_upper)))


def _range(values: Sequence[float], way: Callable[[float], int] | None, digits: int = 3) -> str:
    if len(values) < 2:
        return ""
    return f" ({format_factor(min(values), way, digits)} to {format_factor(max(values), way, digits)})"


def overlap_sentence(slopes: Slopes) -> str:
    """Which ranges of trainings overlap, by what encloses each; empty where there are not two ranges."""
    several = {name: ends for name, ends in slopes.items() if len(ends) > 1}
    pairs = {(a, b): _met(several[a], several[b]) for a, b in combinations(several, 2)}
    if not pairs:
        return ""
    if len(pairs) == 1:
        return _pair_sentence(several, *next(iter(pairs.items())), named=len(slopes) > 2)
    kinds = {kind: [pair for pair, found in pairs.items() if found == kind] for kind in (OVERLAP, OPEN)}
    if len(kinds[OVERLAP]) == len(pairs):
        return "All ranges overlap."
    if not any(kinds.values()):
        return "No two of the ranges overlap."
    told = [f"The ranges of {_pairs(kinds[OVERLAP])} overlap."] if kinds[OVERLAP] else []
    told += [f"Whether the ranges of {_pairs(kinds[OPEN])} overlap is open."] if kinds[OPEN] else []
    return " ".join(told + ["No other two overlap."] * (sum(map(len, kinds.values())) < len(pairs)))


def _pair_sentence(slopes: Slopes, pair: tuple[str, str], kind: str, *, named: bool) -> str:
    of = f" of {' and '.join(pair)}" if named else ""
    if kind == OVERLAP:
        return f"The ranges{of} overlap."
    if kind == OPEN:
        return f"Whether the ranges{of} overlap is open."
    low, high = sorted(pair, key=lambda name: max(e.hi for e in slopes[name]))
    return f"Each training of {low} lies below each of {high}."


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    more = f" and of {len(pairs) - PAIRS} more pairs" if len(pairs) > PAIRS else ""
    return ", of ".join(f"{a} and {b}" for a, b in pairs[:PAIRS]) + more


def _met(first: Sequence[LogInterval], second: Sequence[LogInterval]) -> str:
    """Whether the ranges of what is enclosed meet: not at all, for certain, or open."""
    if any(max(e.hi for e in low) < min(e.lo for e in high) for low, high in ((first, second), (second, first))):
        return APART
    sure = (min(e.hi for e in low) <= max(e.lo for e in high) for low, high in ((first, second), (second, first)))
    return OVERLAP if all(sure) else OPEN
