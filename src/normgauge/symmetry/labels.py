"""Labels: for every entry of every tensor, the number of the unknown that is its log scale."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.symmetry.graph import Graph, Node, Value
from normgauge.symmetry.torus import FIXED, WILD, Torus


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
        normalizers: what takes scales off: its kind, the name of its gain, the labels of its groups.
        normed: weights computed by weight normalization: name, direction v, length g, dimension.
        held: weights computed by spectral normalization: name, the weight divided, uvᵀ in its shape.
        skipped: operations that only compute what such a weight is divided by.
        unknown: operations without a statement; everything they touch keeps its scale.
        read: which entries of a weight that has a variable for each were read.
        strict: whether an ε fixes the scale it is added to.
    """

    torus: Torus
    graph: Graph
    made: dict[int, Tensor] = field(default_factory=dict)
    places: dict[int, tuple[str, Tensor]] = field(default_factory=dict)
    uses: dict[str, list[Use]] = field(default_factory=dict)
    base: dict[str, Tensor] = field(default_factory=dict)
    statistics: list[tuple[str, str, Tensor]] = field(default_factory=list)
    normalizers: list[tuple[str, str, Tensor]] = field(default_factory=list)
    normed: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    held: dict[str, tuple[str, Tensor]] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    unknown: dict[str, None] = field(default_factory=dict)
    read: dict[str, Tensor] = field(default_factory=dict)
    strict: bool = False

    def of(self, value: Value) -> Tensor:
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

    def rearranged(self, value: Value) -> tuple[str, Tensor] | None:
        """Name and places of a value that holds a weight's entries and nothing else."""
        if value.role == "state" and value.floating and value.index not in self.places:
            self.places[value.index] = (value.name, torch.arange(value.shape.numel()).reshape(value.shape))
        return self.places.get(value.index)

    def refuse(self, node: Node) -> None:
        """An operation without a statement: scale 1 for all it touches."""
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
        """Scale 1 for what ``node`` makes."""
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
