"""Shifts of weights as families of moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.symmetry.fates import Direct, Fate, Through
from normgauge.symmetry.generators import Generator, State, put, taken
from normgauge.symmetry.graph import Graph, Node, Value
from normgauge.symmetry.labels import Labels
from normgauge.symmetry.operations import EMBEDDING, moves
from normgauge.symmetry.shifts import Walk
from normgauge.symmetry.sites import Site, applied, positions, readings, sites_of
from normgauge.symmetry.torus import components


def alike(fate: Fate, size: int) -> Tensor:
    """For every entry of a weight, the number of its set of entries that may be shifted alike; −1 where none may."""
    pairs = [torch.stack([group[:, :1].expand(group.shape), group], 2).reshape(-1, 2) for group in fate.together]
    roots = components(size, torch.cat([torch.empty(0, 2, dtype=torch.long), *pairs]))
    lost = torch.ones(size, dtype=torch.bool)
    lost[roots[torch.tensor(sorted(fate.seen), dtype=torch.long)]] = False
    lost &= roots == torch.arange(size)
    numbers = torch.where(lost, lost.cumsum(0) - 1, torch.tensor(-1))
    return numbers[roots]


def changes(state: State, after: dict[str, Tensor], shift: Tensor, moves: list[Direct | Through]) -> None:
    """Let the weights in ``moves`` follow a shift."""
    for move in moves:
        by = shift[move.origin]
        if isinstance(move, Through):
            matrix = taken(state, move.weight, move.matrix)
            by = by @ (matrix if matrix.ndim == 2 else matrix.sum(-1))
        old = after.get(move.name, state[move.name]).reshape(-1)
        if isinstance(move, Direct) and move.rows:
            table = after.get(move.name, state[move.name]).clone()
            table[:, move.places] += move.factor * by
            after[move.name] = table
            continue
        after[move.name] = put({move.name: old}, move.name, move.places, old[move.places] + move.factor * by).reshape(
            state[move.name].shape
        )


def fates(graph: Graph, labels: Labels, sites: list[Site]) -> Iterator[Fate]:
    """What becomes of a shift at all the places a weight is added: alone, then taken back by each sum it reaches."""
    fate = Fate()
    for site in sites:
        Walk(graph, labels, fate).run(site)
    if len(sites) > 1:
        for move in fate.back:
            fate.seen.update(torch.unique(move.origin).tolist())
        fate.back = []
    yield fate
    for stop in _sums(graph, sites[0].value) if len(sites) == 1 else []:
        yield Walk(graph, labels, Fate(), stop=stop).run(sites[0])


def _sums(graph: Graph, value: Value) -> list[Node]:
    """The sums a value reaches before anything but copies."""
    found: list[Node] = []
    stack = [value]
    while stack and len(found) < 4:
        for node in graph.readers(stack.pop()):
            if node.op == "add" and len(set(node.inputs)) == 2:
                found.append(node)
                stack.append(node.outputs[0])
            elif moves(node) or node.op == "native_dropout":
                stack.extend(node.outputs)
    return found


def bias_shifts(graph: Graph, labels: Labels) -> list[Generator]:
    """Shifts of everything that is added: biases, position tables, columns of embeddings."""
    sites: dict[str, list[Site]] = defaultdict(list)
    for node in graph.nodes:
        for site in sites_of(labels, node):
            sites[site.name].append(site)
    found = []
    reads = readings(graph, labels)
    for name, here in sites.items():
        if reads[name] != len(here):  # it is also read where nothing is added
            continue
        embedding = any(s.value.node is not None and s.value.node.op in EMBEDDING for s in here)
        size = graph.state[name].shape[1] if embedding else graph.state[name].shape.numel()
        if embedding and (len(here) > 1 or name in labels.base or len(labels.uses.get(name, ())) > 1):
            continue
        if not embedding and name in labels.uses:
            continue
        unread = set(range(size)) - {int(i) for s in here for i in torch.unique(s.origin)}
        for fate in fates(graph, labels, here):
            fate.seen |= unread
            parts = alike(fate, size)
            if bool((parts >= 0).any()):
                found.append(_bias_family(name, parts, fate, embedding))
    largest: dict[frozenset[str], Generator] = {}  # the same two biases are met from both sides
    for family in found:
        key = frozenset(family.parameters)
        if key not in largest or family.count > largest[key].count:
            largest[key] = family
    return list(largest.values())


def _bias_family(name: str, parts: Tensor, fate: Fate, embedding: bool) -> Generator:
    count = int(parts.max()) + 1

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        shift = torch.where(parts >= 0, numbers[parts.clamp_min(0)], torch.zeros((), dtype=numbers.dtype))
        after = {name: state[name] + (shift if embedding else shift.reshape(state[name].shape))}
        changes(state, after, shift, fate.back)
        changes(state, after, shift, fate.statistics)
        return after

    others = tuple(dict.fromkeys(m.name for m in fate.back))
    kind, what = (
        ("pair", "shift that another bias takes back") if others else ("shift", "shift that is taken off again")
    )
    return Generator(kind, what, (name, *others), count, move)


def weight_shifts(graph: Graph, labels: Labels) -> list[Generator]:
    """W → W + 1uᵀ under a normalizer that takes the mean over the rows' outputs, position by position."""
    places: dict[str, list[tuple[Tensor, Value, int]]] = defaultdict(list)
    for node in graph.nodes:
        found = applied(labels, node)
        if found is not None:
            places[found[0]].append((found[1], node.outputs[0], 1 if node.op == "convolution" else -1))
    families = []
    for name, here in places.items():
        covered = {int(i) for p, _, _ in here for i in p.reshape(-1)[:1]}
        sizes = {p.shape[-1] for p, _, _ in here}
        if len(here) != len(labels.uses.get(name, ())) or name in labels.base or len(here) > 1 < len(covered | sizes):
            continue
        fate, size = Fate(), here[0][0].shape[-1]
        for _, value, axis in here:
            channel = (
                torch.arange(size).reshape([-1] + [1] * (len(value.shape) - 2)) if axis == 1 else torch.arange(size)
            )
            Walk(graph, labels, fate).run(Site(name, value, channel.expand(value.shape), positions(value, axis)))
        if not fate.anywhere or fate.back:
            continue
        parts = alike(fate, size)
        if bool((parts >= 0).any()):
            families.append(_weight_family(name, here[0][0], parts))
    return families


def _weight_family(name: str, matrix: Tensor, parts: Tensor) -> Generator:
    groups, inputs = int(parts.max()) + 1, matrix[..., 0].numel()

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        shift = numbers.reshape(groups, *matrix.shape[:-1])  # (groups, in, …)
        chosen = torch.where(parts >= 0, parts, groups)
        table = torch.cat([shift, torch.zeros_like(shift[:1])])[chosen].movedim(0, -1)
        return {name: put(state, name, matrix, taken(state, name, matrix) + table)}

    return Generator("shift", "the same row added to every row under a mean", (name,), groups * inputs, move)
