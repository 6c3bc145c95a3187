"""Where weights are added, what reads them, which bias stands behind a matrix, and what becomes of numbers added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.geometry.symmetry.graph import GraphValue, Node
from normgauge.geometry.symmetry.labels import Labels
from normgauge.geometry.symmetry.operations import (
    EMBEDDING,
    SOFTMAX,
    along_axis,
    channel_axis,
    channels_of,
    normalization,
    only_moves,
    own_bias,
    replay_entries,
    source_of,
)


@dataclass(frozen=True, slots=True)
class Site:
    """Where a weight is added: entry e of ``value`` contains entry ``origin[e]`` of it."""

    name: str
    value: GraphValue
    origin: Tensor
    position: Tensor


@dataclass(frozen=True, slots=True)
class Follow:
    """A weight that follows a shift: its entry p has to change by factor · shift[origin[p]].

    Attributes:
        name, places: which entries; the rows of a table all alike.
        matrix: behind a matrix, name and places (in, out) of that one's entries: factor · Wᵀ shift[origin].
    """

    name: str
    places: Tensor
    origin: Tensor
    factor: float
    matrix: tuple[str, Tensor] | None = None


@dataclass(slots=True)
class Fate:
    """What becomes of the numbers added at a site.

    Attributes:
        together: pairs of entries that must be shifted alike.
        seen: entries whose shift reaches the output.
        back: weights that take it back.
        statistics: running means that must follow for the same function in eval mode.
        anywhere: whether the shift may also depend on the input (it is lost position by position).
    """

    together: list[Tensor] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    back: list[Follow] = field(default_factory=list)
    statistics: list[Follow] = field(default_factory=list)
    anywhere: bool = True

    def spoil(self, origin: Tensor) -> None:
        """Mark these entries as visible in the output."""
        self.seen.update(torch.unique(origin).tolist())


def scalar_factor(node: Node, active: GraphValue) -> float | None:
    """The plain number a node multiplies with, if it does."""
    other = node.arg(1) if node.args[0] is active else node.args[0]
    if isinstance(other, GraphValue) and other.shape.numel() == 1 and node.args[0] is active:
        other = other.tensor
    return float(other) if isinstance(other, int | float | Tensor) else None


def from_softmax(value: GraphValue) -> bool:
    """Whether a value's rows are weights that sum to one."""
    node = source_of(value, "native_dropout").node
    return node is not None and node.op in SOFTMAX


def weight_applied_to(labels: Labels, node: Node, active: GraphValue) -> tuple[str, Tensor] | None:
    """The weight a matrix product applies to ``active``: its name and the places of its entries, (in, out, …)."""
    if node.op == "convolution":
        found = labels.rearranged(node.args[1]) if node.args[0] is active and not node.args[6] else None
        return None if found is None else (found[0], found[1].transpose(0, 1))
    first = 1 if node.op == "addmm" else 0
    return labels.rearranged(node.args[first + 1]) if node.args[first] is active else None


def bias_behind(labels: Labels, node: Node) -> tuple[str, Tensor, float] | None:
    """The bias added to what a matrix product gives (−1: takes a shift back), or a running mean behind it (+1)."""
    own, value, axis = own_bias(node), node.outputs[0], channel_axis(node)
    if own is not None:
        return _vector(labels, own)
    while len(readers := labels.graph.readers(value)) == 1:
        (reader,) = readers
        normal = normalization(reader)
        if normal is not None and normal.kind == "batch" and normal.source is value:
            if not normal.statistics:
                return "", torch.zeros(0, dtype=torch.long), 1.0
            mean = normal.statistics[0]
            return mean.name, torch.arange(mean.shape[0]), -1.0 if normal.frozen else 1.0
        if reader.op == "add":
            return _vector(labels, other_input(reader, value)) if axis == -1 else None
        if reader.op not in ("view", "_unsafe_view", "clone") or value.shape[axis] != reader.outputs[0].shape[axis]:
            return None
        value = reader.outputs[0]
    return None


def _vector(labels: Labels, bias: GraphValue | None) -> tuple[str, Tensor, float] | None:
    found = labels.rearranged(bias)
    return None if found is None or found[1].ndim != 1 else (*found, -1.0)


def other_input(node: Node, value: GraphValue) -> GraphValue | None:
    """The value that a node reads besides ``value``."""
    return next((v for v in node.inputs if v is not value), None)


def producer(labels: Labels, value: GraphValue | None) -> tuple[str, Tensor] | None:
    """A weight that is added, as it is, to every entry of a value: its name and the place for every entry."""
    found = labels.rearranged(value)
    if found is not None:
        return found
    node = value.node if value is not None else None
    if value is None or node is None:
        return None
    sources = [v for v in node.inputs if v.floating]
    if only_moves(node) and len(sources) == 1:
        (source,) = sources
        inner = producer(labels, source)
        return (
            None
            if inner is None
            else (inner[0], replay_entries(node, {source.index: inner[1]})[node.outputs.index(value)])
        )
    site = next((s for s in sites_of(labels, node) if s.value is value), None)
    return None if site is None else (site.name, site.origin)


def positions(value: GraphValue, axis: int) -> Tensor:
    """A number for every position: all channels of one pixel or token of one sample have the same."""
    shape = [1 if d == axis % len(value.shape) else n for d, n in enumerate(value.shape)]
    return torch.arange(torch.Size(shape).numel()).reshape(shape).expand(value.shape)


def sites_of(labels: Labels, node: Node) -> Iterator[Site]:
    """The weights a node adds."""
    out = node.outputs[0] if node.outputs else None
    if out is None or not out.floating:
        return
    if node.op == "cat":  # a token of its own, put beside the others
        for value in node.inputs:
            if (own := labels.rearranged(value)) is not None:
                yield Site(own[0], value, own[1], positions(value, -1))
        return
    if node.op == "embedding" or (node.op in EMBEDDING and node.args[4] == 1):  # a bag that takes means
        if (own := labels.rearranged(node.args[0])) is not None and labels.rearranged(out) is None:
            yield Site(own[0], out, channels_of(node), positions(out, -1))
        return
    axis, added = channel_axis(node), own_bias(node)
    if node.op == "add" and node.kwargs.get("alpha", 1) == 1:
        weights = [v for v in node.inputs if labels.rearranged(v) is not None]
        added = weights[0] if len(weights) == 1 else None
    if (found := labels.rearranged(added)) is not None:
        name, places = found
        shaped = along_axis(places, 1, len(out.shape)) if axis == 1 and places.ndim == 1 else places
        yield Site(name, out, shaped.expand(out.shape), positions(out, axis))


def product_weight(labels: Labels, node: Node) -> tuple[str, Tensor] | None:
    """The weight of a matrix product, as places (in, …, out)."""
    if node.op == "convolution":
        found = labels.rearranged(node.args[1])
        return None if found is None or node.args[6] or node.args[8] != 1 else (found[0], found[1].movedim(0, -1))
    if node.op in EMBEDDING:
        return None if labels.rearranged(node.outputs[0]) is not None else labels.rearranged(node.args[0])
    if node.op in ("mm", "addmm"):
        return labels.rearranged(node.args[2 if node.op == "addmm" else 1])
    return None


def reading_counts(labels: Labels) -> Counter[str]:
    """How many operations read every weight; one that only rearranges it does not count."""
    return Counter(
        found[0]
        for node in _reading_nodes(labels)
        for value in dict.fromkeys(node.inputs)
        if (found := labels.rearranged(value)) is not None
    )


def used_again(labels: Labels) -> list[str]:
    """Tensors with an entry that several operations read: tied, used at every moment, or divided by their norm."""
    counts: dict[str, Tensor] = {}
    for node in _reading_nodes(labels):
        for value in node.inputs if node.index not in labels.skipped else ():
            found = labels.rearranged(value)
            if found is not None:
                name, places = found
                count = counts.setdefault(name, torch.zeros(labels.graph.state[name].shape.numel(), dtype=torch.long))
                count[torch.unique(places)] += 1
    return [name for name, count in counts.items() if int(count.max()) > 1]


def _reading_nodes(labels: Labels) -> Iterator[Node]:
    """The operations that do more than rearrange a weight."""
    for node in labels.graph.nodes:
        if not node.outputs or any(labels.rearranged(out) is None for out in node.outputs):
            yield node
