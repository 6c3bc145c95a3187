"""Solutions of the scale equations as families of moves: one family for all channels that move the same weights."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.errors import InputError
from normgauge.geometry.symmetry.generators import Generator, State
from normgauge.geometry.symmetry.groups import ScaleFree, vectors
from normgauge.geometry.symmetry.labels import FIXED, Labels, Solution, distinct_rows


@dataclass(frozen=True, slots=True)
class Span:
    """The variables in a weight's exponents: rows − columns, all of them (``full``) or pair by pair."""

    rows: Tensor
    columns: Tensor
    full: bool

    def ends(self, values: Tensor) -> tuple[float, float]:
        """The smallest and the largest exponent."""
        r, c = values[self.rows], values[self.columns]
        if self.full:
            return float(r.min() - c.max()), float(r.max() - c.min())
        return float((r - c).min()), float((r - c).max())


class Exponents:
    """Log scales of every weight for given values of all variables."""

    def __init__(self, labels: Labels, solution: Solution, eps: dict[str, float]) -> None:
        self.labels, self.solution, self.eps = labels, solution, eps
        self.names = [n for n in labels.graph.state if n in labels.uses or n in labels.base]
        self.spans = {name: self.span(name) for name in self.names}
        self.reads: dict[int, list[str]] = defaultdict(list)  # root -> weights whose scale it may change
        for name, spans in self.spans.items():
            for root in torch.unique(torch.cat([t for s in spans for t in (s.rows, s.columns)])).tolist():
                self.reads[root].append(name)

    def span(self, name: str) -> list[Span]:
        """The roots in a weight's exponents, each once."""
        roots = self.solution.roots
        if name in self.labels.base:
            return [Span(torch.unique(roots[self.labels.base[name]]), torch.tensor([FIXED]), True)]
        found = []
        for use in self.labels.uses[name]:
            r, c = roots[use.row.clamp_min(0)], roots[use.column.clamp_min(0)]
            if r.ndim == 2 and min(r.shape) == 1 and min(c.shape) == 1:
                found.append(Span(torch.unique(r), torch.unique(c), True))
            else:
                both = distinct_rows([t.reshape(-1) for t in torch.broadcast_tensors(r, c)], len(roots))[0]
                found.append(Span(both[:, 0], both[:, 1], False))
        return found

    def touched(self, moved: dict[int, float], buffer: Tensor) -> dict[str, tuple[float, float]]:
        """The weights one free variable scales, with the smallest and the largest exponent in each.

        Args:
            moved: the roots it moves and how much.
            buffer: zeros, one for each variable; zeros again afterwards.
        """
        where = torch.tensor(list(moved))
        buffer[where] = torch.tensor(list(moved.values()), dtype=torch.float64)
        found = {}
        for name in dict.fromkeys(n for root in moved for n in self.reads.get(root, ())):
            ends = [span.ends(buffer) for span in self.spans[name]]
            low, high = min(e[0] for e in ends), max(e[1] for e in ends)
            if (low, high) != (0.0, 0.0):
                found[name] = (low, high)
        buffer[where] = 0.0
        return found

    def every(self) -> list[dict[str, tuple[float, float]]]:
        """What `touched` says for every free variable."""
        buffer = torch.zeros(len(self.solution.roots), dtype=torch.float64)
        return [self.touched(moved, buffer) for moved in self.solution.moved_by()]

    def values(self, free: list[int], numbers: Tensor) -> Tensor:
        """All variables when some free ones (by position) have values and the others are zero."""
        zeros = torch.zeros(len(self.solution.free), dtype=torch.float64)
        return self.solution.values(zeros.index_copy(0, torch.tensor(free), numbers))

    def of(self, name: str, values: Tensor) -> Tensor:
        """The exponent of every entry of a weight."""
        if name in self.labels.base:
            return values[self.labels.base[name]]
        flat = torch.zeros(self.labels.graph.state[name].shape.numel(), dtype=torch.float64)
        for use in self.labels.uses[name]:
            flat[use.places.reshape(-1)] = (
                (values[use.row.clamp_min(0)] - values[use.column.clamp_min(0)]).expand(use.places.shape).reshape(-1)
            )
        return flat

    def apply(self, state: State, values: Tensor, names: tuple[str, ...]) -> dict[str, Tensor]:
        """Weights and running statistics after a rescaling."""
        after = {}
        for name in names:
            factor = self.of(name, values).exp().reshape(state[name].shape)
            eps = self.eps.get(name, 0.0)
            after[name] = (state[name] + eps) * factor - eps
        for mean, variance, label in self.labels.statistics:
            factor = values[label.clamp_min(0)].exp()
            if bool((factor != 1).any()):
                eps = self.eps.get(variance, 0.0)
                after[mean] = state[mean] * factor
                after[variance] = (state[variance] + eps) * factor.square() - eps
        return after


def rescalings(labels: Labels, solution: Solution, eps: dict[str, float]) -> list[Generator]:
    """All rescalings, grouped by the weights they move."""
    exponents = Exponents(labels, solution, eps)
    groups: dict[tuple[tuple[str, ...], str], list[int]] = defaultdict(list)
    for free, touched in enumerate(exponents.every()):
        if touched:
            kind = "pair" if both_ways(touched) else "scale"
            groups[tuple(n for n in exponents.names if n in touched), kind].append(free)
    return [_family(exponents, names, kind, free) for (names, kind), free in groups.items()]


def both_ways(touched: dict[str, tuple[float, float]]) -> bool:
    """Whether some weights grow while others shrink."""
    return min(low for low, _ in touched.values()) < -1e-12 and max(high for _, high in touched.values()) > 1e-12


def _family(exponents: Exponents, names: tuple[str, ...], kind: str, free: list[int]) -> Generator:
    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        return exponents.apply(state, exponents.values(free, numbers), names)

    if kind == "pair":
        return Generator(kind, "scale handed from one side to the other", names, len(free), move)
    return Generator(kind, "scale of what is normalized", names, len(free), move, _rows(exponents, names, free))


def _rows(exponents: Exponents, names: tuple[str, ...], free: list[int]) -> tuple[int, int] | None:
    """(rows, dimension) if every variable scales one of ``rows`` equal cuts of all the weights, None otherwise."""
    numbers = torch.arange(1.0, len(free) + 1, dtype=torch.float64)
    values, shapes = exponents.values(free, numbers), exponents.labels.graph.state
    scales = {name: exponents.of(name, values).reshape(shapes[name].shape) for name in names}
    for dim in (0, 1):
        with suppress(InputError):  # where a weight cannot be cut so
            if bool((vectors(ScaleFree(names, len(free), dim), scales) == numbers[:, None]).all()):
                return len(free), dim
    return None
