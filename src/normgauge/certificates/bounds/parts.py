"""A number and the parts it is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

LARGEST = math.log(1.7e308)


@dataclass(frozen=True, slots=True)
class Parts:
    """The value of a formula and the terms it is made of.

    Attributes:
        value: the whole; infinite where it has no meaning.
        terms: its parts by name, in the order a waterfall shows them.
    """

    value: float
    terms: tuple[tuple[str, float], ...]

    @classmethod
    def added(cls, **terms: float) -> Parts:
        """Parts that add up to the whole, rounded up; underscores in names become spaces.

        >>> Parts.added(training_error=0.25, slack=0.5).terms
        (('training error', 0.25), ('slack', 0.5))
        """
        value = math.nextafter(math.fsum(terms.values()), math.inf)
        return cls(value, tuple((name.replace("_", " "), term) for name, term in terms.items()))

    @classmethod
    def reached(cls, **levels: float) -> Parts:
        """Parts from increasing levels: each part is what its level adds to the level before.

        >>> Parts.reached(error=0.25, slack=0.75)
        Parts(value=0.75, terms=(('error', 0.25), ('slack', 0.5)))
        """
        ends = list(levels.values())
        steps = (end - start for end, start in zip(ends, [0.0, *ends], strict=False))
        return cls(ends[-1], tuple((name.replace("_", " "), step) for name, step in zip(levels, steps, strict=True)))


def exp_up(log: float) -> float:
    """exp(log), rounded up; infinite where a float cannot hold it.

    >>> exp_up(1000.0)
    inf
    """
    return math.inf if log > LARGEST else math.exp(log) * (1 + 1e-12)
