"""Weights that are divided by a norm: moved like other weights, then written back into the stored parameters.

Weight normalization, w = g v/‖v‖: w is moved, then written as direction and length.

Spectral normalization, W = V/uᵀVv. The vectors u and v are held, so W reaches every matrix with uᵀWv = 1, and the scale
of V is free besides. A move of W that breaks this must be made up for by others that touch it too: all families that
touch one normalized weight are taken together, and of their moves those are kept that hold uᵀWv.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from normgauge.geometry.symmetry.generators import Generator, Move, State
from normgauge.geometry.symmetry.graph import GraphValue, Node, OperationGraph
from normgauge.geometry.symmetry.labels import Labels
from normgauge.geometry.symmetry.operations import along_axis, only_moves, source_of

MOST = 300  # numbers that choose a move of all families together: each is tried once for its effect on uᵀWv
STEP = 1e-6
ROUNDS = 40
CLOSE = 1e-14
Normed = Mapping[str, tuple[str, str, int]]
Held = Mapping[str, tuple[str, Tensor]]
"""By the name of W: the name of V and uvᵀ in its shape."""


def weight_normed(labels: Labels, node: Node) -> None:
    """w = g v/‖v‖ reaches every w, so it is followed as a weight of its own; the length of v is free besides."""
    direction, length, out = node.args[0], node.args[1], node.outputs[0]
    name = f"{direction.name} (weight norm)"
    if direction.role == length.role == "state":
        labels.normed[name] = (direction.name, length.name, int(node.arg(2, 0)))
        labels.stand_in(node, name, out.shape, torch.arange(out.shape.numel()).reshape(out.shape))
    else:
        labels.refuse(node)


def with_computed(state: State, normed: Normed) -> dict[str, Tensor]:
    """The state with every weight-normalized w computed."""
    whole = dict(state)
    for name, (direction, length, dim) in normed.items():
        whole[name] = state[length] * state[direction] / torch.norm_except_dim(state[direction], 2, dim)
    return whole


def with_normed(generator: Generator, normed: Normed) -> Generator:
    """The same family in terms of v and g, where it moves or reads a computed weight."""
    if not normed:
        return generator

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        after = generator.move(with_computed(state, normed), numbers)
        for name in [n for n in after if n in normed]:
            after.update(write_back(state, normed[name], after.pop(name)))
        return after

    names = tuple(n for name in generator.parameters for n in (normed[name][:2] if name in normed else (name,)))
    rows = generator.rows if names == generator.parameters else None
    return replace(generator, parameters=names, move=move, rows=rows)


def write_back(state: State, parts: tuple[str, str, int], weight: Tensor, unit: bool = False) -> dict[str, Tensor]:
    """Direction and length of a moved weight; the direction keeps its length, or gets ``unit`` length."""
    direction, length, dim = parts
    sign = torch.where(state[length] < 0, -1.0, 1.0)
    size = torch.norm_except_dim(weight, 2, dim)
    kept = torch.ones_like(size) if unit else torch.norm_except_dim(state[direction], 2, dim)
    return {length: sign * size, direction: sign * weight * kept / size}


def length_scales(normed: Normed, state: State) -> Iterator[Generator]:
    """v → αv with g fixed (THEORY 11.4)."""
    for direction, _, dim in normed.values():
        rows = state[direction].shape[dim]
        yield _scale("scale of the direction of a weight-normalized row", direction, rows, dim)


def _scale(what: str, name: str, rows: int, dim: int = 0) -> Generator:
    """The rows of a weight along a dimension, each with a scale of its own; or the whole, as one row."""

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        return {name: state[name] * along_axis(numbers.exp(), dim, state[name].ndim)}

    return Generator("scale", what, (name,), rows, move, rows=(rows, dim))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A weight divided by uᵀVv.

    Attributes:
        weight: V.
        matrix: V as the matrix that stands in the estimate.
        left, right: u and v.
        parts: the operations that compute the estimate.
    """

    weight: GraphValue
    matrix: GraphValue
    left: Tensor
    right: Tensor
    parts: frozenset[int]


def estimates(graph: OperationGraph) -> dict[int, Estimate]:
    """By the index of the division: every weight that is divided by uᵀVv and read nowhere else."""
    found = {}
    for node in graph.nodes:
        estimate = _estimate(node)
        if estimate is not None and _readers(graph, estimate.weight) == {*estimate.parts, node.index}:
            found[node.index] = estimate
    return found


def _estimate(node: Node) -> Estimate | None:
    if node.op != "div" or not all(isinstance(a, GraphValue) for a in node.args[:2]):
        return None
    weight, dot = source_of(node.args[0]), node.args[1].node
    if weight.role != "state" or dot is None or dot.op not in ("dot", "vdot"):
        return None
    for given, image in (dot.args[:2], dot.args[1::-1]):
        product, left = image.node, _constant(given)
        if left is not None and product is not None and product.op == "mv":
            matrix, right = product.args[0], _constant(product.args[1])
            if right is not None and source_of(matrix) is weight:
                return Estimate(weight, matrix, left, right, frozenset((product.index,)))
    return None


def _constant(value: GraphValue) -> Tensor | None:
    """The contents of a constant or a copy of one."""
    while value.node is not None and value.node.op == "clone":
        value = value.node.args[0]
    return value.tensor if value.role == "constant" else None


def _readers(graph: OperationGraph, value: GraphValue) -> set[int]:
    """The operations that read a value or a rearrangement of it."""
    found, stack = set(), [value]
    while stack:
        for node in graph.readers(stack.pop()):
            if only_moves(node):
                stack.extend(node.outputs)
            else:
                found.add(node.index)
    return found


def spectrally_normed(labels: Labels, node: Node, estimate: Estimate) -> None:
    """W = V/uᵀVv is followed as a weight of its own; what holds uᵀWv is found later, the scale of V is free."""
    name, shape = f"{estimate.weight.name} (spectral norm)", estimate.weight.shape
    inside, divided = labels.rearranged(estimate.matrix), labels.rearranged(node.args[0])
    assert inside is not None and divided is not None
    outer = torch.zeros(shape.numel(), dtype=torch.float64)
    outer[inside[1].reshape(-1)] = torch.outer(estimate.left, estimate.right).reshape(-1).double()
    labels.held[name] = (estimate.weight.name, outer.reshape(shape))
    labels.stand_in(node, name, shape, divided[1])


def with_quotients(state: State, held: Held) -> dict[str, Tensor]:
    """The state with every spectrally normalized W computed."""
    return {**state, **{name: state[v] / (state[v] * outer).sum() for name, (v, outer) in held.items()}}


def with_held(generators: list[Generator], held: Held, state: State) -> tuple[list[Generator], list[str]]:
    """The families in terms of V; and the names of weights whose families are too many to be taken together."""
    if not held:
        return generators, []
    free = [
        replace(g, move=partial(_reading, g.move, held)) for g in generators if held.keys().isdisjoint(g.parameters)
    ]
    free += [_scale("scale of a spectrally normalized weight", weight, 1) for weight, _ in held.values()]
    left_out: list[str] = []
    for group in _together([g for g in generators if not held.keys().isdisjoint(g.parameters)], held):
        if sum(g.count for g in group) > MOST:
            left_out += [held[n][0] for n in dict.fromkeys(n for g in group for n in g.parameters if n in held)]
        else:
            free += _holding(group, held, state)
    return free, left_out


def _reading(move: Move, held: Held, state: State, numbers: Tensor) -> dict[str, Tensor]:
    """A move that only reads normalized weights."""
    return move(with_quotients(state, held), numbers)


def _together(generators: list[Generator], held: Held) -> Iterator[list[Generator]]:
    """Families in groups that share no normalized weight."""
    groups: list[tuple[set[str], list[Generator]]] = []
    for generator in generators:
        names, members = {n for n in generator.parameters if n in held}, [generator]
        for other in [g for g in groups if g[0] & names]:
            names, members = names | other[0], [*other[1], *members]
            groups.remove(other)
        groups.append((names, members))
    yield from (members for _, members in groups)


def _holding(parts: list[Generator], held: Held, state: State) -> list[Generator]:
    """The moves of several families, one after another, that keep every uᵀWv."""
    counts = [g.count for g in parts]
    names = list(dict.fromkeys(n for g in parts for n in g.parameters if n in held))

    def moved(whole: State, numbers: Tensor) -> dict[str, Tensor]:
        now, after = dict(whole), {}
        for generator, piece in zip(parts, numbers.split(counts), strict=True):
            changed = generator.move(now, piece)
            now.update(changed)
            after.update(changed)
        return after

    def estimate(whole: State, numbers: Tensor) -> Tensor:
        after = moved(whole, numbers)
        return torch.stack([(after[n] * held[n][1]).sum() for n in names])

    def slopes(whole: State, at: Tensor, directions: Tensor) -> Tensor:
        sides = [torch.stack([estimate(whole, at + s * STEP * d) for d in directions.T], 1) for s in (1, -1)]
        return (sides[0] - sides[1]) / (2 * STEP)  # (names, directions)

    whole = with_quotients(state, held)
    zero = torch.zeros(sum(counts), dtype=torch.float64)
    _, values, right = torch.linalg.svd(slopes(whole, zero, torch.eye(len(zero), dtype=torch.float64)))
    rank = int((values > 1e-7 * values.max().clamp_min(1e-30)).sum())
    away, along = right[:rank].T, right[rank:].T  # (numbers, rank), (numbers, the others)
    if not along.shape[1]:
        return []

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        whole = with_quotients(state, held)
        at = along @ numbers
        for _ in range(ROUNDS):
            gap = 1 - estimate(whole, at)
            if float(gap.abs().max()) < CLOSE or not rank:
                break
            at = at + away @ torch.linalg.lstsq(slopes(whole, at, away), gap[:, None]).solution[:, 0]
        after = moved(whole, at)
        for name in names:
            weight, outer = held[name]
            after[weight] = after.pop(name) * (state[weight] * outer).sum()
        return after

    renamed = tuple(dict.fromkeys(held[n][0] if n in held else n for g in parts for n in g.parameters))
    kind = "pair" if any(g.kind == "pair" for g in parts) else parts[0].kind
    what = parts[0].what if len(parts) == 1 else "mixed into one another so that a spectral norm is held"
    return [Generator(kind, what, renamed, along.shape[1], move)]
