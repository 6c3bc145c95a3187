"""The upright axis of a curve: even, or logarithmic where the values span decades."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from normgauge.render import svg
from normgauge.render.svg import Scale

SPREAD = 100  # largest over smallest value beyond which an even axis hides the small ones
PAD = 0.06


@dataclass(frozen=True, slots=True)
class Axis:
    """Values to pixels, from the bottom to the top.

    Attributes:
        scale: of the values, or of their decimal logs.
        logarithmic: which of the two.
    """

    scale: Scale
    logarithmic: bool

    @property
    def bottom(self) -> float:
        """The pixel of the lowest value."""
        return self.scale.start

    def at(self, value: float) -> float:
        """The pixel of a value; zero has none on a logarithmic axis and sits at the bottom."""
        if self.logarithmic:
            return self.scale.at(math.log10(value) if value > 0 else -math.inf)
        return self.scale.at(value)

    def ticks(self, most: int) -> Iterator[tuple[float, str]]:
        """Pixel and words of round values; whole decades on a logarithmic axis."""
        for value in svg.ticks(self.scale, most):
            if not self.logarithmic:
                yield self.scale.at(value), f"{value:.4g}"
            elif value == round(value):
                yield self.scale.at(value), f"{10**value:.4g}"


def axis(values: Sequence[float], bottom: float, top: float, may_be_logarithmic: bool) -> Axis:
    """An axis that holds every finite value, with a little room."""
    fine = [value for value in values if math.isfinite(value)]
    positive = [value for value in fine if value > 0]
    wide = bool(positive) and max(positive) / min(positive) > SPREAD
    logarithmic = may_be_logarithmic and wide and min(fine) >= 0  # a negative loss has no place there
    shown = [math.log10(value) for value in positive] if logarithmic else fine
    low, high = min(shown, default=0.0), max(shown, default=1.0)
    pad = PAD * (high - low) or 0.5 * (abs(high) or 1.0)
    return Axis(Scale(low - pad, high + pad, bottom, top), logarithmic)
