"""Labels: for every entry of every tensor, the number of the unknown that is its log scale; and the equations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.geometry.symmetry.graph import GraphValue, Node, OperationGraph

WILD = -1  # the label of an entry that is 0 or infinite: any scale suits it
FIXED = 0  # the variable that is zero: a scale of 1


@dataclass(slots=True)
class Torus:
    """Variables, equalities between two of them, and equations between more.

    Labels are integer tensors: the entry of a tensor carries the number of the variable that is its log scale.
    """

    count: int = 1
    pairs: list[Tensor] = field(default_factory=list)
    rows: list[list[tuple[int, float]]] = field(default_factory=list)

    def fresh(self, count: int) -> Tensor:
        """Make ``count`` new variables and return their numbers."""
        self.count += count
        return torch.arange(self.count - count, self.count)

    def same(self, a: Tensor, b: Tensor) -> Tensor:
        """Equate labels entry by entry; returns one of both, the known one where the other is wild."""
        shape = torch.broadcast_shapes(a.shape, b.shape)
        a, b = distinct(a, b)
        differ = (a != b) & (a != WILD) & (b != WILD)
        if bool(differ.any()):
            self.pairs.append(distinct_rows([a[differ], b[differ]], self.count)[0])
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
        """Fix the scales with these labels at 1."""
        self.same(labels, torch.tensor(FIXED))

    def combine(self, terms: list[tuple[float, Tensor]]) -> Tensor:
        """Labels of Σ coefficient · label, entry by entry; wild where any part is."""
        shape = torch.broadcast_shapes(*[t.shape for _, t in terms])
        parts = distinct(*[t for _, t in terms])
        kinds, where = distinct_rows([p.reshape(-1) for p in parts], self.count)
        fixed, wild = (kinds == FIXED).all(1), (kinds == WILD).any(1)
        out = torch.where(wild, torch.tensor(WILD), torch.tensor(FIXED))
        factors = torch.tensor([f for f, _ in terms], dtype=torch.float64)
        plain = ((kinds != FIXED) * (factors != 1)).sum(1) == 0
        plain &= ((kinds != FIXED).sum(1) == 1) & ~wild  # one label by itself
        out[plain] = kinds[plain].sum(1)
        new = (~fixed & ~wild & ~plain).nonzero()[:, 0]
        made = self.fresh(len(new))
        out[new] = made
        for number, kind in zip(made.tolist(), kinds[new].tolist(), strict=True):
            self.rows.append([(number, -1.0), *zip(kind, factors.tolist(), strict=True)])
        return out[where].reshape(parts[0].shape).expand(shape)

    def solve(self) -> Solution:
        """All solutions of the equations."""
        roots = components(self.count, torch.cat([torch.empty(0, 2, dtype=torch.long), *self.pairs]))
        listed = roots.tolist()
        pivots = eliminate([(listed[variable], factor) for variable, factor in row] for row in self.rows)
        free = [r for r in torch.unique(roots).tolist() if r != FIXED and r not in pivots]
        return Solution(roots, free, _spread(self.count, pivots, free))


@dataclass(frozen=True, slots=True)
class Solution:
    """Variables in terms of the free ones: a root that is no pivot is free, a pivot is a sum of free roots."""

    roots: Tensor
    free: list[int]
    spread: Tensor  # sparse, (variables, free)

    def values(self, chosen: Tensor) -> Tensor:
        """Every variable's value for values of the free ones, in the order of ``free``; differentiable."""
        return torch.sparse.mm(self.spread, chosen[:, None])[:, 0][self.roots]

    def moved_by(self) -> list[dict[int, float]]:
        """For every free variable, in the order of ``free``, the roots it moves and how much."""
        moved: list[dict[int, float]] = [{} for _ in self.free]
        for (root, place), factor in zip(self.spread.indices().T.tolist(), self.spread.values().tolist(), strict=True):
            moved[place][root] = factor
        return moved


def _spread(count: int, pivots: dict[int, dict[int, float]], free: list[int]) -> Tensor:
    """The matrix from free variables to all roots."""
    place = {f: i for i, f in enumerate(free)}
    entries = [(f, i, 1.0) for f, i in place.items()]
    entries += [(p, place[v], c) for p, terms in pivots.items() for v, c in terms.items()]
    where = torch.tensor([e[:2] for e in entries], dtype=torch.long).reshape(-1, 2).T
    what = torch.tensor([e[2] for e in entries], dtype=torch.float64)
    with torch.sparse.check_sparse_tensor_invariants(True):  # torch 2.11 warns of whoever leaves this unsaid
        return torch.sparse_coo_tensor(where, what, (count, len(free))).coalesce()


def distinct(*labels: Tensor) -> tuple[Tensor, ...]:
    """Labels broadcast together, but a dimension along which none of them changes only once."""
    broadcast = torch.broadcast_tensors(*labels)
    for d in range(broadcast[0].ndim):
        if all(t.stride(d) == 0 for t in broadcast) and broadcast[0].shape[d] > 1:
            broadcast = tuple(t.narrow(d, 0, 1) for t in broadcast)
    return broadcast


def distinct_rows(columns: list[Tensor], count: int) -> tuple[Tensor, Tensor]:
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


def eliminate(rows: Iterable[Iterable[tuple[int, float]]]) -> dict[int, dict[int, float]]:
    """Solve Σ factor·variable = 0 for one variable of each equation; those left over are free.

    Returns:
        For each solved variable, what it is in terms of the free ones.
    """
    solved: dict[int, dict[int, float]] = {}
    used_in: dict[int, set[int]] = defaultdict(set)  # which solved variables mention a free one
    for row in rows:
        current: dict[int, float] = defaultdict(float)
        for variable, factor in row:
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


@dataclass(frozen=True, slots=True)
class Use:
    """A weight in a matrix product: entry ``places[j]`` of it has log scale row − column."""

    places: Tensor
    row: Tensor
    column: Tensor


@dataclass(slots=True)
class Labels:
    """Labels of all values of a graph.

    Attributes:
        torus: the equations.
        graph: what is labelled.
        places: for a value that is a rearranged weight, its name and the place of every entry in it.
        uses: how matrix products use each weight.
        base: the first variable of a weight whose entries have a scale each.
        statistics: what every normalizer with running statistics sees: names of mean and variance, label by channel.
        normed: weights computed by weight normalization: name, direction v, length g, dimension.
        held: weights computed by spectral normalization: name, the weight divided, uvᵀ in its shape.
        skipped: operations that only compute what such a weight is divided by.
        unknown: operations without a statement; everything they touch keeps its scale.
        read: which entries of a weight that has a variable for each were read.
        strict: whether an ε fixes the scale it is added to.
    """

    torus: Torus
    graph: OperationGraph
    made: dict[int, Tensor] = field(default_factory=dict)
    places: dict[int, tuple[str, Tensor]] = field(default_factory=dict)
    uses: dict[str, list[Use]] = field(default_factory=dict)
    base: dict[str, Tensor] = field(default_factory=dict)
    statistics: list[tuple[str, str, Tensor]] = field(default_factory=list)
    normed: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    held: dict[str, tuple[str, Tensor]] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    unknown: dict[str, None] = field(default_factory=dict)
    read: dict[str, Tensor] = field(default_factory=dict)
    strict: bool = False

    def of(self, value: GraphValue) -> Tensor:
        """The labels of a value; a weight that is used entry by entry gets a variable for each."""
        if value.index in self.made:
            return self.made[value.index]
        rearranged = self.rearranged(value)
        if rearranged is not None:
            name, places = rearranged
            if name not in self.base:
                size = self.graph.state[name].shape.numel()
                self.base[name] = self.torus.fresh(size)
                self.read[name] = torch.zeros(size, dtype=torch.bool)
            self.read[name][places.reshape(-1)] = True
            return self.base[name][places]
        if value.role == "constant" and value.tensor is not None and value.floating:
            free = (value.tensor == 0) | torch.isinf(value.tensor)
            return torch.where(free, torch.tensor(WILD), torch.tensor(FIXED))
        return torch.tensor(FIXED).expand(value.shape)

    def rearranged(self, value: GraphValue | None) -> tuple[str, Tensor] | None:
        """Name and places of a value that holds a weight's entries and nothing else."""
        if value is None:
            return None
        if value.role == "state" and value.floating and value.index not in self.places:
            self.places[value.index] = (value.name, torch.arange(value.shape.numel()).reshape(value.shape))
        return self.places.get(value.index)

    def single(self, name: str) -> bool:
        """Whether a weight is used in one matrix product and nowhere else."""
        return len(self.uses.get(name, ())) == 1 and name not in self.base

    def give(self, node: Node, labels: Tensor) -> None:
        """Set the labels of the output of ``node``."""
        self.made[node.outputs[0].index] = labels.expand(node.outputs[0].shape)

    def stand_in(self, node: Node, name: str, shape: torch.Size, places: Tensor) -> None:
        """Treat the output of ``node`` as a weight with a name of its own."""
        self.graph.state[name] = GraphValue(-1 - len(self.graph.state), shape, name, "state")
        self.fixed(node)
        self.places[node.outputs[0].index] = (name, places)

    def refuse(self, node: Node) -> None:
        """Fix all scales that an operation touches at 1, because nothing is known about it."""
        if any(self.graph.weighed(v) for v in node.inputs):
            self.unknown[f"{node.op} into part of a tensor" if node.mixed else node.op] = None
        self.pin(node)

    def pin(self, node: Node) -> None:
        """Allow only the scale 1 in what ``node`` reads and makes."""
        for value in node.inputs:
            if value.floating:
                self.torus.fix(self.of(value))
        self.fixed(node)

    def fixed(self, node: Node) -> None:
        """Fix the scale of the outputs of ``node`` at 1."""
        for out in node.outputs:
            self.made[out.index] = torch.tensor(FIXED).expand(out.shape)

    def tie_unread(self) -> None:
        """Entries that no batch of this shape reads (positions beyond its length) go with their column."""
        for name, base in self.base.items():
            read = self.read[name]
            for use in self.uses.get(name, ()):
                read[use.places.reshape(-1)] = True
            if bool(read.all()):
                continue
            last = self.graph.state[name].shape[-1]
            table, done = base.reshape(-1, last), read.reshape(-1, last)
            first = table[done.int().argmax(0), torch.arange(last)]
            target = torch.where(done.any(0), first, torch.tensor(FIXED)).expand(table.shape)
            self.torus.same(table[~done], target[~done])
