"""Where weights are added, what reads them, and which bias stands behind a matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.symmetry.graph import Graph, Node, Value
from normgauge.symmetry.labels import Labels
from normgauge.symmetry.operations import EMBEDDING, SOFTMAX, moves, normalization, replay


@dataclass(frozen=True, slots=True)
class Site:
    """Where a weight is added: entry e of ``value`` contains entry ``origin[e]`` of it."""

    name: str
    value: Value
    origin: Tensor
    position: Tensor


def number(node: Node, active: Value) -> float | None:
    """The plain number a node multiplies with, if it does."""
    other = node.arg(1) if node.args[0] is active else node.args[0]
    if isinstance(other, int | float):
        return float(other)
    if isinstance(other, Value) and other.tensor is not None and other.shape.numel() == 1 and node.args[0] is active:
        return float(other.tensor)
    return None


def from_softmax(value: Value) -> bool:
    """Whether a value's rows are weights that sum to one."""
    node = value.node
    while node is not None and (moves(node) or node.op == "native_dropout"):
        node = node.args[0].node if isinstance(node.args[0], Value) else None
    return node is not None and node.op in SOFTMAX


def reading(labels: Labels, node: Node, active: Value) -> tuple[str, Tensor] | None:
    """The weight a matrix product applies to ``active``: its name and the places of its entries, (in, out, …)."""
    if node.op == "convolution":
        found = labels.rearranged(node.args[1]) if node.args[0] is active and not node.args[6] else None
        return None if found is None else (found[0], found[1].transpose(0, 1))
    first = 1 if node.op == "addmm" else 0
    return labels.rearranged(node.args[first + 1]) if node.args[first] is active else None


def bias_behind(graph: Graph, labels: Labels, node: Node) -> tuple[str, Tensor, float] | None:
    """The bias added to what a matrix product gives (−1: takes a shift back), or a running mean behind it (+1)."""
    own = node.args[0] if node.op == "addmm" else node.args[2] if node.op == "convolution" else None
    if own is not None:
        found = labels.rearranged(own)
        return None if found is None or found[1].ndim != 1 else (*found, -1.0)
    value, axis = node.outputs[0], 1 if node.op == "convolution" else -1
    while len(readers := graph.readers(value)) == 1:
        (reader,) = readers
        normal = normalization(reader)
        if normal is not None and normal.kind == "batch" and normal.source is value:
            if not normal.statistics:
                return "", torch.zeros(0, dtype=torch.long), 1.0
            mean = normal.statistics[0]
            return mean.name, torch.arange(mean.shape[0]), -1.0 if normal.frozen else 1.0
        if reader.op == "add":
            other = next((v for v in reader.inputs if v is not value), None)
            found = labels.rearranged(other) if other is not None else None
            return (*found, -1.0) if found is not None and found[1].ndim == 1 and axis == -1 else None
        if reader.op not in ("view", "_unsafe_view", "clone") or value.shape[axis] != reader.outputs[0].shape[axis]:
            return None
        value = reader.outputs[0]
    return None


def producer(labels: Labels, value: Value) -> tuple[str, Tensor] | None:
    """A weight that is added, as it is, to every entry of a value: its name and the place for every entry."""
    found = labels.rearranged(value)
    if found is not None:
        return found
    node = value.node
    if node is None:
        return None
    if moves(node) and len([v for v in node.inputs if v.floating]) == 1:
        source = next(v for v in node.inputs if v.floating)
        inner = producer(labels, source)
        return (
            None if inner is None else (inner[0], replay(node, {source.index: inner[1]})[value_position(node, value)])
        )
    site = next((s for s in sites_of(labels, node) if s.value is value), None)
    return None if site is None else (site.name, site.origin)


def value_position(node: Node, value: Value) -> int:
    """Which of a node's outputs a value is."""
    return next(i for i, out in enumerate(node.outputs) if out is value)


def positions(value: Value, axis: int) -> Tensor:
    """A number for every position: all channels of one pixel or token of one sample have the same."""
    shape = [1 if d == axis % len(value.shape) else n for d, n in enumerate(value.shape)]
    return torch.arange(torch.Size(shape).numel()).reshape(shape).expand(value.shape)


def sites_of(labels: Labels, node: Node) -> Iterator[Site]:
    """The weights a node adds."""
    out = node.outputs[0] if node.outputs else None
    if out is None or not out.floating:
        return
    normal = normalization(node)
    axis = 1 if node.op == "convolution" or (normal is not None and normal.axis == 1) else -1
    if node.op == "addmm":
        added = [node.args[0]]
    elif node.op == "convolution":
        added = [node.args[2]]
    elif normal is not None:
        added = [normal.bias]
    elif node.op == "add" and node.kwargs.get("alpha", 1) == 1:
        added = [v for v in node.inputs if labels.rearranged(v) is not None]
        added = added if len(added) == 1 else []
    elif node.op == "cat":  # a token of its own, put beside the others
        for value in node.inputs:
            if (own := labels.rearranged(value)) is not None:
                yield Site(own[0], value, own[1], positions(value, -1))
        return
    elif node.op == "embedding" or (node.op in EMBEDDING and node.args[4] == 1):  # a bag that takes means
        found = labels.rearranged(node.args[0])
        if found is not None and labels.rearranged(out) is None:
            columns = torch.arange(node.args[0].shape[1])
            yield Site(found[0], out, columns.expand(out.shape), positions(out, -1))
        return
    else:
        return
    for value in added:
        found = labels.rearranged(value) if value is not None else None
        if found is not None:
            name, places = found
            shaped = places.reshape([-1] + [1] * (len(out.shape) - 2)) if axis == 1 and places.ndim == 1 else places
            yield Site(name, out, shaped.expand(out.shape), positions(out, axis))


def applied(labels: Labels, node: Node) -> tuple[str, Tensor] | None:
    """The weight of a matrix product, as places (in, …, out)."""
    if node.op == "convolution":
        found = labels.rearranged(node.args[1])
        return None if found is None or node.args[6] or node.args[8] != 1 else (found[0], found[1].movedim(0, -1))
    if node.op in EMBEDDING:
        return None if labels.rearranged(node.outputs[0]) is not None else labels.rearranged(node.args[0])
    if node.op in ("mm", "addmm"):
        return labels.rearranged(node.args[2 if node.op == "addmm" else 1])
    return None


def readings(graph: Graph, labels: Labels) -> Counter[str]:
    """How many operations read every weight; one that only rearranges it does not count."""
    counts: Counter[str] = Counter()
    for node in graph.nodes:
        if node.outputs and all(labels.rearranged(out) is not None for out in node.outputs):
            continue
        counts.update(found[0] for v in dict.fromkeys(node.inputs) if (found := labels.rearranged(v)) is not None)
    return counts


def used_again(graph: Graph, labels: Labels) -> list[str]:
    """Weights with an entry that several operations read: tied, used at every moment, or divided by their norm."""
    counts: dict[str, Tensor] = {}
    for node in graph.nodes:
        rearranges = node.outputs and all(labels.rearranged(out) is not None for out in node.outputs)
        if node.index in labels.skipped or rearranges:
            continue
        for value in node.inputs:
            found = labels.rearranged(value)
            if found is not None:
                name, places = found
                count = counts.setdefault(name, torch.zeros(graph.state[name].shape.numel(), dtype=torch.long))
                count[torch.unique(places)] += 1
    return [name for name, count in counts.items() if "running_" not in name and int(count.max()) > 1]
