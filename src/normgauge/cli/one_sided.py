"""Stored numbers held against those measured again: a bound may be larger than it need be, and never smaller.

An upper bound is a claim that nothing lies above it, so it may exceed what is measured again by a little: searches and
minimisations end elsewhere on another machine. Below, rounding alone is allowed. For lower ends it is the other way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from normgauge.core.checker import ROUNDING
from normgauge.core.fields import declared_fields
from normgauge.core.multipliers import are_kept
from normgauge.core.proof import ProofStep
from normgauge.core.reading import LayerRecord, Reading, Sample

TABLES = {Reading: "", LayerRecord: "layers.", Sample: "samples.", ProofStep: "proof.steps."}
TOLD = {table + field.key: field.told for cls, table in TABLES.items() for field in declared_fields(cls)}
# These differ from run to run, or with the machine: the search has a budget, and of the balanced bound only the total
# is unique. The proof and the totals recomposed from it hold them all the same.
LEFT_OUT = {path for path, told in TOLD.items() if told.varies}
MINIMISED = {path for path, told in TOLD.items() if told.minimised}
GROWING = "published"  # a table of which earlier readings have less: they say nothing of the rest
CLOSE, BALANCED = 1e-5, 1e-3  # decades; of a number that is no logarithm, a part of it
PROVED_AGAIN = ("log10_upper", "samples.log10_upper")  # with the stored multipliers, where there are any


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far two readings may differ.

    Attributes:
        slack: by how much a bound may be the stronger claim, in decades.
        proved: how a number was found again, by the path of its field; "measured again" where it is not listed.
    """

    slack: float
    proved: Mapping[str, str]

    def places(self, stored: Any, again: Any, place: str, path: str, close: float) -> Iterator[str]:
        """A sentence for each place below ``place`` where what is stored could not be confirmed."""
        if isinstance(stored, Mapping) and isinstance(again, Mapping):
            for key in dict.fromkeys((*stored, *again)):
                at = f"{path}.{key}" if path else str(key)
                claimed = key in stored or path != GROWING
                if at not in LEFT_OUT and claimed:
                    inner = f"{place}.{key}" if place else str(key)
                    within = BALANCED if at in MINIMISED else close
                    yield from self.places(stored.get(key), again.get(key), inner, at, within)
        elif isinstance(stored, list) and isinstance(again, list) and len(stored) == len(again):
            for index, (old, new) in enumerate(zip(stored, again, strict=True)):
                name = new.get("name", index) if isinstance(new, Mapping) else index
                yield from self.places(old, new, f"{place}[{name}]", path, close)
        elif _is_number(stored) and _is_number(again):
            yield from self.numbers(stored, again, place, path, close)
        elif stored != again:
            yield f"{place}: stored {_shown(stored)}, measured again {_shown(again)}"

    def numbers(self, stored: float, again: float, place: str, path: str, close: float) -> Iterator[str]:
        """A sentence where two numbers differ by more than their kind allows."""
        logarithm, how = "log10" in path, self.proved.get(path, "measured again")
        excess = (stored - again) * (-1 if path.endswith(".lower") else 1)  # how much weaker the stored claim is
        claimed = logarithm or path == "failure_probability"
        if claimed and excess < -self.slack * max(float(logarithm), abs(again)):
            size = f"{'larger' if again > stored else 'smaller'} by {abs(excess):.2g}"
            yield f"{place}: stored {stored:.12g}, {how} {again:.12g}, {size}: the stored bound could not be confirmed"
        elif not math.isclose(stored, again, rel_tol=close, abs_tol=close if logarithm else 0.0):
            yield f"{place}: stored {_shown(stored)}, {how} {_shown(again)}"


def unconfirmed_places(stored: Reading, again: Reading) -> Iterator[str]:
    """What of a stored reading could not be confirmed by another measurement, a sentence each."""
    slack = ROUNDING if again.precision == "float64" else CLOSE  # seven digits are all that a shorter type has
    how = dict.fromkeys(PROVED_AGAIN, "its multipliers prove") if are_kept(stored.multipliers) else {}
    yield from Comparison(slack, how).places(stored.to_json(), again.to_json(), "", "", CLOSE)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} of them"
    return f"{value:.9g}" if isinstance(value, float) else f"{value!r:.40}"
