"""What was found about a network's symmetries: plain numbers and words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from normgauge.core.fields import Size, Stored, Told


@dataclass(frozen=True, slots=True)
class Symmetry(Stored):
    """One family of changes to the weights that leaves the function alone."""

    kind: Annotated[str, Told("`scale`, `shift` or `pair` (what one weight gains another gives back)")]
    what: Annotated[str, Told("in words")]
    parameters: Annotated[tuple[str, ...], Told("the weights that change")]
    count: Annotated[int, Told("independent directions in the family")]
    exact: Annotated[
        Size, Told("relative change of the output, in float64 and with ε taken out of the normalizers: rounding")
    ]
    defect: Annotated[Size, Told("the same with the model's own ε")]
    eval_defect: Annotated[
        Size | None, Told("in eval mode, running statistics moved along; `null` for a model without them")
    ] = None
    eval_alone: Annotated[
        Size | None,
        Told("in eval mode, running statistics left as they are: whether eval mode shares the symmetry"),
    ] = None
    rows: Annotated[
        tuple[int, ...] | None,
        Told("for scales of whole rows under a normalizer: their number and the dimension they lie along"),
    ] = None


@dataclass(frozen=True, slots=True)
class Symmetries(Stored):
    """All symmetries that were found, and what was not looked at."""

    schema: ClassVar[Annotated[int, Told("1")]] = 1
    mode: Annotated[str, Told("`train` (statistics of the batch) or `eval`")]
    groups: Annotated[tuple[Symmetry, ...], Told("the families, see below")]
    dimension: Annotated[
        int | None, Told("independent directions of all families together; `null` where that is too much to compute")
    ]
    weights: Annotated[int, Told("number of weights (and, in eval mode, running statistics) there are")]
    looked_at: Annotated[tuple[tuple[str, int], ...], Told("how many operations of which kinds were looked at")] = ()
    unknown: Annotated[tuple[str, ...], Told("operations without a statement; nothing they touch was considered")] = ()
    unused: Annotated[tuple[str, ...], Told("weights the output does not depend on")] = ()
    rejected: Annotated[tuple[str, ...], Told("families that the equations gave and the model refused")] = ()
    not_looked_for: Annotated[tuple[str, ...], Told("moves that may exist and were not looked for, in sentences")] = ()
    notes: Annotated[tuple[str, ...], Told("what was assumed")] = ()
    forwards: Annotated[int, Told("how many times the model ran")] = 0

    def of(self, kind: str) -> tuple[Symmetry, ...]:
        """Return the families of one kind."""
        return tuple(g for g in self.groups if g.kind == kind)

    @property
    def worst(self) -> float:
        """The largest defect of all families."""
        return max((g.defect for g in self.groups), default=0.0)

    def summary(self) -> str:
        """Return one or two sentences: how many directions of the weights change nothing."""
        if not self.groups:
            return f"no symmetry found; looked at {_words(self.looked_at)}"
        total = self.dimension if self.dimension is not None else sum(g.count for g in self.groups)
        about = "at least " if self.dimension is not None else "about "
        share = 100 * total / self.weights if self.weights else 0.0
        scales = sum(g.count for g in self.of("scale"))
        last = f"; no scale symmetry found, looked at {_words(self.looked_at)}" if not scales else ""
        return f"{about}{total} of {self.weights} directions of weight space ({share:.3g} %) change nothing{last}"

    def __str__(self) -> str:
        from normgauge.render.console import as_text
        from normgauge.render.symmetry import symmetry_blocks

        return as_text(symmetry_blocks(self))


def _words(looked_at: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{n} {name}" for name, n in looked_at[:8]) or "nothing"


def defect_size(defect: float | None) -> str:
    """Return the size of a defect as a power of ten, in few characters."""
    if defect is None:
        return ""
    if defect == 0:
        return "0"
    return f"1e{math.floor(math.log10(defect)):+03d}" if math.isfinite(defect) else "broken"
