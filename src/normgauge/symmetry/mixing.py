"""Channels between two matrices may be mixed: A on one side, A⁻¹ on the other.

Where only copies, biases and the weighted means of attention stand between two matrices, not only scales but any
invertible matrix can be put in between: for queries and keys of a head Q → AQ, K → A⁻ᵀK; for values and the output
projection V → AV, O → OA⁻¹; for two linear layers in a row W₁ → AW₁, W₂ → W₂A⁻¹. The diagonal of A is a rescaling and
counted there; here are the n² − n directions beside it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.symmetry.generators import Generator, State, put, taken
from normgauge.symmetry.graph import Graph, Node, Value
from normgauge.symmetry.labels import Labels
from normgauge.symmetry.operations import moves, replay
from normgauge.symmetry.sites import applied, from_softmax, number, reading

Channel = tuple[str, int]  # a weight's name and one of its output channels


@dataclass(frozen=True, slots=True)
class Part:
    """Entries of a weight in which one dimension is the channels: places (…, channels)."""

    name: str
    places: Tensor
    inverse: bool  # A⁻¹ (or, for keys, A⁻ᵀ: in both cases the entries are multiplied by A⁻¹ from the right)


@dataclass(slots=True)
class Tracker:
    """Follows the output channels of every matrix product at once."""

    graph: Graph
    labels: Labels
    carried: dict[int, tuple[str, Tensor, Tensor]] = field(default_factory=dict)  # value -> weight, channel, block
    spoiled: set[Channel] = field(default_factory=set)
    ends: list[tuple[str, Tensor, Tensor, str, Tensor]] = field(default_factory=list)
    scores: list[tuple[tuple[str, Tensor], tuple[str, Tensor]]] = field(default_factory=list)
    biases: dict[str, list[tuple[str, Tensor]]] = field(default_factory=lambda: defaultdict(list))
    matrices: dict[str, Tensor] = field(default_factory=dict)

    def spoil(self, value: Value) -> None:
        """Channels that meet something else than a matrix."""
        name, channel, _ = self.carried[value.index]
        self.spoiled.update((name, c) for c in torch.unique(channel).tolist() if c >= 0)

    def run(self) -> None:
        """Walk the graph once."""
        for node in self.graph.nodes:
            for value in dict.fromkeys(v for v in node.inputs if v.index in self.carried):
                self.read(node, value)
            self.start(node)
        if self.graph.output is not None and self.graph.output.index in self.carried:
            self.spoil(self.graph.output)

    def start(self, node: Node) -> None:
        """A matrix product makes new channels."""
        found = applied(self.labels, node)
        if found is None:
            return
        name, matrix = found
        if len(self.labels.uses.get(name, ())) != 1 or name in self.labels.base:
            return
        self.matrices[name] = matrix
        out = node.outputs[0]
        size = matrix.shape[-1]
        axis = 1 if node.op == "convolution" else -1
        channel = torch.arange(size).reshape([-1] + [1] * (len(out.shape) - 2)) if axis == 1 else torch.arange(size)
        self.carried[out.index] = (name, channel.expand(out.shape), torch.zeros(out.shape, dtype=torch.long))
        own = node.args[0] if node.op == "addmm" else node.args[2] if node.op == "convolution" else None
        if own is not None:
            self.bias(out, own)

    def bias(self, value: Value, bias: Value) -> None:
        """A bias moves with its channels."""
        name = self.carried[value.index][0]
        found = self.labels.rearranged(bias)
        if found is None or found[1].ndim != 1 or found[1].shape[0] != self.matrices[name].shape[-1]:
            self.spoil(value)
            return
        self.biases[name].append(found)

    def read(self, node: Node, value: Value) -> None:
        """What an operation does with the channels it reads."""
        name, channel, block = self.carried[value.index]
        active = [v for v in dict.fromkeys(node.inputs) if v.index in self.carried]
        out = node.outputs[0]
        if moves(node) and len(active) == 1:
            moved = replay(node, {value.index: channel}), replay(node, {value.index: block})
            for result, c, b in zip(node.outputs, *moved, strict=True):
                self.carried[result.index] = (name, c, b)
        elif node.op in ("mul", "div") and number(node, value) is not None:
            self.carried[out.index] = (name, channel, block)
        elif node.op == "add" and len(active) == 1 and self.labels.rearranged(_other(node, value)) is not None:
            self.carried[out.index] = (name, channel, block)
            self.bias(out, _other(node, value))
        elif node.op == "bmm" and node.args[1] is value and from_softmax(node.args[0]):
            first = channel[:, :1]
            if not bool((channel == first).all()):
                self.spoil(value)
                return
            head = (first.amin(-1, keepdim=True) + 1).expand(out.shape)
            self.carried[out.index] = (name, first.expand(out.shape), head)
        elif node.op == "bmm" and len(active) == 2:
            self.score(node, value)
        elif node.op in ("mm", "addmm", "convolution") and len(active) == 1:
            self.end(node, value)
        else:
            self.spoil(value)

    def score(self, node: Node, value: Value) -> None:
        """Queries meet keys."""
        left, right = node.args[:2]
        if value is not right:
            return  # both sides are looked at once, with the second
        (a, q, _), (b, k, _) = self.carried[left.index], self.carried[right.index]
        if bool((q == q[:, :1]).all()) and bool((k == k[:, :, :1]).all()):
            for queries, keys in torch.unique(torch.stack([q[:, 0], k[:, :, 0]], 1), dim=0):
                self.scores.append(((a, queries), (b, keys)))
        else:
            self.spoil(left)
            self.spoil(right)

    def end(self, node: Node, value: Value) -> None:
        """A matrix reads the channels."""
        name, channel, block = self.carried[value.index]
        found = reading(self.labels, node, value)
        if node.op == "convolution":
            channel, block = (t.movedim(1, -1).flatten(0, -2) for t in (channel, block))
        single = found is not None and len(self.labels.uses.get(found[0], ())) == 1 and found[0] not in self.labels.base
        grouped = node.op == "convolution" and node.args[8] != 1
        if not single or grouped or not bool((channel == channel[:1]).all()) or bool((channel < 0).any()):
            self.spoil(value)
            return
        assert found is not None
        self.ends.append((name, channel[0], block[0], found[0], found[1].movedim(0, -1)))


def _other(node: Node, value: Value) -> Value:
    return next((v for v in node.inputs if v is not value), value)


def mixings(graph: Graph, labels: Labels) -> list[Generator]:
    """All families of mixing, one for each pair of weights."""
    tracker = Tracker(graph, labels)
    tracker.run()
    families: dict[tuple[str, ...], list[tuple[int, list[Part]]]] = defaultdict(list)
    for size, parts in blocks(tracker):
        names = tuple(dict.fromkeys(p.name for p in parts))
        families[names].append((size, parts))
    return [mixed(names, found) for names, found in families.items()]


def blocks(tracker: Tracker) -> list[tuple[int, list[Part]]]:
    """Sets of channels that may be mixed with one another, and all that moves with them."""
    found = []
    used: set[Channel] = set()
    for (a, _), (b, keys) in tracker.scores:
        channels = [(b, c) for c in keys.tolist()]
        if any(c in used for c in channels):
            continue
        partners = [q for (n, q), (m, k) in tracker.scores if m == b and n == a and k.tolist() == keys.tolist()]
        everything = channels + [(a, c) for q in partners for c in q.tolist()]
        used.update(everything)
        if tracker.spoiled & set(everything) or -1 in keys.tolist() or _ends_elsewhere(tracker, everything):
            continue
        parts = [p for q in partners for p in parts_of(tracker, a, q, inverse=False)]
        found.append((len(keys), parts + parts_of(tracker, b, keys, inverse=True)))
    groups: dict[tuple[str, tuple[int, ...]], list[Part]] = defaultdict(list)
    for name, channel, block, reader, matrix in tracker.ends:
        for head in torch.unique(block).tolist():
            here = (block == head).nonzero()[:, 0]
            order = here[torch.argsort(channel[here], stable=True)]
            own_channels = torch.unique(channel[order])
            copies = len(order) // len(own_channels)
            columns = order.reshape(len(own_channels), copies)
            for copy in range(copies):
                groups[name, tuple(own_channels.tolist())].append(
                    Part(reader, matrix[..., columns[:, copy]], inverse=True)
                )
    for (name, own), readers in groups.items():
        members = {(name, c) for c in own}
        clash = any(set(other) & set(own) and other != own for n, other in groups if n == name)
        if members & (tracker.spoiled | used) or clash or len(own) < 2:
            continue
        made = parts_of(tracker, name, torch.tensor(own), inverse=False)
        found.append((len(own), made + readers))
    return found


def _ends_elsewhere(tracker: Tracker, channels: list[Channel]) -> bool:
    wanted = set(channels)
    return any((name, int(c)) in wanted for name, channel, *_ in tracker.ends for c in channel)


def parts_of(tracker: Tracker, name: str, channels: Tensor, inverse: bool) -> list[Part]:
    """The weight and the biases that make some channels."""
    parts = [Part(name, tracker.matrices[name][..., channels], inverse)]
    return parts + [Part(bias, places[channels], inverse) for bias, places in tracker.biases[name]]


def mixed(names: tuple[str, ...], found: list[tuple[int, list[Part]]]) -> Generator:
    """A family of mixings: for each set of channels its size and all that moves with them."""
    counts = [size * size - size for size, _ in found]

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        after = dict(state)
        for (size, parts), chosen in zip(found, numbers.split(counts), strict=True):
            off = torch.zeros(size, size, dtype=torch.float64)
            off[~torch.eye(size, dtype=torch.bool)] = chosen
            for part in parts:
                matrix = torch.linalg.matrix_exp(-off if part.inverse else off)
                matrix = matrix if part.inverse else matrix.T
                after[part.name] = put(after, part.name, part.places, taken(after, part.name, part.places) @ matrix)
        return {name: after[name] for name in names}

    return Generator(
        "pair", "channels mixed by a matrix on one side and its inverse on the other", names, sum(counts), move
    )
