"""What a number claims: its evidence and the set on which it holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from normgauge.core.errors import InputError


class Evidence(StrEnum):
    """How a number is known, from strongest to weakest. The weakest part of a computation decides the whole.

    ``proved``: exact arithmetic on the stored weights, rounded outwards. ``computed``: float64, rounding not enclosed.
    ``estimated``: a proof was possible only in part. ``observed``: seen on data. ``refuted``: a slope was found above
    it. ``unknown``: a step without a bound, or a trace whose second run differed.
    """

    PROVED = "proved"
    COMPUTED = "computed"
    ESTIMATED = "estimated"
    OBSERVED = "observed"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Known:
    """How a bound is known, where the reading itself is not at hand; the attributes are those of a reading."""

    evidence: Evidence
    path_dependent: bool = False
    failure_probability: float = 0.0


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an upper bound holds.

    ``global``: on all inputs. ``ball``: for every sample x0 of the batch on ‖x − x0‖ ≤ radius. ``point``: the
    Jacobian at the samples themselves and nowhere else.
    """

    kind: str
    radius: float = math.inf

    @classmethod
    def parse(cls, text: str | Scope) -> Scope:
        """Read ``point``, ``ball:RADIUS`` or ``global``.

        Raises:
            InputError: for anything else.
        """
        if isinstance(text, Scope):
            return text
        if text == "global":
            return cls("global", math.inf)
        if text == "point":
            return cls("point", 0.0)
        if isinstance(text, str) and text.startswith("ball:"):
            try:
                radius = float(text[5:])
            except ValueError:
                radius = math.nan
            if radius > 0 and math.isfinite(radius):
                return cls("ball", radius)
        raise InputError(
            f"scope: expected point (the samples), ball:RADIUS such as ball:0.1 (around them) or global, got {text!r}"
        )

    def __str__(self) -> str:
        if self.kind != "ball":
            return self.kind
        short = f"{self.radius:g}"
        return f"ball:{short if float(short) == self.radius else repr(self.radius)}"
