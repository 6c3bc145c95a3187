"""What becomes of numbers added to a weight: lost, seen, or taken back by other weights."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Direct:
    """Another weight that takes a shift back: its entry p has to change by factor · shift[origin[p]].

    In a table (``rows``) places are columns, and all rows change alike.
    """

    name: str
    places: Tensor
    origin: Tensor
    factor: float
    rows: bool = False


@dataclass(frozen=True, slots=True)
class Through:
    """A bias (or a running mean) behind a matrix: it has to change by factor · Wᵀ shift[origin]."""

    name: str
    places: Tensor
    weight: str
    matrix: Tensor  # places of the weight's entries, (in, out)
    origin: Tensor  # (in,)
    factor: float


@dataclass(slots=True)
class Fate:
    """What becomes of the numbers added at a site.

    Attributes:
        together: pairs of entries that must be shifted alike.
        seen: entries whose shift reaches the output.
        back: weights that take it back.
        statistics: running means that must follow for the same function in eval mode.
        anywhere: whether the shift may also depend on the input (it is lost position by position).
    """

    together: list[Tensor] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    back: list[Direct | Through] = field(default_factory=list)
    statistics: list[Direct | Through] = field(default_factory=list)
    anywhere: bool = True

    def spoil(self, origin: Tensor) -> None:
        """Say that these entries are seen."""
        self.seen.update(torch.unique(origin).tolist())
