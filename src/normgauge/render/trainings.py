"""Several trainings under one label: the median of what was read of each, and how far they lie apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from normgauge.core.interval import LogInterval
from normgauge.core.reading import Reading
from normgauge.render.numbers import DOWN, NEAR, UP, format_factor, known_digits, plural, scope_words
from normgauge.render.verdict import interval_words

Trainings = Mapping[str, Sequence[Reading]]


def steepest_slopes(readings: Sequence[Reading]) -> list[LogInterval]:
    """Of each training what encloses its steepest slope."""
    return [LogInterval(min(r.log_lower, r.log_upper), r.log_upper) for r in readings]


def median_slopes(readings: Sequence[Reading]) -> list[LogInterval]:
    """Of each training what encloses the slope of its median sample; empty where one has none."""
    found = [r.log_median for r in readings]
    return [ends for ends in found if ends is not None] if None not in found else []


def middle_slope(ends: Sequence[LogInterval]) -> LogInterval:
    """The median over the trainings, between the medians of both ends."""
    return LogInterval(median(e.lo for e in ends), median(e.hi for e in ends))


def spread_words(ends: Sequence[LogInterval]) -> str:
    """The median over the trainings and, where there are several, the smallest and the largest.

    >>> spread_words([LogInterval(log, log + 1e-9) for log in (2.1, 2.2, 2.4)])
    '9.0250 (8.1662 to 11.023)'
    """
    told = interval_words(middle_slope(ends), "")
    if len(ends) < 2:
        return told
    low, high, width = min(e.lo for e in ends), max(e.hi for e in ends), max(e.width for e in ends)
    ways, digits = ((None, None), known_digits(width)) if width <= NEAR else ((DOWN, UP), known_digits(width))
    return f"{told} ({format_factor(low, ways[0], digits)} to {format_factor(high, ways[1], digits)})"


def compared_trainings(trainings: Trainings) -> str:
    """What was read of each network, as the median over its trainings and their range."""
    first = next(iter(trainings.values()))[0]
    counts = ", ".join(f"{plural(len(readings), 'training')} of {name}" for name, readings in trainings.items())
    medians = {name: median_slopes(readings) for name, readings in trainings.items()}
    steepest = {name: steepest_slopes(readings) for name, readings in trainings.items()}
    place = f"The slope {scope_words(first.scope)}"
    told = [f"{counts}: of each number the median over them, in brackets the smallest and the largest."]
    if all(medians.values()):
        told.append(_spreads("The median sample's slope", medians))
        place = "The steepest sample's"
    return " ".join([*told, _spreads(place, steepest)])


def _spreads(what: str, slopes: Mapping[str, Sequence[LogInterval]]) -> str:
    named = ", ".join(f"{spread_words(ends)} for {name}" for name, ends in slopes.items())
    return f"{what} is {named}{_overlap(slopes)}."


def _overlap(slopes: Mapping[str, Sequence[LogInterval]]) -> str:
    """Whether every training of one network lies below every one of another; empty where there are not two."""
    if len(slopes) != 2 or min(map(len, slopes.values())) < 2:
        return ""
    (a, first), (b, second) = slopes.items()
    for low, below, high, above in ((a, first, b, second), (b, second, a, first)):
        if max(e.hi for e in below) < min(e.lo for e in above):
            return f": each training of {low} lies below each of {high}"
    return ": the ranges overlap"
