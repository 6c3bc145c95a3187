"""What was found about a network's symmetries: plain numbers and words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from normgauge.core.spelled import spell


@dataclass(frozen=True, slots=True)
class Symmetry:
    """One family of changes to the weights that leaves the function alone.

    Attributes:
        kind: ``scale``, ``shift`` or ``pair`` (what one weight gains another gives back).
        what: in words.
        parameters: the weights that change.
        count: independent directions in the family.
        exact: relative change of the output, in float64 and with ε taken out of the normalizers: rounding.
        defect: the same with the model's own ε.
        eval_defect: in eval mode, running statistics moved along; None for a model without them.
        eval_alone: in eval mode, running statistics left as they are: whether eval mode shares the symmetry.
        rows: for scales of whole rows under a normalizer: their number and the dimension they lie along.
    """

    kind: str
    what: str
    parameters: tuple[str, ...]
    count: int
    exact: float
    defect: float
    eval_defect: float | None = None
    eval_alone: float | None = None
    rows: tuple[int, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """This family as strict JSON."""
        return {
            "kind": self.kind,
            "what": self.what,
            "parameters": list(self.parameters),
            "count": self.count,
            "exact": spell(self.exact),
            "defect": spell(self.defect),
            "eval_defect": spell(self.eval_defect),
            "eval_alone": spell(self.eval_alone),
            "rows": list(self.rows) if self.rows else None,
        }


@dataclass(frozen=True, slots=True)
class Symmetries:
    """All that was found.

    Attributes:
        mode: ``train`` (statistics of the batch) or ``eval``.
        groups: the families.
        dimension: independent directions of all families together; None where that is too much to compute.
        weights: number of weights (and, in eval mode, running statistics) there are.
        looked_at: how many operations of which kinds were looked at.
        unknown: operations without a statement; nothing they touch was considered.
        unused: weights the output does not depend on.
        rejected: families that the equations gave and the model refused.
        not_looked_for: moves that may exist and were not looked for, in sentences.
        notes: what was assumed.
        forwards: how many times the model ran.
    """

    mode: str
    groups: tuple[Symmetry, ...]
    dimension: int | None
    weights: int
    looked_at: tuple[tuple[str, int], ...] = ()
    unknown: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    not_looked_for: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    forwards: int = 0

    def of(self, kind: str) -> tuple[Symmetry, ...]:
        """The families of one kind."""
        return tuple(g for g in self.groups if g.kind == kind)

    @property
    def worst(self) -> float:
        """The largest defect."""
        return max((g.defect for g in self.groups), default=0.0)

    def summary(self) -> str:
        """One or two sentences."""
        if not self.groups:
            return f"no symmetry found; looked at {_words(self.looked_at)}"
        total = self.dimension if self.dimension is not None else sum(g.count for g in self.groups)
        about = "at least " if self.dimension is not None else "about "
        share = 100 * total / self.weights if self.weights else 0.0
        scales = sum(g.count for g in self.of("scale"))
        last = f"; no scale symmetry found, looked at {_words(self.looked_at)}" if not scales else ""
        return f"{about}{total} of {self.weights} directions of weight space ({share:.3g} %) change nothing{last}"

    def __str__(self) -> str:
        from normgauge.render.symmetry import symmetry_text

        return symmetry_text(self)

    def to_json(self) -> dict[str, Any]:
        """The whole as strict JSON."""
        return {
            "schema": 1,
            "mode": self.mode,
            "groups": [g.to_json() for g in self.groups],
            "dimension": self.dimension,
            "weights": self.weights,
            "looked_at": dict(self.looked_at),
            "unknown": list(self.unknown),
            "unused": list(self.unused),
            "rejected": list(self.rejected),
            "not_looked_for": list(self.not_looked_for),
            "notes": list(self.notes),
            "forwards": self.forwards,
        }


def _words(looked_at: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{n} {name}" for name, n in looked_at[:8]) or "nothing"


def size(defect: float | None) -> str:
    """A defect in few characters."""
    if defect is None:
        return ""
    if defect == 0:
        return "0"
    return f"1e{math.floor(math.log10(defect)):+03d}" if math.isfinite(defect) else "broken"
