"""Queries and keys under a rotary embedding.

A rotary embedding turns channels i and j of every query and key by an angle that depends on the position. Matrices that
commute with all these rotations can be put between queries and keys: in the plane of each pair a scale, which is a
rescaling and counted there, and a rotation; among channels that are not turned, any invertible matrix.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.symmetry.generators import Generator, State, put, taken
from normgauge.symmetry.graph import Graph, Node, Value
from normgauge.symmetry.labels import Labels
from normgauge.symmetry.mixing import Part, Tracker, mixed, parts_of
from normgauge.symmetry.operations import moves, replay


@dataclass(slots=True)
class Turned(Tracker):
    """Follows channels through products with constants; a sum of two of them is a plane that is turned."""

    partner: dict[tuple[str, int], int] = field(default_factory=dict)

    def read(self, node: Node, value: Value) -> None:
        """What an operation does with the channels it reads."""
        name, channel, block = self.carried[value.index]
        active = [v for v in dict.fromkeys(node.inputs) if v.index in self.carried]
        same = {self.carried[v.index][0] for v in active} == {name}
        if moves(node) and same and len(active) > 1:
            results = replay(node, {v.index: self.carried[v.index][1] for v in active})
            for out, result in zip(node.outputs, results, strict=True):
                self.carried[out.index] = (name, result, torch.zeros(()).long().expand(out.shape))
        elif node.op == "neg" or (node.op == "mul" and self.by_constant(node, value)):
            self.carried[node.outputs[0].index] = (name, channel, block)
        elif node.op == "add" and same and len(active) == 2:
            self.turn(node)
        else:
            Tracker.read(self, node, value)

    def by_constant(self, node: Node, value: Value) -> bool:
        """Whether a product's other side does not depend on the weights."""
        other = node.args[1] if node.args[0] is value else node.args[0]
        return not isinstance(other, Value) or not self.graph.weighed(other)

    def turn(self, node: Node) -> None:
        """Write down which channel is added to which."""
        (name, left, block), (_, right, _) = (self.carried[v.index] for v in node.args[:2])
        for i, j in torch.unique(torch.stack([left.reshape(-1), right.reshape(-1)], 1), dim=0).tolist():
            if self.partner.setdefault((name, i), j) != j:
                self.spoiled.add((name, i))
        self.carried[node.outputs[0].index] = (name, left, block)


@dataclass(frozen=True, slots=True)
class Planes:
    """Pairs of channels that are turned by one angle each, and all weights with these channels last."""

    first: Tensor
    second: Tensor
    parts: list[Part]


def turnings(graph: Graph, labels: Labels) -> list[Generator]:
    """Rotations in the planes of a rotary embedding, and mixings of what it leaves alone."""
    tracker = Turned(graph, labels)
    tracker.run()
    if not tracker.partner:
        return []
    turned: dict[tuple[str, ...], list[Planes]] = defaultdict(list)
    still: dict[tuple[str, ...], list[tuple[int, list[Part]]]] = defaultdict(list)
    for (a, queries), (b, keys) in _heads(tracker):
        parts = [p for q in queries for p in parts_of(tracker, a, q, inverse=False)]
        parts += parts_of(tracker, b, keys, inverse=True)
        names = tuple(dict.fromkeys(p.name for p in parts))
        place = {c: i for i, c in enumerate(keys.tolist())}
        pairs = [(i, place.get(tracker.partner.get((b, c), c), i)) for c, i in place.items()]
        first = torch.tensor([i for i, j in pairs if i < j])
        second = torch.tensor([j for i, j in pairs if i < j])
        turned[names].append(Planes(first, second, parts))
        alone = torch.tensor([i for i, j in pairs if i == j], dtype=torch.long)
        if len(alone) > 1:
            rest = [Part(p.name, p.places[..., alone], p.inverse) for p in parts]
            still[names].append((len(alone), rest))
    return [_family(names, found) for names, found in turned.items()] + [mixed(*item) for item in still.items()]


def _heads(tracker: Turned) -> list[tuple[tuple[str, list[Tensor]], tuple[str, Tensor]]]:
    """Every head of keys with a turned channel, and the heads of queries it meets."""
    heads: dict[tuple[str, str, tuple[int, ...]], list[Tensor]] = defaultdict(list)
    for (a, queries), (b, keys) in tracker.scores:
        channels = {(a, c) for c in queries.tolist()} | {(b, c) for c in keys.tolist()}
        if not channels & tracker.spoiled and any(c in tracker.partner for c in channels):
            heads[a, b, tuple(keys.tolist())].append(queries)
    return [((a, queries), (b, torch.tensor(keys))) for (a, b, keys), queries in heads.items()]


def _family(names: tuple[str, ...], found: list[Planes]) -> Generator:
    counts = [len(planes.first) for planes in found]

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        after = dict(state)
        for planes, angle in zip(found, numbers.split(counts), strict=True):
            cos, sin = angle.cos(), angle.sin()
            for part in planes.parts:
                i, j = part.places[..., planes.first], part.places[..., planes.second]
                x, y = taken(after, part.name, i), taken(after, part.name, j)
                after[part.name] = put(after, part.name, i, cos * x - sin * y)
                after[part.name] = put(after, part.name, j, sin * x + cos * y)
        return {name: after[name] for name in names}

    what = "rotation of queries and keys in the planes of a rotary embedding"
    return Generator("pair", what, names, sum(counts), move)
