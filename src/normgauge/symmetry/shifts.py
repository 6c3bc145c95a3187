"""Which additions to the weights leave a network alone.

A number added to a bias runs through the network until a normalizer takes it off with the mean, a softmax with the
normalization of its row, or another bias takes it back. `follow` walks along: entry by entry it knows which number was
added, and says which of them are lost, taken back or seen.

Holds:  exactly, whatever ε is, for shifts; a pair of biases exactly too.
Source: THEORY 11.1 to 11.3; softmax is blind to what is added to a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.symmetry.graph import Node, Value
from normgauge.symmetry.labels import Labels
from normgauge.symmetry.operations import SOFTMAX, Normal, centres, mean_dims, moves, normalization, replay
from normgauge.symmetry.sites import (
    Fate,
    Follow,
    Site,
    bias_behind,
    from_softmax,
    number,
    other_input,
    producer,
    reading,
    sites_of,
)


@dataclass(slots=True)
class Carried:
    """What a value carries: which entry was added where, at which position, times a factor."""

    origin: Tensor
    position: Tensor
    factor: float


@dataclass(slots=True)
class Walk:
    """A walk from one site to the output."""

    labels: Labels
    fate: Fate
    carried: dict[int, Carried] = field(default_factory=dict)
    stop: Node | None = None  # the sum whose other side takes the shift back

    def run(self, site: Site) -> Fate:
        """Follow the shift from ``site``."""
        self.carried[site.value.index] = Carried(site.origin, site.position, 1.0)
        start = site.value.node.index if site.value.node is not None else -1
        for node in self.labels.graph.nodes:
            if node.index > start and any(v.index in self.carried for v in node.inputs):
                self.step(node)
        output = self.labels.graph.output
        if output is not None and output.index in self.carried:
            self.fate.spoil(self.carried[output.index].origin)
        self.fate.seen.discard(-1)
        return self.fate

    def step(self, node: Node) -> None:
        """What one operation makes of the shift."""
        active = [v for v in dict.fromkeys(node.inputs) if v.index in self.carried]
        first = self.carried[active[0].index]
        normal = normalization(node)
        if moves(node):
            self.move(node, active)
        elif node.op == "mean" and all(centres(reader) for reader in self.labels.graph.readers(node.outputs[0])):
            return  # taken off below
        elif centres(node):
            self.centre(first, mean_dims(node.args[1].node, first.origin.ndim))
        elif node.op == "bmm":
            for value in active:
                self.attend(node, value)
        elif len(active) > 1:
            self.spoil(active)
        elif node.op in SOFTMAX or node.op == "_log_softmax":
            self.centre(first, [node.args[1] % first.origin.ndim])
        elif node.op == "native_dropout":
            self.hand_on(node, first, first.factor)
        elif node.op in ("add", "sub") and node.kwargs.get("alpha", 1) == 1:
            self.add(node, active[0])
        elif node.op in ("mul", "div") and (by := number(node, active[0])) is not None:
            self.hand_on(node, first, first.factor * (1 / by if node.op == "div" else by))
        elif normal is not None and normal.source is active[0]:
            self.normalize(node, normal, first)
        elif node.op in ("mm", "addmm", "convolution"):
            self.linear(node, active[0])
        elif node.op == "mean":
            self.average(node, first)
        else:
            self.spoil(active)

    def spoil(self, active: list[Value]) -> None:
        """Say that what these values carry is seen."""
        for value in active:
            self.fate.spoil(self.carried[value.index].origin)

    def hand_on(self, node: Node, given: Carried, factor: float) -> None:
        """The result carries what the argument did."""
        out = node.outputs[0]
        self.carried[out.index] = Carried(given.origin.expand(out.shape), given.position.expand(out.shape), factor)

    def move(self, node: Node, active: list[Value]) -> None:
        """A copy, view or cut."""
        factors = {self.carried[v.index].factor for v in active}
        if len(factors) > 1:
            self.spoil(active)
            return
        origins = replay(node, {v.index: self.carried[v.index].origin for v in active})
        positions = replay(node, {v.index: self.carried[v.index].position for v in active})
        for out, origin, position in zip(node.outputs, origins, positions, strict=True):
            self.carried[out.index] = Carried(origin, position, factors.copy().pop())

    def add(self, node: Node, active: Value) -> None:
        """A sum hands the shift on, or takes it back where the walk was told to stop."""
        given = self.carried[active.index]
        if node is self.stop:
            self.take_back(node, active, given)
            return
        sign = -1.0 if node.op == "sub" and node.args[1] is active else 1.0
        self.hand_on(node, given, sign * given.factor)

    def take_back(self, node: Node, active: Value, given: Carried) -> None:
        """The other side of a sum has a bias of its own."""
        other, graph = other_input(node, active), self.labels.graph
        alone = other is not None and node.op == "add" and len(graph.readers(other)) == 1
        found = producer(self.labels, other) if alone else None
        if found is None:
            self.fate.spoil(given.origin)
            return
        name, places = found
        both = [t.expand(node.outputs[0].shape).reshape(-1) for t in (places, given.origin)]
        taken, origin = torch.unique(torch.stack(both, 1), dim=0).T
        shape = graph.state[name].shape
        table = any(s.name == name for n in graph.nodes if n.op == "embedding" for s in sites_of(self.labels, n))
        fits = len(torch.unique(taken)) == len(taken) <= shape.numel() and bool((taken >= 0).all())
        if not fits or (table and len(self.labels.uses.get(name, ())) > 1):
            self.fate.spoil(given.origin)
            return
        self.fate.anywhere = False
        taken = taken + torch.arange(0, shape.numel(), shape[1])[:, None] if table else taken  # columns, in every row
        self.fate.back.append(Follow(name, taken, origin, -given.factor))

    def normalize(self, node: Node, normal: Normal, given: Carried) -> None:
        """A mean over a group takes off what all its entries share; frozen statistics can be moved along."""
        if normal.frozen:
            self.fate.anywhere = False
            mean = normal.running[0]
            channels = self.constant(given.origin.transpose(0, 1).flatten(1))
            if channels is None or mean.role != "state":
                self.fate.spoil(given.origin)
            else:
                self.fate.back.append(Follow(mean.name, torch.arange(len(channels)), channels, given.factor))
            return
        if not normal.centres:
            self.fate.spoil(given.origin)
            return
        groups, positions = normal.groups(given.origin), normal.groups(given.position)
        self.lose(groups, positions)
        if normal.statistics:
            channels = groups[:, 0]
            self.fate.statistics.append(
                Follow(normal.statistics[0].name, torch.arange(len(channels)), channels, given.factor)
            )

    def centre(self, given: Carried, dims: list[int]) -> None:
        """x − mean(x), or a softmax: what all entries along ``dims`` share is taken off."""
        kept = [d for d in range(given.origin.ndim) if d not in dims]
        size = torch.Size(given.origin.shape[d] for d in dims).numel()
        self.lose(*(t.permute(*kept, *dims).reshape(-1, size) for t in (given.origin, given.position)))

    def lose(self, groups: Tensor, positions: Tensor) -> None:
        """One group a row: shifted as a whole, it does not matter; in part, it does."""
        part = (groups < 0).any(1)
        self.fate.spoil(groups[part])
        self.fate.together.append(torch.unique(groups[~part], dim=0))
        if not bool((positions == positions[:, :1]).all()):
            self.fate.anywhere = False

    def constant(self, rows: Tensor) -> Tensor | None:
        """The one entry of every row, or None."""
        return rows[:, 0] if bool((rows == rows[:, :1]).all()) and bool((rows >= 0).all()) else None

    def linear(self, node: Node, active: Value) -> None:
        """A matrix product: the bias behind it takes the shift back, or a normalizer loses it."""
        self.fate.anywhere = False
        given = self.carried[active.index]
        found = reading(self.labels, node, active)
        columns = self.constant(_columns(node, given.origin)) if found is not None else None
        if found is None or columns is None or (node.op == "convolution" and (any(node.args[4]) or node.args[8] != 1)):
            self.fate.spoil(given.origin)
            return
        name, matrix = found
        matrix = matrix if node.op != "convolution" else matrix.flatten(2)
        behind = bias_behind(self.labels, node)
        if behind is None:
            self.fate.spoil(given.origin)
            return
        bias, places, sign = behind
        if not bias:
            return
        through = Follow(bias, places, columns, sign * given.factor, (name, matrix))
        (self.fate.back if sign < 0 else self.fate.statistics).append(through)

    def attend(self, node: Node, active: Value) -> None:
        """Attention: rows of weights that sum to one hand a shift of the values on; a shift of the keys is lost."""
        given, (left, right) = self.carried[active.index], node.args[:2]
        if active is not right:
            self.fate.spoil(given.origin)
            return
        if from_softmax(left):
            rows = self.constant(given.origin.transpose(1, 2).reshape(-1, given.origin.shape[1]))
            self.fate.anywhere = False
            if rows is None:
                self.fate.spoil(given.origin)
                return
            self.hand_on(
                node, Carried(rows.reshape(given.origin.shape[0], 1, -1), given.position[:, :1], 1.0), given.factor
            )
            return
        if bool((given.origin == given.origin[:, :, :1]).all()) and self.reaches_softmax(node.outputs[0]):
            self.fate.anywhere = False
            return
        self.fate.spoil(given.origin)

    def reaches_softmax(self, scores: Value) -> bool:
        """Whether all that reads the scores (queries, keys) is a softmax over the keys."""
        marks = {
            scores.index: torch.arange(scores.shape[:2].numel()).reshape(*scores.shape[:2], 1).expand(scores.shape)
        }
        for node in self.labels.graph.nodes:
            active = [v for v in dict.fromkeys(node.inputs) if v.index in marks]
            if not active:
                continue
            mark = marks[active[0].index]
            if node.op in SOFTMAX:
                if not bool((mark == mark.narrow(node.args[1], 0, 1)).all()):
                    return False
            elif moves(node) and len(active) == 1:
                for out, moved in zip(node.outputs, replay(node, {active[0].index: mark}), strict=True):
                    marks[out.index] = moved
            elif node.op in ("add", "mul", "div", "masked_fill", "where") and len(active) == 1:
                if node.op in ("mul", "div") and number(node, active[0]) is None:
                    return False
                marks[node.outputs[0].index] = mark.expand(node.outputs[0].shape)
            else:
                return False
        return True

    def average(self, node: Node, given: Carried) -> None:
        """A mean over positions that carry the same shift."""
        first = given.origin
        for dim in mean_dims(node, given.origin.ndim):
            first = first.narrow(dim, 0, 1)
        if not bool((given.origin == first).all()):
            self.fate.spoil(given.origin)
            return
        self.fate.anywhere = False
        shape = node.outputs[0].shape
        self.carried[node.outputs[0].index] = Carried(
            first.reshape(shape), torch.zeros(shape, dtype=torch.long), given.factor
        )


def _columns(node: Node, origin: Tensor) -> Tensor:
    """Entries by input channel, one row each."""
    if node.op == "convolution":
        return origin.transpose(0, 1).flatten(1)
    return origin.reshape(-1, origin.shape[-1]).T
