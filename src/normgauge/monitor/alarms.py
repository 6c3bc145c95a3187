"""What deserves a warning: plain numbers in, sentences out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Alarm:
    """A warning.

    Attributes:
        step: when.
        alarm: which kind.
        layer: where; "" for the whole network.
        sentence: what was seen, what it means, what to do.
        value: the number that gave it away.
        threshold: the number it crossed.
    """

    step: int
    alarm: str
    layer: str
    sentence: str
    value: float
    threshold: float
