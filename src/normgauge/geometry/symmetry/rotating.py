"""Rotations and other matrices put between what writes channels and what reads them.

LayerNorm and RMSNorm divide by a length, and lengths do not change under rotations: where only matrices write what is
normalized and only matrices read the result, h → Oh can be put in between. With a gain γ the readers behind the
normalizer turn into W diag(γ) Oᵀ diag(1/γ) and a shift into diag(γ) O diag(1/γ) β; for a normalizer that takes the mean
off, O keeps the vector of ones. What such a normalizer takes off may also be added: h → (I + 1wᵀ)h, undone by the
matrices that read h as it is. A stream without a normalizer takes any invertible matrix; its diagonal is a rescaling.

Holds:  for any ε, since ‖Oh‖ = ‖h‖; checked on the model by `verify`.

A rotary embedding turns channels i and j of every query and key by an angle that depends on the position. Matrices that
commute with all these rotations can be put between queries and keys: in the plane of each pair a scale, which is a
rescaling and counted there, and a rotation; among channels that are not turned, any invertible matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.geometry.symmetry.generators import (
    Generator,
    MovedChannels,
    Part,
    matrix_family,
    mixed_channels,
    turned_channels,
)
from normgauge.geometry.symmetry.graph import GraphValue, Node
from normgauge.geometry.symmetry.labels import Labels
from normgauge.geometry.symmetry.mixing import MIXED, ChannelTracker, attention_heads, channel_families
from normgauge.geometry.symmetry.operations import only_moves, replay_entries
from normgauge.geometry.symmetry.streams import Stream, streams


def stream_rotations(labels: Labels) -> Iterator[Generator]:
    """The families of every stream."""
    for stream in streams(labels):
        parts = stream.writers + stream.direct
        if not stream.normals and stream.direct and stream.sums and stream.width > 1:
            yield matrix_family(
                "channels mixed in a stream, undone by what reads it", [mixed_channels(stream.width, parts)]
            )
        elif stream.normals and stream.behind and stream.readers:
            rotated = _rotated(stream, parts)
            if rotated.count:
                yield matrix_family("rotation of what is normalized, undone by what reads it", [rotated])
        if stream.normals and stream.direct and all(n.centres for n in stream.normals):
            # h → (I + 1wᵀ)h: every row of the exponent is the same
            shear = MovedChannels(stream.width, lambda w: (w / len(w)).expand(len(w), len(w)), parts)
            yield matrix_family("mixed into the mean that a normalizer takes off", [shear])


def _rotated(stream: Stream, parts: list[Part]) -> MovedChannels:
    """h → Oh, also behind the normalizers."""
    width = stream.width
    for n in stream.normals:
        if n.bias is not None:
            gain = n.weight.name if n.weight is not None else ""
            parts = [*parts, Part(n.bias.name, torch.arange(width), inverse=False, gain=gain)]
    parts = parts + stream.readers
    centred = any(n.centres for n in stream.normals)
    basis = complement(width) if centred else torch.eye(width, dtype=torch.float64)
    upper = torch.triu_indices(basis.shape[1], basis.shape[1], 1)
    planes = turned_channels(basis.shape[1], upper[1], upper[0], parts)
    return MovedChannels(planes.count, lambda numbers: basis @ planes.exponent(numbers) @ basis.T, parts)


def complement(width: int) -> Tensor:
    """An orthonormal basis of the vectors orthogonal to (1, …, 1), as columns."""
    full = torch.cat([torch.ones(width, 1, dtype=torch.float64), torch.eye(width, dtype=torch.float64)[:, 1:]], 1)
    return torch.linalg.qr(full)[0][:, 1:]


@dataclass(slots=True)
class Turned(ChannelTracker):
    """Follows channels through products with constants; a sum of two of them is a plane that is turned."""

    partner: dict[tuple[str, int], int] = field(default_factory=dict)

    def read(self, node: Node, value: GraphValue) -> None:
        """Follow the channels through one operation that reads them."""
        name, channel, block = self.carried[value.index]
        active = [v for v in dict.fromkeys(node.inputs) if v.index in self.carried]
        same = {self.carried[v.index][0] for v in active} == {name}
        if only_moves(node) and same and len(active) > 1:
            results = replay_entries(node, {v.index: self.carried[v.index][1] for v in active})
            for out, result in zip(node.outputs, results, strict=True):
                self.carried[out.index] = (name, result, torch.zeros(()).long().expand(out.shape))
        elif node.op == "neg" or (node.op == "mul" and sum(map(self.labels.graph.weighed, node.inputs)) == 1):
            self.carried[node.outputs[0].index] = (name, channel, block)
        elif node.op == "add" and same and len(active) == 2:
            self.turn(node)
        else:
            ChannelTracker.read(self, node, value)

    def turn(self, node: Node) -> None:
        """Write down which channel is added to which."""
        (name, left, block), (_, right, _) = (self.carried[v.index] for v in node.args[:2])
        for i, j in torch.unique(torch.stack([left.reshape(-1), right.reshape(-1)], 1), dim=0).tolist():
            if self.partner.setdefault((name, i), j) != j:
                self.spoiled.add((name, i))
        self.carried[node.outputs[0].index] = (name, left, block)


def rotary_rotations(labels: Labels) -> list[Generator]:
    """Rotations in the planes of a rotary embedding, and mixings of what it leaves alone."""
    tracker = Turned(labels)
    tracker.run()
    planes, still = [], []
    for everything, keys, parts in attention_heads(tracker):
        if not tracker.spoiled.isdisjoint(everything) or tracker.partner.keys().isdisjoint(everything):
            continue
        name, place = everything[0][0], {c: i for i, c in enumerate(keys.tolist())}
        pairs = torch.tensor([(i, place.get(tracker.partner.get((name, c), c), i)) for c, i in place.items()])
        first, second = pairs[pairs[:, 0] < pairs[:, 1]].T
        planes.append(turned_channels(len(keys), first, second, parts))
        alone = pairs[pairs[:, 0] == pairs[:, 1], 0]
        if len(alone) > 1:
            still.append(mixed_channels(len(alone), [Part(p.name, p.places[..., alone], p.inverse) for p in parts]))
    return [
        *channel_families("rotation of queries and keys in the planes of a rotary embedding", planes),
        *channel_families(MIXED, still),
    ]
