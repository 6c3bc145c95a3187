"""Axes of the small plots: even or logarithmic, with a place for zero on the latter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from normgauge.render import svg
from normgauge.render.svg import Scale

PLAIN = 3  # decades on both sides of 1 that are written out


@dataclass(frozen=True, slots=True)
class Axis:
    """Values to pixels.

    Attributes:
        scale: of the values, or of their decimal logs.
        logarithmic: which of the two.
        least: where the scale proper begins; below it, on a logarithmic axis, there is a gap and then zero.
    """

    scale: Scale
    logarithmic: bool
    least: float

    def at(self, value: float) -> float:
        """The pixel of a value; zero has none on a logarithmic axis and sits at its start."""
        if self.logarithmic:
            return self.scale.at(math.log10(value) if value > 0 else -math.inf)
        return self.scale.at(value)

    def ticks(self, most: int) -> Iterator[tuple[float, str]]:
        """Pixel and words of round values: whole decades on a logarithmic axis that spans any, and zero."""
        if self.least > self.scale.low:
            yield self.scale.start, "0"
        values = [value for value in svg.ticks(self.scale, most) if value >= self.least]
        whole = [value for value in values if value == round(value)]
        for value in whole if self.logarithmic and whole else values:
            yield self.scale.at(value), _decade(value) if self.logarithmic else f"{value:.4g}"


def _decade(power: float) -> str:
    """A power of ten in words.

    >>> _decade(-2.0), _decade(50.0)
    ('0.01', '10^50')
    """
    return f"{10**power:.4g}" if abs(power) <= PLAIN else f"10^{power:g}"


def finite(values: Iterable[float]) -> list[float]:
    """Those that have a place."""
    return [value for value in values if math.isfinite(value)]


def axis(values: Sequence[float], start: float, end: float, *, logarithmic: bool) -> Axis:
    """An axis that holds every finite value, with a little room; there must be one."""
    fine = finite(values)
    positive = [v for v in fine if v > 0]
    logarithmic = logarithmic and bool(positive)
    shown = [math.log10(v) for v in positive] if logarithmic else fine
    low, high = min(shown), max(shown)
    pad = 0.06 * (high - low) or 0.1 * abs(high) or 0.5
    gap = 0.2 * max(high - low, 1.0) if logarithmic and len(positive) < len(fine) else 0.0
    return Axis(Scale(low - pad - gap, high + pad, start, end), logarithmic, low - pad)
