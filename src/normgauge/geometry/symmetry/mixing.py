"""Channels between two matrices may be mixed: A on one side, A⁻¹ on the other.

Where only copies, biases and the weighted means of attention stand between two matrices, not only scales but any
invertible matrix can be put in between: for queries and keys of a head Q → AQ, K → A⁻ᵀK; for values and the output
projection V → AV, O → OA⁻¹; for two linear layers in a row W₁ → AW₁, W₂ → W₂A⁻¹. The diagonal of A is a rescaling and
counted there; here are the n² − n directions beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.geometry.symmetry.generators import Generator, MovedChannels, Part, matrix_family, mixed_channels
from normgauge.geometry.symmetry.graph import GraphValue, Node
from normgauge.geometry.symmetry.labels import Labels
from normgauge.geometry.symmetry.operations import channels_of, only_moves, own_bias, replay_entries
from normgauge.geometry.symmetry.sites import (
    from_softmax,
    other_input,
    product_weight,
    scalar_factor,
    weight_applied_to,
)

MIXED = "channels mixed by a matrix on one side and its inverse on the other"
Channel = tuple[str, int]  # a weight's name and one of its output channels


@dataclass(slots=True)
class ChannelTracker:
    """Follows the output channels of every matrix product at once."""

    labels: Labels
    carried: dict[int, tuple[str, Tensor, Tensor]] = field(default_factory=dict)  # value -> weight, channel, block
    spoiled: set[Channel] = field(default_factory=set)
    ends: list[tuple[str, Tensor, Tensor, str, Tensor]] = field(default_factory=list)
    scores: list[tuple[tuple[str, Tensor], tuple[str, Tensor]]] = field(default_factory=list)
    biases: dict[str, list[tuple[str, Tensor]]] = field(default_factory=lambda: defaultdict(list))
    matrices: dict[str, Tensor] = field(default_factory=dict)

    def spoil(self, value: GraphValue) -> None:
        """Mark channels that something other than a matrix reads."""
        name, channel, _ = self.carried[value.index]
        self.spoiled.update((name, c) for c in torch.unique(channel).tolist() if c >= 0)

    def run(self) -> None:
        """Follow all channels through the graph, once."""
        for node in self.labels.graph.nodes:
            for value in dict.fromkeys(v for v in node.inputs if v.index in self.carried):
                self.read(node, value)
            self.start(node)
        if self.labels.graph.output is not None and self.labels.graph.output.index in self.carried:
            self.spoil(self.labels.graph.output)

    def start(self, node: Node) -> None:
        """A matrix product makes new channels."""
        found = product_weight(self.labels, node)
        if found is None or not self.labels.single(found[0]):
            return
        name, matrix = found
        self.matrices[name] = matrix
        out, own = node.outputs[0], own_bias(node)
        self.carried[out.index] = (name, channels_of(node), torch.zeros(out.shape, dtype=torch.long))
        if own is not None:
            self.bias(out, own)

    def bias(self, value: GraphValue, bias: GraphValue | None) -> None:
        """Note a bias, which moves with its channels."""
        name = self.carried[value.index][0]
        found = self.labels.rearranged(bias)
        if found is None or found[1].ndim != 1 or found[1].shape[0] != self.matrices[name].shape[-1]:
            self.spoil(value)
        else:
            self.biases[name].append(found)

    def read(self, node: Node, value: GraphValue) -> None:
        """Follow the channels through one operation that reads them."""
        name, channel, block = self.carried[value.index]
        active = [v for v in dict.fromkeys(node.inputs) if v.index in self.carried]
        out = node.outputs[0]
        if only_moves(node) and len(active) == 1:
            moved = replay_entries(node, {value.index: channel}), replay_entries(node, {value.index: block})
            for result, c, b in zip(node.outputs, *moved, strict=True):
                self.carried[result.index] = (name, c, b)
        elif node.op in ("mul", "div") and scalar_factor(node, value) is not None:
            self.carried[out.index] = (name, channel, block)
        elif node.op == "add" and len(active) == 1 and self.labels.rearranged(other_input(node, value)) is not None:
            self.carried[out.index] = (name, channel, block)
            self.bias(out, other_input(node, value))
        elif node.op == "bmm" and node.args[1] is value and from_softmax(node.args[0]):
            first = channel[:, :1]
            if bool((channel == first).all()):
                head = (first.amin(-1, keepdim=True) + 1).expand(out.shape)
                self.carried[out.index] = (name, first.expand(out.shape), head)
            else:
                self.spoil(value)
        elif node.op == "bmm" and len(active) == 2:
            self.score(node, value)
        elif node.op in ("mm", "addmm", "convolution") and len(active) == 1:
            self.end(node, value)
        else:
            self.spoil(value)

    def score(self, node: Node, value: GraphValue) -> None:
        """Note which channels of queries and keys are multiplied with one another."""
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

    def end(self, node: Node, value: GraphValue) -> None:
        """Note the matrix that reads the channels."""
        name, channel, block = self.carried[value.index]
        found = weight_applied_to(self.labels, node, value)
        if node.op == "convolution":
            channel, block = (t.movedim(1, -1).flatten(0, -2) for t in (channel, block))
        grouped = node.op == "convolution" and node.args[8] != 1
        alike = bool((channel == channel[:1]).all()) and bool((channel >= 0).all())
        if found is None or not self.labels.single(found[0]) or grouped or not alike:
            self.spoil(value)
        else:
            self.ends.append((name, channel[0], block[0], found[0], found[1].movedim(0, -1)))


def mixings(labels: Labels) -> list[Generator]:
    """All families of mixing, one for each pair of weights."""
    tracker = ChannelTracker(labels)
    tracker.run()
    return channel_families(MIXED, mixable_blocks(tracker))


def channel_families(what: str, found: Iterable[MovedChannels]) -> list[Generator]:
    """One family for all channels that move the same weights."""
    groups: dict[tuple[str, ...], list[MovedChannels]] = defaultdict(list)
    for channels in found:
        groups[tuple(dict.fromkeys(part.name for part in channels.parts))].append(channels)
    return [matrix_family(what, group) for group in groups.values()]


def attention_heads(tracker: ChannelTracker) -> Iterator[tuple[list[Channel], Tensor, list[Part]]]:
    """Every head of keys with all heads of queries it meets: their channels, the keys, and what moves with both."""
    met: dict[tuple[str, str, tuple[int, ...]], list[Tensor]] = defaultdict(list)
    for (a, queries), (b, keys) in tracker.scores:
        met[a, b, tuple(keys.tolist())].append(queries)
    for (a, b, own), partners in met.items():
        keys = torch.tensor(own)
        parts = [part for each in partners for part in parts_of(tracker, a, each, inverse=False)]
        channels = [(b, c) for c in own] + [(a, c) for each in partners for c in each.tolist()]
        yield channels, keys, parts + parts_of(tracker, b, keys, inverse=True)


def mixable_blocks(tracker: ChannelTracker) -> Iterator[MovedChannels]:
    """Sets of channels that may be mixed with one another, and all that moves with them."""
    used: set[Channel] = set()
    ended = {(name, c) for name, channel, *_ in tracker.ends for c in channel.tolist()}
    for everything, keys, parts in attention_heads(tracker):
        if used.isdisjoint(everything[: len(keys)]):
            used.update(everything)
            if (tracker.spoiled | ended).isdisjoint(everything) and bool((keys >= 0).all()):
                yield mixed_channels(len(keys), parts)
    groups: dict[tuple[str, tuple[int, ...]], list[Part]] = defaultdict(list)
    for name, channel, block, reader, matrix in tracker.ends:
        for head in torch.unique(block).tolist():
            here = (block == head).nonzero()[:, 0]
            order = here[torch.argsort(channel[here], stable=True)]
            own_channels = torch.unique(channel[order])
            for copy in order.reshape(len(own_channels), -1).T:
                groups[name, tuple(own_channels.tolist())].append(Part(reader, matrix[..., copy], inverse=True))
    for (name, own), readers in groups.items():
        clash = any(set(other) & set(own) and other != own for n, other in groups if n == name)
        if len(own) > 1 and not clash and (tracker.spoiled | used).isdisjoint((name, c) for c in own):
            yield mixed_channels(len(own), parts_of(tracker, name, torch.tensor(own), inverse=False) + readers)


def parts_of(tracker: ChannelTracker, name: str, channels: Tensor, inverse: bool) -> list[Part]:
    """The weight and the biases that make some channels."""
    parts = [Part(name, tracker.matrices[name][..., channels], inverse)]
    return parts + [Part(bias, places[channels], inverse) for bias, places in tracker.biases[name]]
