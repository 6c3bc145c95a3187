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

from normgauge.geometry.symmetry.graph import GraphValue, Node
from normgauge.geometry.symmetry.labels import Labels
from normgauge.geometry.symmetry.operations import (
    SOFTMAX,
    NormalizerNode,
    mean_dims,
    normalization,
    only_moves,
    replay_entries,
    subtracts_mean,
)
from normgauge.geometry.symmetry.sites import (
    Fate,
    Follow,
    Site,
    bias_behind,
    from_softmax,
    other_input,
    positions,
    producer,
    scalar_factor,
    sites_of,
    weight_applied_to,
)


@dataclass(slots=True)
class Carried:
    """What a value carries: which entry was added where, at which position, times a factor."""

    origin: Tensor
    position: Tensor
    factor: float


@dataclass(slots=True)
class ShiftWalk:
    """A walk from one site to the output."""

    labels: Labels
    fate: Fate
    carried: dict[int, Carried] = field(default_factory=dict)
    stop: Node | None = None  # the sum whose other side takes the shift back

    def run(self, site: Site) -> Fate:
        """Follow the shift from ``site``."""
        self.carried[site.value.index] = Carried(site.origin, site.position, 1.0)
        for node, active in self.labels.graph.following(self.carried, site.value.node):
            self.step(node, active)
        output = self.labels.graph.output
        if output is not None and output.index in self.carried:
            self.fate.spoil(self.carried[output.index].origin)
        self.fate.seen.discard(-1)
        return self.fate

    def step(self, node: Node, active: list[GraphValue]) -> None:
        """Follow the shift through one operation."""
        first = self.carried[active[0].index]
        normal = normalization(node)
        if only_moves(node):
            self.move(node, active)
        elif node.op == "mean" and all(subtracts_mean(reader) for reader in self.labels.graph.readers(node.outputs[0])):
            return  # taken off below
        elif subtracts_mean(node):
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
        elif node.op in ("mul", "div") and (by := scalar_factor(node, active[0])) is not None:
            self.hand_on(node, first, first.factor * (1 / by if node.op == "div" else by))
        elif normal is not None and normal.source is active[0]:
            self.normalize(node, normal, first)
        elif node.op in ("mm", "addmm", "convolution"):
            self.linear(node, active[0])
        elif node.op == "mean":
            self.average(node, first)
        else:
            self.spoil(active)

    def spoil(self, active: list[GraphValue]) -> None:
        """Mark the shifts that these values carry as visible in the output."""
        for value in active:
            self.fate.spoil(self.carried[value.index].origin)

    def hand_on(self, node: Node, given: Carried, factor: float) -> None:
        """The result carries what the argument did."""
        out = node.outputs[0]
        self.carried[out.index] = Carried(given.origin.expand(out.shape), given.position.expand(out.shape), factor)

    def move(self, node: Node, active: list[GraphValue]) -> None:
        """A copy, view or cut."""
        given = {v.index: self.carried[v.index] for v in active}
        factor, *others = {carried.factor for carried in given.values()}
        if others:
            self.spoil(active)
            return
        origins = replay_entries(node, {index: carried.origin for index, carried in given.items()})
        places = replay_entries(node, {index: carried.position for index, carried in given.items()})
        for out, origin, position in zip(node.outputs, origins, places, strict=True):
            self.carried[out.index] = Carried(origin, position, factor)

    def add(self, node: Node, active: GraphValue) -> None:
        """A sum hands the shift on, or takes it back where the walk was told to stop."""
        given = self.carried[active.index]
        if node is self.stop:
            self.take_back(node, active, given)
        else:
            sign = -1.0 if node.op == "sub" and node.args[1] is active else 1.0
            self.hand_on(node, given, sign * given.factor)

    def take_back(self, node: Node, active: GraphValue, given: Carried) -> None:
        """Let a bias on the other side of a sum take the shift back."""
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

    def normalize(self, node: Node, normal: NormalizerNode, given: Carried) -> None:
        """A mean over a group takes off what all its entries share; frozen statistics can be moved along."""
        if normal.frozen:
            self.fate.anywhere = False
            channels = self.constant(given.origin.transpose(0, 1).flatten(1))
            if channels is None or normal.running[0].role != "state":
                self.fate.spoil(given.origin)
            else:
                mean = normal.running[0].name
                self.fate.back.append(Follow(mean, torch.arange(len(channels)), channels, given.factor))
        elif normal.centres:
            groups = normal.groups(given.origin)
            self.lose(groups, normal.groups(given.position))
            if normal.statistics:
                mean = normal.statistics[0].name
                self.fate.statistics.append(Follow(mean, torch.arange(len(groups)), groups[:, 0], given.factor))
        else:
            self.fate.spoil(given.origin)

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

    def linear(self, node: Node, active: GraphValue) -> None:
        """A matrix product: the bias behind it takes the shift back, or a normalizer loses it."""
        self.fate.anywhere = False
        given, found, behind = (
            self.carried[active.index],
            weight_applied_to(self.labels, node, active),
            bias_behind(self.labels, node),
        )
        columns = self.constant(_columns(node, given.origin)) if found is not None else None
        padded = node.op == "convolution" and (any(node.args[4]) or node.args[8] != 1)
        if found is None or columns is None or behind is None or padded:
            self.fate.spoil(given.origin)
        elif behind[0]:
            (name, matrix), (bias, places, sign) = found, behind
            matrix = matrix.flatten(2) if node.op == "convolution" else matrix
            through = Follow(bias, places, columns, sign * given.factor, (name, matrix))
            (self.fate.back if sign < 0 else self.fate.statistics).append(through)

    def attend(self, node: Node, active: GraphValue) -> None:
        """Attention: rows of weights that sum to one hand a shift of the values on; a shift of the keys is lost."""
        given, (left, right) = self.carried[active.index], node.args[:2]
        origin = given.origin
        if active is right and from_softmax(left):
            self.fate.anywhere = False
            rows = self.constant(origin.transpose(1, 2).reshape(-1, origin.shape[1]))
            if rows is None:
                self.fate.spoil(origin)
            else:
                rows = rows.reshape(origin.shape[0], 1, -1)
                self.hand_on(node, Carried(rows, given.position[:, :1], 1.0), given.factor)
        elif active is right and bool((origin == origin[:, :, :1]).all()) and self.reaches_softmax(node.outputs[0]):
            self.fate.anywhere = False
        else:
            self.fate.spoil(origin)

    def reaches_softmax(self, scores: GraphValue) -> bool:
        """Whether all that reads the scores (queries, keys) is a softmax over the keys."""
        marks = {scores.index: positions(scores, -1)}
        for node, (value, *others) in self.labels.graph.following(marks):
            mark, scaled = marks[value.index], node.op in ("mul", "div") and scalar_factor(node, value) is not None
            if node.op in SOFTMAX:
                if not bool((mark == mark.narrow(node.args[1], 0, 1)).all()):
                    return False
            elif only_moves(node) and not others:
                for out, moved in zip(node.outputs, replay_entries(node, {value.index: mark}), strict=True):
                    marks[out.index] = moved
            elif (scaled or node.op in ("add", "masked_fill", "where")) and not others:
                marks[node.outputs[0].index] = mark.expand(node.outputs[0].shape)
            else:
                return False
        return True

    def average(self, node: Node, given: Carried) -> None:
        """A mean over positions that carry the same shift."""
        first, shape = given.origin, node.outputs[0].shape
        for dim in mean_dims(node, given.origin.ndim):
            first = first.narrow(dim, 0, 1)
        if not bool((given.origin == first).all()):
            self.fate.spoil(given.origin)
        else:
            self.fate.anywhere = False
            nowhere = torch.zeros(shape, dtype=torch.long)
            self.carried[node.outputs[0].index] = Carried(first.reshape(shape), nowhere, given.factor)


def _columns(node: Node, origin: Tensor) -> Tensor:
    """Entries by input channel, one row each."""
    if node.op == "convolution":
        return origin.transpose(0, 1).flatten(1)
    return origin.reshape(-1, origin.shape[-1]).T
