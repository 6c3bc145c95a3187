"""Training-complexity ratios: how two networks differ in the constants that worst-case laws of optimization use.

Such a law holds for a class of functions. It says nothing of one given training, so no number of steps is ever formed
here; of two networks only the ratio of their constants can be said, to the power with which a law uses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from normgauge.core.reading import LayerRecord, Reading
from normgauge.core.spelled import to_log10
from normgauge.errors import ReadingError

POWERS = (1, 2)


@dataclass(frozen=True, slots=True)
class Law:
    """A worst case over a class of functions with Lipschitz constant L, and the power of L in it."""

    what: str
    steps: str
    power: int


LAWS = (
    Law("convex, to within α of the minimum at distance R", "(LR/α)²", 2),
    Law("μ-strongly convex, to within α", "L²/(μα)", 2),
    Law("nonconvex, a (δ, α)-Goldstein point from a gap Δ", "L²Δ/(δα³)", 2),
    Law("the same, with d weights", "dLΔ/(δα²)", 1),
)


@dataclass(frozen=True, slots=True)
class LayerRatio:
    """One layer with weights in both networks.

    Attributes:
        name: of the layer.
        kind: its class.
        log_a, log_b: constant of the output in its weights, natural logarithms; None where there is none.
        normalizers: how many A has from this layer on, and how many B, in the order of execution (THEORY's K − i + 1).
        scale_free: whether a normalizer comes right behind it in A, so that only the direction of its weights counts.
        why: why nothing can be said; "" where something can.
    """

    name: str
    kind: str
    log_a: float | None
    log_b: float | None
    normalizers: tuple[int, int]
    scale_free: bool
    why: str = ""

    @property
    def log_ratio(self) -> float | None:
        """log(L_a/L_b); None where nothing can be said."""
        return None if self.why or self.log_a is None or self.log_b is None else self.log_a - self.log_b

    def to_json(self) -> dict[str, Any]:
        """With decimal logarithms."""
        ratio = self.log_ratio
        return {
            "name": self.name,
            "kind": self.kind,
            "log10_a": to_log10(self.log_a),
            "log10_b": to_log10(self.log_b),
            "log10_ratio": {str(p): None if ratio is None else to_log10(p * ratio) for p in POWERS},
            "normalizers": {"a": self.normalizers[0], "b": self.normalizers[1]},
            "scale_free": self.scale_free,
            "no_statement": self.why,
        }


@dataclass(frozen=True, slots=True)
class Ratios:
    """Two networks, layer by layer.

    Attributes:
        a, b: what they are, in words.
        scope: where the constants hold.
        layers: those with weights, in A's order of execution.
        notes: what a reader should know.
    """

    a: str
    b: str
    scope: str
    layers: tuple[LayerRatio, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "schema": 1,
            "a": self.a,
            "b": self.b,
            "scope": self.scope,
            "meaning": "ratios of proved upper bounds on worst-case constants; no statement about one training",
            "laws": [{"class": law.what, "steps": law.steps, "power": law.power} for law in LAWS],
            "layers": [layer.to_json() for layer in self.layers],
            "notes": list(self.notes),
        }


def ratios(a: Reading, b: Reading, *, names: tuple[str, str] | None = None, notes: Sequence[str] = ()) -> Ratios:
    """Compare the constants of two networks in their weights, layer by layer.

    ratio_i = Lip_a(W_i)/Lip_b(W_i);  with normalizers of constant 1/σ in A alone it is σ^−(K−i+1)

    Holds:  for the scope of the readings, as a ratio of upper bounds: neither constant need be attained.
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
        return f"{side} has no constant for it"
    if log == math.inf:
        return f"no finite constant in {side}, scope {scope}"
    return f"the output of {side} does not depend on it" if log == -math.inf else ""


def _normalizers(reading: Reading, record: LayerRecord) -> int:
    return sum(other.sigma is not None and other.depth > record.depth for other in reading.layers)


def _scale_free(reading: Reading, record: LayerRecord) -> bool:
    behind = [other for other in reading.layers if other.depth > record.depth]
    return bool(behind) and min(behind, key=lambda other: other.depth).sigma is not None
