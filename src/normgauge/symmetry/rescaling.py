"""Solutions of the scale equations as families of moves: one family for all channels that move the same weights."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

from normgauge.symmetry.generators import Generator, State
from normgauge.symmetry.labels import Labels
from normgauge.symmetry.torus import Solution

NAMES = {"batch": "BatchNorm", "layer": "LayerNorm", "group": "GroupNorm", "rms": "RMSNorm"}


class Exponents:
    """Log scales of every weight for given values of all variables."""

    def __init__(self, labels: Labels, solution: Solution, eps: dict[str, float]) -> None:
        self.labels, self.solution, self.eps = labels, solution, eps
        self.names = [n for n in labels.graph.state if n in labels.uses or n in labels.base]
        self.reads: dict[int, list[str]] = defaultdict(list)  # root -> weights whose scale it may change
        for name in self.names:
            for root in torch.unique(solution.roots[self.variables(name)]).tolist():
                self.reads[root].append(name)

    def variables(self, name: str) -> Tensor:
        """All variables in a weight's scales."""
        if name in self.labels.base:
            return self.labels.base[name]
        parts = [t.reshape(-1) for use in self.labels.uses[name] for t in (use.row, use.column)]
        return torch.cat(parts).clamp_min(0)

    def touched(self, free: int, moved: dict[int, float]) -> dict[str, tuple[float, float]]:
        """The weights one free variable scales, with the smallest and the largest exponent in each."""
        values = self.solution.values({free: 1.0})
        found = {}
        for name in dict.fromkeys(n for root in moved for n in self.reads.get(root, ())):
            ends = self.ends(name, values)
            if ends != (0.0, 0.0):
                found[name] = ends
        return found

    def ends(self, name: str, values: Tensor) -> tuple[float, float]:
        """Smallest and largest exponent of a weight's entries."""
        if name in self.labels.base:
            parts = [values[self.labels.base[name]]]
        else:
            parts = [difference(values, u.row, u.column) for u in self.labels.uses[name]]
        return min(float(p.min()) for p in parts), max(float(p.max()) for p in parts)

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


def difference(values: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Extremes of row − column, without writing out a large table where rows and columns are apart."""
    r, c = values[row.clamp_min(0)], values[column.clamp_min(0)]
    if r.ndim == 2 and min(r.shape) == 1 and min(c.shape) == 1:
        return torch.stack([r.min() - c.max(), r.max() - c.min()])
    return (r - c).reshape(-1)


def rescalings(labels: Labels, solution: Solution, eps: dict[str, float]) -> list[Generator]:
    """All rescalings, grouped by the weights they move."""
    exponents = Exponents(labels, solution, eps)
    groups: dict[tuple[tuple[str, ...], str], list[int]] = defaultdict(list)
    for free, moved in solution.moved_by().items():
        touched = exponents.touched(free, moved)
        if not touched:
            continue
        low, high = min(e[0] for e in touched.values()), max(e[1] for e in touched.values())
        kind = "pair" if low < -1e-12 and high > 1e-12 else "scale"
        order = tuple(n for n in exponents.names if n in touched)
        groups[order, kind].append(free)
    return [_family(exponents, names, kind, free) for (names, kind), free in groups.items()]


def _family(exponents: Exponents, names: tuple[str, ...], kind: str, free: list[int]) -> Generator:
    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        chosen = dict(zip(free, numbers.tolist(), strict=True))
        return exponents.apply(state, exponents.solution.values(chosen), names)

    what = "scale of what is normalized" if kind == "scale" else "scale handed from one side to the other"
    return Generator(
        kind, what, names, len(free), move, rows=_rows(exponents, names, free) if kind == "scale" else None
    )


def _rows(exponents: Exponents, names: tuple[str, ...], free: list[int]) -> tuple[int, int] | None:
    """(rows, dimension) if every variable scales one of ``rows`` equal cuts of all the weights, None otherwise."""
    shapes = [exponents.labels.graph.state[name].shape for name in names]
    rows = len(free)
    for dim in (0, 1):
        cuts = [dim if len(shape) > 1 else 0 for shape in shapes]
        if any(not shape or shape[cut] % rows for shape, cut in zip(shapes, cuts, strict=True)):
            continue
        values = exponents.solution.values({f: float(i + 1) for i, f in enumerate(free)})
        fits = []
        for name, shape, cut in zip(names, shapes, cuts, strict=True):
            got = exponents.of(name, values).reshape(shape).movedim(cut, 0).reshape(rows, -1)
            fits.append(bool((got == torch.arange(1.0, rows + 1, dtype=got.dtype)[:, None]).all()))
        if all(fits):
            return rows, dim
    return None
