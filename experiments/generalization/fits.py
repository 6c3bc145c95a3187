"""The few statistics the tables are made with; standard library only."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Curve = Sequence[tuple[float, float]]  # samples and error, ascending samples


@dataclass(frozen=True, slots=True)
class Law:
    """y = a·m^(−b), least squares in logarithms.

    Attributes:
        a: the factor.
        b: the exponent, positive where y falls.
        error: standard error of b; nan for two points.
    """

    a: float
    b: float
    error: float


def power_law(curve: Curve) -> Law:
    """Fit a power law; points that are not positive are left out, and fewer than two give nan.

    >>> law = power_law([(10, 2.0), (100, 0.2), (1000, 0.02)])
    >>> round(law.a, 6), round(law.b, 6)
    (20.0, 1.0)
    """
    points = [(math.log(m), math.log(y)) for m, y in curve if y > 0]
    if len(points) < 2:
        return Law(math.nan, math.nan, math.nan)
    xs, ys = zip(*points, strict=True)
    slope, level = statistics.linear_regression(xs, ys)
    left = sum((y - level - slope * x) ** 2 for x, y in points)
    wide = sum((x - statistics.fmean(xs)) ** 2 for x in xs)
    error = math.sqrt(left / (len(points) - 2) / wide) if len(points) > 2 else math.nan
    return Law(math.exp(level), -slope, error)


def fewer(plain: Curve, other: Curve) -> list[tuple[float, float]]:
    """How many times fewer samples ``other`` needs for the errors that ``plain`` reaches.

    For each size of ``plain``, the size at which ``other`` has the same error, on straight lines between its points in
    logarithms; errors out of its range are left out. A falling curve is made of an uneven one by its running minimum.

    >>> [(m, round(x, 6)) for m, x in fewer([(100, 0.4), (200, 0.2), (400, 0.1)], [(50, 0.4), (100, 0.2), (200, 0.1)])]
    [(100, 2.0), (200, 2.0), (400, 2.0)]
    """
    falling = _falling(other)
    found = []
    for m, error in _falling(plain):
        for (m0, e0), (m1, e1) in itertools.pairwise(falling):
            if e0 >= error >= e1 and e0 > e1 > 0:
                share = (math.log(e0) - math.log(error)) / (math.log(e0) - math.log(e1))
                found.append((m, m / math.exp(math.log(m0) + share * (math.log(m1) - math.log(m0)))))
                break
    return found


def _falling(curve: Curve) -> list[tuple[float, float]]:
    lowest = itertools.accumulate((error for _, error in curve), min)
    return [(m, error) for (m, _), error in zip(curve, lowest, strict=True)]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean ± standard deviation of those that are numbers.

    >>> spread([1.0, 2.0]), spread([3.0]), spread([math.nan])
    ('1.50 ± 0.71', '3.00', '–')
    """
    kept = [v for v in values if math.isfinite(v)]
    if not kept:
        return "–"
    wide = f" ± {statistics.stdev(kept):.{digits}f}" if len(kept) > 1 else ""
    return f"{statistics.fmean(kept):.{digits}f}{wide}".replace("-", "−")


def up(share: float, digits: int = 2) -> str:
    """A bound in percent, rounded up.

    >>> up(0.010301), up(0.2)
    ('1.04', '20.00')
    """
    scale = 10**digits
    return f"{math.ceil(100 * share * scale - 1e-9) / scale:.{digits}f}"
