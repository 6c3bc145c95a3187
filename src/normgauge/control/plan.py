"""The folded bound as a small formula over the model's own tensors: terms, sums along chains, joins at additions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from normgauge.control.channel_scales import LiveNormalizer
from normgauge.control.live_weights import LiveWeight

N = TypeVar("N", float, Tensor)


@dataclass(eq=False, slots=True)
class MapTerm:
    """log ‖D_out W D_in‖ of one linear map with the normalizers beside it.

    Attributes:
        name: of its step.
        weight: where it lives.
        spec: of a convolution at the traced size; None for a matrix.
        behind: normalizer whose stored scales follow it, D_out.
        before: normalizers whose scales are carried into it, D_in.
        centred: only a centring normalizer reads it: PW counts.
        next: the only map that reads it, through steps that keep channels apart; None where there is none.
        renormed: what follows divides its scale away again: every reader is a map with a stored normalizer behind.
    """

    name: str
    weight: LiveWeight
    spec: Any = None
    behind: LiveNormalizer | None = None
    before: list[LiveNormalizer] = field(default_factory=list)
    centred: bool = False
    next: MapTerm | None = None
    renormed: bool = False

    @property
    def scaling(self) -> LiveNormalizer | None:
        """The normalizer whose gains are multiplied to scale what the map puts out; None where its own weight is."""
        behind = self.behind
        return behind if behind is not None and (behind.free or not self.weight.free) else None

    @property
    def lever(self) -> object:
        """The tensors that are multiplied to scale it: two terms with one lever move together."""
        return self.weight.key if self.scaling is None else id(self.scaling.module)

    @property
    def levers(self) -> set[object]:
        """Everything that it moves with."""
        beside = [*self.before, *(() if self.behind is None else (self.behind,))]
        return {self.weight.key, *(id(norm.module) for norm in beside)}


@dataclass(eq=False, slots=True)
class ScaleTerm:
    """log max of a normalizer's channel scales, where no linear map takes them up."""

    norm: LiveNormalizer

    @property
    def lever(self) -> object:
        """The gains."""
        return id(self.norm.module)

    @property
    def levers(self) -> set[object]:
        """Everything that it moves with."""
        return {self.lever}


@dataclass(eq=False, slots=True)
class SpreadTerm:
    """log of 1/√(σ² + ε) of a normalizer that divides by its input's own spread; ``owner`` is the map that feeds it."""

    norm: LiveNormalizer
    owner: MapTerm | None = None


@dataclass(eq=False, slots=True)
class RowTerm:
    """log of the longest row of queries, keys or values; it moves with the norm of the map that makes them."""

    map: MapTerm
    norm: LiveNormalizer | None = None

    @property
    def levers(self) -> set[object]:
        """Everything that it moves with."""
        return {self.map.weight.key, *(() if self.norm is None else (id(self.norm.module),))}


Term = MapTerm | ScaleTerm | SpreadTerm | RowTerm


@dataclass(frozen=True, slots=True)
class Arm:
    """A chain from one value to a join: a constant and the terms along it."""

    source: int
    const: float
    terms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """A value reached by several chains, whose slopes add, or add in squares."""

    value: int
    arms: tuple[Arm, ...]
    disjoint: bool = False


@dataclass(slots=True)
class Plan:
    """The formula: ``joins`` in order of execution, the last one's value is the output.

    Attributes:
        terms: what the formula is made of.
        joins: see `Join`.
        sources: values of slope 1.
        uncontrolled: steps that no term stands for and why, in words.
        constants: of each step and each of its inputs that no term stands for, the natural log that it counts with.
        places: of each map, by its step: the path of the module, and which of its tensors is the weight.
        reads: where the program looked at the data, or at how many samples there are: others may take a path that the
            formula is not about.
    """

    terms: list[Term]
    joins: list[Join]
    sources: tuple[int, ...]
    uncontrolled: list[str]
    constants: dict[tuple[str, int], float] = field(default_factory=dict)
    places: dict[str, tuple[object, ...]] = field(default_factory=dict)
    reads: tuple[str, ...] = ()

    @property
    def maps(self) -> list[MapTerm]:
        """The linear maps, in order."""
        return [term for term in self.terms if isinstance(term, MapTerm)]

    @property
    def normalizers(self) -> list[LiveNormalizer]:
        """Every normalizer once."""
        found: dict[int, LiveNormalizer] = {}
        for term in self.terms:
            norms = [term.behind, *term.before] if isinstance(term, MapTerm) else [term.norm]
            found |= {id(norm): norm for norm in norms if norm is not None}
        return list(found.values())

    @property
    def shape(self) -> tuple[object, ...]:
        """Which chains it has, and of which terms: the same for two plans that differ in numbers alone."""
        joins = [(join.value, join.disjoint, [(arm.source, arm.terms) for arm in join.arms]) for join in self.joins]
        return joins, [type(term).__name__ for term in self.terms], set(self.constants)

    def arms(self) -> list[Arm]:
        """All chains, in the order of the joins."""
        return [arm for join in self.joins for arm in join.arms]

    def incidence(self) -> tuple[Tensor, Tensor]:
        """Return the matrix (arms, terms) and the constants, so that chains = matrix @ terms + constants."""
        arms = self.arms()
        matrix = torch.zeros(len(arms), len(self.terms), dtype=torch.float64)
        for row, arm in enumerate(arms):
            for term in arm.terms:
                matrix[row, term] += 1
        return matrix, torch.tensor([arm.const for arm in arms], dtype=torch.float64)

    def fold(self, chains: Sequence[N], join_all: Callable[[list[N], bool], N], zero: N) -> N:
        """Carry slopes from the sources to the output along the ``chains``."""
        slopes = dict.fromkeys(self.sources, zero)
        row = 0
        for join in self.joins:
            logs = []
            for arm in join.arms:
                logs.append(slopes[arm.source] + chains[row])
                row += 1
            slopes[join.value] = logs[0] if len(logs) == 1 else join_all(logs, join.disjoint)
        return slopes[self.joins[-1].value]


def joined_tensors(logs: list[Tensor], disjoint: bool) -> Tensor:
    """log Σ exp(l), or log √Σ exp(l)² for disjoint parts, of tensors."""
    stacked = torch.stack(logs)
    return torch.logsumexp(2 * stacked, 0) / 2 if disjoint else torch.logsumexp(stacked, 0)


def joined_floats(logs: list[float], disjoint: bool) -> float:
    """The same of plain numbers."""
    top, power = max(logs), 2 if disjoint else 1
    if math.isinf(top):
        return top
    return top + math.log(math.fsum(math.exp(power * (log - top)) for log in logs)) / power
