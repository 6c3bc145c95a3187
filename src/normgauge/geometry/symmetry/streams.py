"""Streams: values of one width that sums and copies join, with all that writes to them and reads from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.geometry.symmetry.generators import Part
from normgauge.geometry.symmetry.graph import GraphValue, Node
from normgauge.geometry.symmetry.labels import Labels
from normgauge.geometry.symmetry.operations import (
    NormalizerNode,
    channels_of,
    normalization,
    only_moves,
    own_bias,
    replay_entries,
)
from normgauge.geometry.symmetry.sites import product_weight, weight_applied_to


@dataclass(slots=True)
class Stream:
    """A stream, the weights that write to it and those that read it.

    Attributes:
        width: its last dimension.
        writers: weights added to it.
        direct: matrices that read it as it is.
        normals: normalizers that read it, and ``readers``: the matrices behind them.
        sums: how many sums join it.
        fit: whether nothing else touches it; ``behind``: nor what the normalizers make of it.
    """

    width: int
    writers: list[Part] = field(default_factory=list)
    direct: list[Part] = field(default_factory=list)
    readers: list[Part] = field(default_factory=list)
    normals: list[NormalizerNode] = field(default_factory=list)
    sums: int = 0
    fit: bool = True
    behind: bool = True


def streams(labels: Labels) -> Iterator[Stream]:
    """Every stream that is normalized or summed up, and that nothing but matrices and normalizers reads."""
    done: set[int] = set()
    for node in labels.graph.nodes:
        normal = normal_of(node)
        start = normal.source if normal is not None else node.outputs[0] if joins(labels, node) else None
        if start is None or start.index in done or not start.shape:
            continue
        stream = Stream(start.shape[-1])
        explore(labels, start, stream, done)
        if stream.fit and _single(labels, stream):
            yield stream


def adds(node: Node) -> bool:
    """Whether a node is a plain sum of two values."""
    return node.op == "add" and node.kwargs.get("alpha", 1) == 1 and len(node.inputs) == 2


def joins(labels: Labels, node: Node) -> bool:
    """Whether a node adds two values, none of them a weight."""
    two = adds(node) and len(set(node.inputs)) == 2
    return two and all(v.floating and labels.rearranged(v) is None for v in node.inputs)


def normal_of(node: Node) -> NormalizerNode | None:
    """A normalizer over the last dimension, also an RMSNorm written by hand."""
    normal = normalization(node) or handwritten(node)
    if normal is not None and normal.kind in ("layer", "rms") and normal.size == normal.source.shape[-1]:
        return normal
    return None


def handwritten(node: Node) -> NormalizerNode | None:
    """x · rsqrt(mean(x²) + ε), where ``node`` is the product."""
    if node.op != "mul" or len(node.inputs) != 2:
        return None
    for source, factor in (node.inputs, reversed(node.inputs)):
        steps, current = [], factor.node
        while current is not None and current.op in ("rsqrt", "add", "mean", "pow") and current.inputs:
            steps.append(current.op)
            square = current.op == "pow" and current.inputs[0] is source and current.arg(1) == 2
            if square and steps == ["rsqrt", "add", "mean", "pow"]:
                return NormalizerNode(source, None, None, "rms", source.shape[-1])
            current = current.inputs[0].node
    return None


def squared(labels: Labels, node: Node) -> bool:
    """Whether a square belongs to an RMSNorm written by hand."""
    value, current = node.inputs[0], node
    for op in ("mean", "add", "rsqrt", "mul"):
        readers = labels.graph.readers(current.outputs[0])
        if len(readers) != 1 or readers[0].op != op:
            return False
        current = readers[0]
    normal = handwritten(current)
    return normal is not None and normal.source is value


def explore(labels: Labels, start: GraphValue, stream: Stream, done: set[int]) -> None:
    """Collect everything joined to ``start`` by sums and copies that keep the last dimension."""
    stack = [start]
    while stack:
        value = stack.pop()
        if value.index in done:
            continue
        done.add(value.index)
        if value.shape[-1:] != (stream.width,) or value is labels.graph.output:
            stream.fit = False
            continue
        found = labels.rearranged(value)
        if found is not None:
            stream.writers.append(_whole(labels, *found))
        else:
            stack.extend(_written(labels, value, stream))
        for reader in labels.graph.readers(value):
            stack.extend(_read(labels, value, reader, stream))


def _whole(labels: Labels, name: str, places: Tensor) -> Part:
    """The whole table where some of its rows are read: positions beyond the batch's length move too."""
    shape = labels.graph.state[name].shape
    rows = torch.arange(shape.numel()).reshape(-1, shape[-1])
    whole = places.shape[-1] == shape[-1] and bool((places == rows[places[..., 0] // shape[-1]]).all())
    return Part(name, rows if whole else places, inverse=False)


def _written(labels: Labels, value: GraphValue, stream: Stream) -> list[GraphValue]:
    """What makes a value of the stream: a matrix, an embedding, a sum, a copy."""
    node = value.node
    if node is not None and (node.op not in ("mm", "addmm", "embedding") or product_weight(labels, node) is None):
        if adds(node):
            stream.sums += 1
            return node.inputs
        if keeps_last(node, value):
            return [v for v in node.inputs if v.floating]
        node = _from_pixels(value)
    matrix, bias = (
        (product_weight(labels, node), labels.rearranged(own_bias(node))) if node is not None else (None, None)
    )
    stream.writers += [Part(*found, inverse=False) for found in (matrix, bias) if found is not None]
    stream.fit &= node is not None and matrix is not None and (bias is not None or node.op != "addmm")
    return []


def _from_pixels(value: GraphValue) -> Node | None:
    """A convolution whose channels have become the last dimension."""
    chain, current = [], value
    while current.node is not None and only_moves(current.node) and len(current.node.inputs) == 1:
        chain.append(current.node)
        current = current.node.inputs[0]
    node = current.node
    if node is None or node.op != "convolution":
        return None
    marks = channels_of(node)
    for step in reversed(chain):
        (marks,) = replay_entries(step, {step.inputs[0].index: marks})
    return node if bool((marks == torch.arange(value.shape[-1])).all()) else None


def keeps_last(node: Node, value: GraphValue) -> bool:
    """A copy, or a mean over other dimensions, in which every last dimension stays whole and in order."""
    sources = [v for v in node.inputs if v.floating]
    if node.op == "native_dropout":
        return value is node.outputs[0]
    if node.op in ("mean", "sum"):
        ndim, dims = len(sources[0].shape), node.arg(1)
        return bool(dims) and all(d % ndim != ndim - 1 for d in dims)
    if not only_moves(node) or any(v.shape[-1:] != value.shape[-1:] for v in sources):
        return False
    last = torch.arange(value.shape[-1])
    moved = replay_entries(node, {v.index: last.expand(v.shape) for v in sources})
    return bool((moved[node.outputs.index(value)] == last).all())


def _read(labels: Labels, value: GraphValue, node: Node, stream: Stream) -> list[GraphValue]:
    """What reads a value of the stream."""
    normal = normal_of(node)
    if normal is not None and normal.source is value:
        _readers(labels, node, normal, stream)
        return []
    if node.op == "pow" and squared(labels, node):
        return []
    if adds(node):
        return [node.outputs[0]]
    if (part := _reader(labels, node, value)) is not None:
        stream.direct.append(part)
        return []
    if node.outputs and node.outputs[0].floating and keeps_last(node, node.outputs[0]):
        return [out for out in node.outputs if out.floating]
    stream.fit = False
    return []


def _reader(labels: Labels, node: Node, value: GraphValue, gain: GraphValue | None = None) -> Part | None:
    """The matrix a node applies to a value of the stream, or to what a normalizer with a gain makes of it."""
    found = weight_applied_to(labels, node, value) if node.op in ("mm", "addmm") else None
    return (
        None if found is None else Part(found[0], found[1].T, inverse=True, gain=gain.name if gain is not None else "")
    )


def _readers(labels: Labels, node: Node, normal: NormalizerNode, stream: Stream) -> None:
    """The matrices behind a normalizer; anything else reads what is not undone."""
    (only, *more) = [*labels.graph.readers(node.outputs[0]), node]
    if normal.kind == "rms" and normal.weight is None and len(more) == 1 and only.op == "mul" and len(only.inputs) == 2:
        gain = next((v for v in only.inputs if labels.rearranged(v) is not None), None)
        if gain is not None and gain.role == "state":  # the gain of an RMSNorm written by hand
            normal, node = NormalizerNode(normal.source, gain, None, "rms", normal.size), only
    stream.normals.append(normal)
    stack = [node.outputs[0]]
    while stack:
        value = stack.pop()
        stream.behind &= value is not labels.graph.output
        for reader in labels.graph.readers(value):
            if (part := _reader(labels, reader, value, normal.weight)) is not None:
                stream.readers.append(part)
            elif reader.outputs and reader.outputs[0].floating and keeps_last(reader, reader.outputs[0]):
                stack.append(reader.outputs[0])
            else:
                stream.behind = False


def _single(labels: Labels, stream: Stream) -> bool:
    """Whether every weight is used here alone, and all normalizers have plain gains."""
    names = [part.name for part in (*stream.writers, *stream.direct, *stream.readers)]
    stream.behind &= all(
        labels.rearranged(v) is not None for n in stream.normals for v in (n.weight, n.bias) if v is not None
    )
    once = all(len(labels.uses.get(n, ())) + (n in labels.base) <= 1 for n in names)
    return once and len(set(names)) == len(names) and bool(stream.writers)
