"""How a value of a random sweep is drawn."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

DRAWS = ("log_uniform", "uniform", "int", "choice")


@dataclass(frozen=True, slots=True)
class Draw:
    """One way to draw a value.

    Attributes:
        kind: one of `DRAWS`.
        ends: the two ends of a range (both can come for ``int``), or the values to choose from.
    """

    kind: str
    ends: tuple[Any, ...]

    @classmethod
    def of(cls, kind: str, given: object) -> Draw:
        """A draw from what the config says.

        Raises:
            ValueError: says what was expected.
        """
        if kind == "choice":
            if isinstance(given, list) and given:
                return cls(kind, tuple(given))
            raise ValueError("a list of values, not empty")
        numbers = (int,) if kind == "int" else (int, float)
        what = "two whole numbers, the smaller first" if kind == "int" else "two numbers, the smaller first"
        if not isinstance(given, list) or len(given) != 2:
            raise ValueError(what)
        if any(isinstance(end, bool) or not isinstance(end, numbers) or not math.isfinite(end) for end in given):
            raise ValueError(what)
        if given[0] >= given[1] or (kind == "log_uniform" and given[0] <= 0):
            raise ValueError(what + (", both above 0" if kind == "log_uniform" else ""))
        return cls(kind, tuple(given) if kind == "int" else tuple(map(float, given)))

    def value(self, stream: random.Random) -> Any:
        """One value; floats have six digits, so that tables and folders can be read."""
        if self.kind == "choice":
            return self.ends[stream.randrange(len(self.ends))]
        low, high = self.ends
        if self.kind == "int":
            return stream.randint(low, high)
        if self.kind == "uniform":
            return float(f"{stream.uniform(low, high):.6g}")
        return float(f"{math.exp(stream.uniform(math.log(low), math.log(high))):.6g}")
