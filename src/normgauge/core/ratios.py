"""Training-complexity ratios: how two networks differ in their slopes in the weights, which worst-case laws ask for.

Such a law holds for a class of functions with a constant over all weights, where a reading bounds the slope at the
weights there are. It says nothing of one given training, so no number of steps is ever formed here; of two networks
only the ratio of their bounds can be said, to the power with which a law uses a constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from normgauge.core.errors import ReadingError
from normgauge.core.fields import SIDES, FieldForm, Log, Stored, Told
from normgauge.core.reading import LayerRecord, Reading
from normgauge.core.spelled import to_log10

POWERS = (1, 2)


@dataclass(frozen=True, slots=True)
class Law(Stored):
    """A worst case over a class of functions with Lipschitz constant L, and the power of L in it."""

    what: Annotated[str, Told("the class of functions, and how near one is to come", key="class")]
    steps: Annotated[str, Told("how many that takes at the worst, up to a factor")]
    power: Annotated[int, Told("that of L in it")]


LAWS = (
    Law("convex, to within α of the minimum at distance R", "(LR/α)²", 2),
    Law("μ-strongly convex, to within α", "L²/(μα)", 2),
    Law("nonconvex, a (δ, α)-Goldstein point from a gap Δ", "L²Δ/(δα³)", 2),
    Law("the same, with d weights", "dLΔ/(δα²)", 1),
)


def _powers(ratio: float | None) -> dict[str, float | str | None]:
    return {str(power): None if ratio is None else to_log10(power * ratio) for power in POWERS}


@dataclass(frozen=True, slots=True)
class LayerRatio(Stored):
    """One layer with weights in both networks."""

    name: Annotated[str, Told("of the layer")]
    kind: Annotated[str, Told("its class")]
    log_a: Annotated[
        Log | None,
        Told("bound of the slope of A's output in its weights, at the weights it has; `null` where there is none"),
    ]
    log_b: Annotated[Log | None, Told("of B's")]
    normalizers: Annotated[
        tuple[int, int],
        SIDES,
        Told("how many A has from this layer on, and how many B, in the order of execution: the K − i + 1 of the law"),
    ]
    scale_free: Annotated[
        bool,
        Told("whether a normalizer comes right behind it in A, so that only the direction of its weights counts"),
    ]
    why: Annotated[str, Told("why nothing can be said; empty where something can", key="no_statement")] = ""

    @property
    @Told("of the two, to each power a law uses; `null` where nothing can be said")
    def log_ratio(self) -> Annotated[float | None, FieldForm("{power: decades or null}", _powers, dict)]:
        """log(L_a/L_b); None where nothing can be said."""
        return None if self.why or self.log_a is None or self.log_b is None else self.log_a - self.log_b


@dataclass(frozen=True, slots=True)
class Ratios(Stored):
    """Two networks, layer by layer."""

    schema: ClassVar[Annotated[int, Told("1")]] = 1
    a: Annotated[str, Told("what A is, in words")]
    b: Annotated[str, Told("what B is")]
    scope: Annotated[str, Told("where the bounds hold")]
    meaning: ClassVar[Annotated[str, Told("in words")]] = (
        "ratios of proved upper bounds of slopes at the weights there are; no constants over all weights, "
        "no statement about one training"
    )
    laws: ClassVar[Annotated[tuple[Law, ...], Told("that use such constants, see below")]] = LAWS
    layers: Annotated[tuple[LayerRatio, ...], Told("those with weights, in A's order of execution, see below")]
    notes: Annotated[tuple[str, ...], Told("what a reader should know")] = ()


def ratios(a: Reading, b: Reading, *, names: tuple[str, str] | None = None, notes: Sequence[str] = ()) -> Ratios:
    """Compare bounds of the slopes of two networks in their weights, layer by layer.

    ratio_i = L_a(W_i)/L_b(W_i), L the bound at the weights there are;
    with normalizers of constant 1/σ in A alone it is σ^−(K−i+1)

    Holds:  for the scope of the readings, at these weights, as a ratio of upper bounds: neither need be attained.
    Source: THEORY section 9.
    Claim:  T.C19.exponent

    Args:
        a: the network asked about.
        b: what it is compared with; layers are matched by name.
        names: what to call them.
        notes: what else to say.

    Returns:
        One entry for each layer with weights in either.

    Raises:
        ReadingError: when the two were not read in the same scope and mode, or have no layer with weights in common.
    """
    for what, one, other in (("scope", str(a.scope), str(b.scope)), ("mode", a.mode, b.mode)):
        if one != other:
            raise ReadingError(f"expected two readings in one {what}, got {one} and {other}; measure both alike")
    others = {record.name: record for record in b.layers}
    found = [_compared(a, b, r, others.get(r.name)) for r in a.layers if _weighted(r) or _weighted(others.get(r.name))]
    if all(layer.log_a is None or layer.log_b is None for layer in found):
        raise ReadingError("the two readings have no layer with weights in common; layers are matched by name")
    return Ratios(*(names or (a.model, b.model)), str(a.scope), tuple(found), tuple(notes))


def _weighted(record: LayerRecord | None) -> bool:
    return record is not None and record.log_weight_lipschitz is not None


def _compared(a: Reading, b: Reading, mine: LayerRecord, other: LayerRecord | None) -> LayerRatio:
    log_a, log_b = mine.log_weight_lipschitz, other.log_weight_lipschitz if other else None
    counts = _normalizers(a, mine), _normalizers(b, other) if other else 0
    why = next((told for log, side in ((log_a, "A"), (log_b, "B")) if (told := _missing(log, side, str(a.scope)))), "")
    return LayerRatio(mine.name, mine.kind, log_a, log_b, counts, _scale_free(a, mine), why)


def _missing(log: float | None, side: str, scope: str) -> str:
    if log is None:
        return f"{side} has no bound for it"
    if log == math.inf:
        return f"no finite bound in {side}, scope {scope}"
    return f"the output of {side} does not depend on it" if log == -math.inf else ""


def _normalizers(reading: Reading, record: LayerRecord) -> int:
    return sum(other.sigma is not None and other.depth > record.depth for other in reading.layers)


def _scale_free(reading: Reading, record: LayerRecord) -> bool:
    behind = [other for other in reading.layers if other.depth > record.depth]
    return bool(behind) and min(behind, key=lambda other: other.depth).sigma is not None
