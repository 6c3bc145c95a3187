"""Rotations through a normalizer.

LayerNorm and RMSNorm divide by a length, and lengths do not change under rotations: where only matrices write what is
normalized and only matrices read the result, h → Oh can be put in between. A stream that several layers write to and
several normalizers read from is rotated as a whole. With a gain γ the readers turn into W diag(γ) Oᵀ diag(1/γ) and a
shift into diag(γ) O diag(1/γ) β; for a normalizer that takes the mean off, O keeps the vector of ones.

Holds:  for any ε, since ‖Oh‖ = ‖h‖; checked on the model by `verify`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.symmetry.generators import Generator, State, put, taken
from normgauge.symmetry.graph import Graph, Node, Value
from normgauge.symmetry.labels import Labels
from normgauge.symmetry.operations import Normal, moves, normalization, replay
from normgauge.symmetry.sites import applied, reading


@dataclass(frozen=True, slots=True)
class Reader:
    """A matrix that reads a normalized stream: its places (in, out), and the gain before it."""

    name: str
    matrix: Tensor
    gain: str


@dataclass(slots=True)
class Stream:
    """Values added up along one width, what writes to them and what reads from them."""

    width: int
    writers: list[tuple[str, Tensor]] = field(default_factory=list)  # places (…, width)
    readers: list[Reader] = field(default_factory=list)
    normals: list[Normal] = field(default_factory=list)
    fit: bool = True


def rotations(graph: Graph, labels: Labels) -> list[Generator]:
    """One family for every stream between matrices and normalizers."""
    done: set[int] = set()
    families = []
    for node in graph.nodes:
        normal = normal_of(graph, node)
        if normal is None or normal.source.index in done:
            continue
        stream = Stream(normal.source.shape[-1])
        explore(graph, labels, normal.source, stream, done)
        if stream.fit and _single(labels, stream):
            families.append(_family(stream))
    return [f for f in families if f.count]


def normal_of(graph: Graph, node: Node) -> Normal | None:
    """A normalizer over the last dimension, also an RMSNorm written by hand."""
    normal = normalization(node) or handwritten(graph, node)
    if normal is not None and normal.kind in ("layer", "rms") and normal.size == normal.source.shape[-1]:
        return normal
    return None


def handwritten(graph: Graph, node: Node) -> Normal | None:
    """x · rsqrt(mean(x²) + ε), where ``node`` is the product."""
    if node.op != "mul" or len(node.inputs) != 2:
        return None
    for source, factor in (node.inputs, reversed(node.inputs)):
        steps, current = [], factor.node
        while current is not None and current.op in ("rsqrt", "add", "mean", "pow") and current.inputs:
            steps.append(current.op)
            square = current.op == "pow" and current.inputs[0] is source and float(current.arg(1)) == 2
            if square and steps == ["rsqrt", "add", "mean", "pow"]:
                return Normal(source, None, None, "rms", source.shape[-1])
            current = current.inputs[0].node
    return None


def squared(graph: Graph, node: Node) -> bool:
    """Whether a square belongs to an RMSNorm written by hand."""
    value, current = node.inputs[0], node
    for op in ("mean", "add", "rsqrt", "mul"):
        readers = graph.readers(current.outputs[0])
        if (current.op == "pow" and op != "mean") or len(readers) != 1 or readers[0].op != op:
            return False
        current = readers[0]
    normal = handwritten(graph, current)
    return normal is not None and normal.source is value


def explore(graph: Graph, labels: Labels, start: Value, stream: Stream, done: set[int]) -> None:
    """Collect everything joined to ``start`` by sums and copies that keep the last dimension."""
    stack = [start]
    while stack:
        value = stack.pop()
        if value.index in done:
            continue
        done.add(value.index)
        if value.shape[-1:] != (stream.width,) or value is graph.output:
            stream.fit = False
            return
        found = labels.rearranged(value)
        if found is not None:
            stream.writers.append(_whole(labels, *found))
        elif value.node is None:
            stream.fit = False
            return
        else:
            stack.extend(_written(labels, value, stream))
        for reader in graph.readers(value):
            stack.extend(_read(graph, labels, value, reader, stream))
        if not stream.fit:
            return


def _whole(labels: Labels, name: str, places: Tensor) -> tuple[str, Tensor]:
    """The whole table where some of its rows are read: positions beyond the batch's length turn too."""
    shape = labels.graph.state[name].shape
    rows = torch.arange(shape.numel()).reshape(-1, shape[-1])
    whole = places.shape[-1] == shape[-1] and bool((places == rows[places[..., 0] // shape[-1]]).all())
    return name, rows if whole else places


def _written(labels: Labels, value: Value, stream: Stream) -> list[Value]:
    """What makes a value of the stream: a matrix, an embedding, a sum, a copy."""
    node = value.node
    assert node is not None
    matrix = applied(labels, node) if node.op in ("mm", "addmm") else None
    if matrix is not None:
        stream.writers.append(matrix)
        bias = labels.rearranged(node.args[0]) if node.op == "addmm" else None
        stream.writers += [bias] if bias is not None else []
        stream.fit &= node.op != "addmm" or bias is not None
        return []
    if node.op == "embedding" and labels.rearranged(node.args[0]) is not None:
        stream.writers.append(labels.rearranged(node.args[0]))  # type: ignore[arg-type]
        return []
    if node.op == "add" and node.kwargs.get("alpha", 1) == 1 and len(node.inputs) == 2:
        return node.inputs
    if _keeps_last(node, value):
        return [v for v in node.inputs if v.floating]
    found = _from_pixels(labels, value)
    stream.fit &= found is not None
    stream.writers += found or []
    return []


def _from_pixels(labels: Labels, value: Value) -> list[tuple[str, Tensor]] | None:
    """Weight and bias of a convolution whose channels have become the last dimension."""
    chain, current = [], value
    while current.node is not None and moves(current.node) and len(current.node.inputs) == 1:
        chain.append(current.node)
        current = current.node.inputs[0]
    node = current.node
    matrix = applied(labels, node) if node is not None and node.op == "convolution" else None
    if matrix is None or node is None:
        return None
    marks = torch.arange(current.shape[1]).reshape([-1] + [1] * (len(current.shape) - 2)).expand(current.shape)
    for step in reversed(chain):
        (marks,) = replay(step, {step.inputs[0].index: marks})
    if not bool((marks == torch.arange(value.shape[-1])).all()):
        return None
    bias = labels.rearranged(node.args[2]) if node.args[2] is not None else None
    return [matrix, *([bias] if bias is not None else [])]


def _keeps_last(node: Node, value: Value) -> bool:
    """A copy in which every last dimension stays whole and in order."""
    sources = [v for v in node.inputs if v.floating]
    if node.op == "native_dropout":
        return True
    if not moves(node) or any(v.shape[-1:] != value.shape[-1:] for v in sources):
        return False
    last = torch.arange(value.shape[-1])
    moved = replay(node, {v.index: last.expand(v.shape) for v in sources})
    position = next(i for i, out in enumerate(node.outputs) if out is value)
    return bool((moved[position] == last).all())


def _read(graph: Graph, labels: Labels, value: Value, node: Node, stream: Stream) -> list[Value]:
    """What reads a value of the stream."""
    normal = normal_of(graph, node)
    if normal is not None and normal.source is value:
        _readers(graph, labels, node, normal, stream)
        return []
    if node.op == "pow" and squared(graph, node):
        return []
    if node.op == "add" and node.kwargs.get("alpha", 1) == 1:
        return [node.outputs[0]]
    if node.outputs and all(out.floating for out in node.outputs[:1]) and _keeps_last(node, node.outputs[0]):
        return [out for out in node.outputs if out.floating]
    stream.fit = False
    return []


def _readers(graph: Graph, labels: Labels, node: Node, normal: Normal, stream: Stream) -> None:
    """The matrices behind a normalizer; anything else spoils the stream."""
    (only, *more) = [*graph.readers(node.outputs[0]), node]
    if normal.kind == "rms" and normal.weight is None and len(more) == 1 and only.op == "mul" and len(only.inputs) == 2:
        gain = next((v for v in only.inputs if labels.rearranged(v) is not None), None)
        if gain is not None and gain.role == "state":  # the gain of an RMSNorm written by hand
            normal, node = Normal(normal.source, gain, None, "rms", normal.size), only
    stream.normals.append(normal)
    stack = [node.outputs[0]]
    while stack:
        value = stack.pop()
        if value is graph.output:
            stream.fit = False
        for reader in graph.readers(value):
            if reader.op in ("mm", "addmm") and (found := reading(labels, reader, value)) is not None:
                stream.readers.append(Reader(*found, normal.weight.name if normal.weight is not None else ""))
            elif reader.outputs[0].floating and _keeps_last(reader, reader.outputs[0]):
                stack.append(reader.outputs[0])
            else:
                stream.fit = False


def _single(labels: Labels, stream: Stream) -> bool:
    """Whether every weight is used here alone, and all normalizers have plain gains."""
    names = [name for name, _ in stream.writers] + [r.name for r in stream.readers]
    whole = all(labels.rearranged(v) is not None for n in stream.normals for v in (n.weight, n.bias) if v is not None)
    once = all(len(labels.uses.get(n, ())) + (n in labels.base) <= 1 for n in names)
    return whole and once and len(set(names)) == len(names) and bool(stream.readers) and bool(stream.writers)


def _family(stream: Stream) -> Generator:
    centred = any(n.centres for n in stream.normals)
    width = stream.width
    basis = complement(width) if centred else torch.eye(width, dtype=torch.float64)
    size = basis.shape[1]
    upper = torch.triu_indices(size, size, 1)

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        small = torch.zeros(size, size, dtype=torch.float64)
        small[upper[0], upper[1]] = numbers
        turn = torch.linalg.matrix_exp(basis @ (small - small.T) @ basis.T)
        after = dict(state)
        for name, places in stream.writers:
            after[name] = put(after, name, places, taken(after, name, places) @ turn.T)
        for reader in stream.readers:
            gain = gain_of(state, reader.gain, width)
            entries = turn @ (gain[:, None] * taken(after, reader.name, reader.matrix)) / gain[:, None]
            after[reader.name] = put(after, reader.name, reader.matrix, entries)
        for name, gain_name in shifts:
            gain = gain_of(state, gain_name, width)
            after[name] = (gain * (turn @ (state[name].reshape(-1) / gain))).reshape(state[name].shape)
        return {name: after[name] for name in parameters}

    shifts = [
        (n.bias.name, n.weight.name if n.weight is not None else "") for n in stream.normals if n.bias is not None
    ]
    parameters = [name for name, _ in stream.writers] + [r.name for r in stream.readers] + [name for name, _ in shifts]
    what = "rotation of what is normalized, undone by what reads it"
    return Generator("pair", what, tuple(dict.fromkeys(parameters)), upper.shape[1], move)


def gain_of(state: State, name: str, width: int) -> Tensor:
    """A normalizer's gain, ones where it has none."""
    return state[name].reshape(-1) if name else torch.ones(width, dtype=torch.float64)


def complement(width: int) -> Tensor:
    """An orthonormal basis of the vectors orthogonal to (1, …, 1), as columns."""
    full = torch.cat([torch.ones(width, 1, dtype=torch.float64), torch.eye(width, dtype=torch.float64)[:, 1:]], 1)
    return torch.linalg.qr(full)[0][:, 1:]
