"""Unknown logarithms of scales and the linear equations between them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import Tensor

WILD = -1  # the label of an entry that is 0 or infinite: any scale suits it
FIXED = 0  # the variable that is zero: a scale of 1


@dataclass(slots=True)
class Torus:
    """Variables, equalities between two of them, and equations between more.

    Labels are integer tensors: the entry of a tensor carries the number of the variable that is its log scale.
    """

    count: int = 1
    pairs: list[Tensor] = field(default_factory=list)
    rows: list[dict[int, float]] = field(default_factory=list)

    def fresh(self, count: int) -> Tensor:
        """``count`` new variables."""
        self.count += count
        return torch.arange(self.count - count, self.count)

    def same(self, a: Tensor, b: Tensor) -> Tensor:
        """Equate labels entry by entry; returns one of both, the known one where the other is wild."""
        a, b = torch.broadcast_tensors(a, b)
        differ = (a != b) & (a != WILD) & (b != WILD)
        if bool(differ.any()):
            self.pairs.append(torch.unique(torch.stack([a[differ], b[differ]], 1), dim=0))
        return torch.where(a == WILD, b, a)

    def along(self, labels: Tensor, dims: tuple[int, ...], keepdim: bool = False) -> Tensor:
        """Equate all labels along ``dims`` and drop these."""
        if not dims:
            return labels
        kept = [d for d in range(labels.ndim) if d not in {x % labels.ndim for x in dims}]
        flat = labels.permute(*kept, *[d for d in range(labels.ndim) if d not in kept])
        flat = flat.reshape(*[labels.shape[d] for d in kept], -1)
        first = flat.amax(-1)  # never wild unless all are
        self.same(first[..., None], flat)
        if keepdim:
            first = first.reshape([n if d in kept else 1 for d, n in enumerate(labels.shape)])
        return first

    def fix(self, labels: Tensor) -> None:
        """Set scales to 1."""
        self.same(labels, torch.zeros_like(labels))

    def combine(self, terms: list[tuple[float, Tensor]]) -> Tensor:
        """Labels of Σ coefficient · label, entry by entry; wild where any part is."""
        parts = torch.broadcast_tensors(*[t for _, t in terms])
        shape = parts[0].shape
        table = torch.stack([p.reshape(-1) for p in parts], 1)
        kinds, where = torch.unique(table, dim=0, return_inverse=True)
        fixed = (kinds == FIXED).all(1)
        wild = (kinds == WILD).any(1)
        out = torch.where(wild, torch.tensor(WILD), torch.tensor(FIXED))
        new = (~fixed & ~wild).nonzero()[:, 0]
        made = self.fresh(len(new))
        out[new] = made
        for number, kind in zip(made.tolist(), kinds[new].tolist(), strict=True):
            row: dict[int, float] = defaultdict(float)
            row[number] -= 1.0
            for (factor, _), variable in zip(terms, kind, strict=True):
                row[variable] += factor
            self.rows.append(dict(row))
        return out[where].reshape(shape)

    def solve(self) -> Solution:
        """All solutions of the equations."""
        parent = list(range(self.count))

        def find(i: int) -> int:
            while parent[i] != i:
                parent[i] = parent[parent[i]]
                i = parent[i]
            return i

        for pairs in self.pairs:
            for i, j in pairs.tolist():
                a, b = find(i), find(j)
                parent[max(a, b)] = min(a, b)
        roots = torch.tensor([find(i) for i in range(self.count)])
        pivots = eliminate([{int(roots[v]): 0.0 for v in row} | _summed(row, roots) for row in self.rows])
        return Solution(roots, pivots)


@dataclass(frozen=True, slots=True)
class Solution:
    """Variables in terms of the free ones: a root that is no pivot is free, a pivot is a sum of free roots."""

    roots: Tensor
    pivots: dict[int, dict[int, float]]

    @property
    def free(self) -> list[int]:
        """The free variables."""
        return [r for r in torch.unique(self.roots).tolist() if r != FIXED and r not in self.pivots]

    def values(self, chosen: dict[int, float]) -> Tensor:
        """Every variable's value when the free ones have those of ``chosen`` and the others are zero."""
        value = torch.zeros(len(self.roots), dtype=torch.float64)
        for variable, number in chosen.items():
            value[variable] = number
        for pivot, terms in self.pivots.items():
            value[pivot] = sum(factor * chosen.get(v, 0.0) for v, factor in terms.items())
        return value[self.roots]

    def moved_by(self) -> dict[int, dict[int, float]]:
        """For every free variable, the roots it moves and how much."""
        moved: dict[int, dict[int, float]] = {f: {f: 1.0} for f in self.free}
        for pivot, terms in self.pivots.items():
            for variable, factor in terms.items():
                moved[variable][pivot] = factor
        return moved


def _summed(row: dict[int, float], roots: Tensor) -> dict[int, float]:
    total: dict[int, float] = defaultdict(float)
    for variable, factor in row.items():
        total[int(roots[variable])] += factor
    return dict(total)


def eliminate(rows: list[dict[int, float]]) -> dict[int, dict[int, float]]:
    """Solve Σ factor·variable = 0 for one variable of each equation; those left over are free.

    Returns:
        For each solved variable, what it is in terms of the free ones.
    """
    solved: dict[int, dict[int, float]] = {}
    used_in: dict[int, set[int]] = defaultdict(set)  # which solved variables mention a free one
    for row in rows:
        current: dict[int, float] = defaultdict(float)
        for variable, factor in row.items():
            if variable == FIXED or factor == 0:
                continue
            for v, f in solved.get(variable, {variable: 1.0}).items():
                current[v] += factor * f
        current = {v: f for v, f in current.items() if abs(f) > 1e-9}
        if not current:
            continue
        pivot = max(current)  # the youngest: made by an operation, rather than a weight's own
        factor = current.pop(pivot)
        solution = {v: -f / factor for v, f in current.items()}
        for other in used_in.pop(pivot, set()):
            weight = solved[other].pop(pivot)
            for v, f in solution.items():
                solved[other][v] = solved[other].get(v, 0.0) + weight * f
                if abs(solved[other][v]) < 1e-9:
                    del solved[other][v]
                    used_in[v].discard(other)
                else:
                    used_in[v].add(other)
        solved[pivot] = solution
        for v in solution:
            used_in[v].add(pivot)
    return solved
