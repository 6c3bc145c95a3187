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
        shape = torch.broadcast_shapes(a.shape, b.shape)
        a, b = distinct(a, b)
        differ = (a != b) & (a != WILD) & (b != WILD)
        if bool(differ.any()):
            self.pairs.append(table([a[differ], b[differ]], self.count)[0])
        return torch.where(a == WILD, b, a).expand(shape)

    def along(self, labels: Tensor, dims: tuple[int, ...], keepdim: bool = False) -> Tensor:
        """Equate all labels along ``dims`` and drop these."""
        if not dims:
            return labels
        gone = {d % labels.ndim for d in dims}
        kept = [d for d in range(labels.ndim) if d not in gone]
        (small,) = distinct(labels)
        flat = small.permute(*kept, *sorted(gone)).reshape(*[small.shape[d] for d in kept], -1)
        first = flat.amax(-1)  # never wild unless all are
        self.same(first[..., None], flat)
        first = first.expand([labels.shape[d] for d in kept])
        return first.reshape([n if d in kept else 1 for d, n in enumerate(labels.shape)]) if keepdim else first

    def fix(self, labels: Tensor) -> None:
        """Set scales to 1."""
        self.same(labels, torch.tensor(FIXED))

    def combine(self, terms: list[tuple[float, Tensor]]) -> Tensor:
        """Labels of Σ coefficient · label, entry by entry; wild where any part is."""
        shape = torch.broadcast_shapes(*[t.shape for _, t in terms])
        parts = distinct(*[t for _, t in terms])
        kinds, where = table([p.reshape(-1) for p in parts], self.count)
        fixed = (kinds == FIXED).all(1)
        wild = (kinds == WILD).any(1)
        out = torch.where(wild, torch.tensor(WILD), torch.tensor(FIXED))
        factors = torch.tensor([f for f, _ in terms], dtype=torch.float64)
        plain = ((kinds != FIXED) * (factors != 1)).sum(1) == 0
        plain &= ((kinds != FIXED).sum(1) == 1) & ~wild  # one label by itself
        out[plain] = kinds[plain].sum(1)
        new = (~fixed & ~wild & ~plain).nonzero()[:, 0]
        made = self.fresh(len(new))
        out[new] = made
        for number, kind in zip(made.tolist(), kinds[new].tolist(), strict=True):
            row: dict[int, float] = defaultdict(float)
            row[number] -= 1.0
            for (factor, _), variable in zip(terms, kind, strict=True):
                row[variable] += factor
            self.rows.append(dict(row))
        return out[where].reshape(parts[0].shape).expand(shape)

    def solve(self) -> Solution:
        """All solutions of the equations."""
        roots = components(self.count, torch.cat([torch.empty(0, 2, dtype=torch.long), *self.pairs]))
        listed = roots.tolist()
        pivots = eliminate([_summed(row, listed) for row in self.rows])
        free = [r for r in torch.unique(roots).tolist() if r != FIXED and r not in pivots]
        return Solution(roots, pivots, free, _spread(self.count, pivots, free))


@dataclass(frozen=True, slots=True)
class Solution:
    """Variables in terms of the free ones: a root that is no pivot is free, a pivot is a sum of free roots."""

    roots: Tensor
    pivots: dict[int, dict[int, float]]
    free: list[int]
    spread: Tensor  # sparse, (variables, free)

    def values(self, chosen: Tensor) -> Tensor:
        """Every variable's value for values of the free ones, in the order of ``free``; differentiable."""
        return torch.sparse.mm(self.spread, chosen[:, None])[:, 0][self.roots]

    def moved_by(self) -> list[dict[int, float]]:
        """For every free variable, in the order of ``free``, the roots it moves and how much."""
        place = {f: i for i, f in enumerate(self.free)}
        moved: list[dict[int, float]] = [{f: 1.0} for f in self.free]
        for pivot, terms in self.pivots.items():
            for variable, factor in terms.items():
                moved[place[variable]][pivot] = factor
        return moved


def _spread(count: int, pivots: dict[int, dict[int, float]], free: list[int]) -> Tensor:
    """The matrix from free variables to all roots."""
    place = {f: i for i, f in enumerate(free)}
    entries = [(f, i, 1.0) for f, i in place.items()]
    entries += [(p, place[v], c) for p, terms in pivots.items() for v, c in terms.items()]
    where = torch.tensor([e[:2] for e in entries], dtype=torch.long).reshape(-1, 2).T
    what = torch.tensor([e[2] for e in entries], dtype=torch.float64)
    return torch.sparse_coo_tensor(where, what, (count, len(free)), check_invariants=True).coalesce()


def distinct(*labels: Tensor) -> tuple[Tensor, ...]:
    """Labels broadcast together, but a dimension along which none of them changes only once."""
    broadcast = torch.broadcast_tensors(*labels)
    for d in range(broadcast[0].ndim):
        if all(t.stride(d) == 0 for t in broadcast) and broadcast[0].shape[d] > 1:
            broadcast = tuple(t.narrow(d, 0, 1) for t in broadcast)
    return broadcast


def table(columns: list[Tensor], count: int) -> tuple[Tensor, Tensor]:
    """The different rows of a table of labels, and which of them every row is; faster than unique over rows."""
    code, kinds = columns[0] + 1, [columns[0]]
    for column in columns[1:]:
        _, code = torch.unique(code, return_inverse=True)
        code = code * (count + 1) + column + 1
        kinds.append(column)
    values, where = torch.unique(code, return_inverse=True)
    first = torch.empty(len(values), dtype=torch.long).scatter_(0, where, torch.arange(len(where)))
    return torch.stack([k[first] for k in kinds], 1), where


def components(count: int, pairs: Tensor) -> Tensor:
    """For every variable, the lowest one it is joined to."""
    roots = torch.arange(count)
    left, right = pairs.unbind(1)
    while True:
        a, b = roots[left], roots[right]
        low = torch.minimum(a, b)
        new = roots.clone().scatter_reduce_(0, torch.cat([a, b]), torch.cat([low, low]), "amin")
        new = new[new]
        if torch.equal(new, roots):
            return roots
        roots = new


def _summed(row: dict[int, float], roots: list[int]) -> dict[int, float]:
    total: dict[int, float] = defaultdict(float)
    for variable, factor in row.items():
        total[roots[variable]] += factor
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
