"""Shifts of weights as families of moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.symmetry.generators import Generator, State, put, taken
from normgauge.symmetry.graph import Graph, Node, Value
from normgauge.symmetry.labels import Labels
from normgauge.symmetry.operations import moves, normalization, replay
from normgauge.symmetry.shifts import Direct, Fate, Through, Walk
from normgauge.symmetry.sites import Site, applied, bias_behind, positions, reading, readings, sites_of
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
            if node.op == "add":
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
        embedding = any(s.value.node is not None and s.value.node.op == "embedding" for s in here)
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
    return list({frozenset(family.parameters): family for family in reversed(found)}.values())[::-1]


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


def reader_shifts(graph: Graph, labels: Labels) -> list[Generator]:
    """Behind a normalizer with a mean, Σ_k (z_k − β_k)/γ_k = 0: a matrix that reads z may add any multiple of 1/γ."""
    families = []
    for node in graph.nodes:
        normal = normalization(node)
        if normal is None or normal.frozen or not normal.centres or normal.kind == "batch":
            continue
        value = node.outputs[0]
        ids = torch.arange(normal.groups(torch.zeros(value.shape)).shape[0])
        group = ids[:, None].expand(-1, value.shape.numel() // len(ids)).reshape(value.shape)
        vector = torch.arange(value.shape[1] if normal.axis == 1 else normal.size)
        entry = normal.over_channels(
            vector if normal.axis == 1 else vector.reshape(value.shape[-_trailing(node) :]), len(value.shape)
        )
        carried = {value.index: (entry.expand(value.shape), group, value.shape.numel() // len(ids))}
        for reader in graph.nodes:
            active = [v for v in dict.fromkeys(reader.inputs) if v.index in carried]
            if len(active) != 1 or reader.index <= node.index:
                continue
            entries, groups, size = carried[active[0].index]
            if moves(reader) or reader.op == "native_dropout":
                moved = [entries], [groups]
                if moves(reader):
                    moved = replay(reader, {active[0].index: entries}), replay(reader, {active[0].index: groups})
                for out, e, g in zip(reader.outputs, *moved, strict=False):
                    carried[out.index] = (e, g, size)
            elif reader.op == "mean":
                averaged = _averaged(reader, entries, groups)
                if averaged is not None:
                    shrunk = size * averaged[0].numel() // entries.numel()
                    carried[reader.outputs[0].index] = (*averaged, shrunk)
            else:
                family = _reader_family(graph, labels, node, reader, active[0], entries, groups, size)
                families += [family] if family else []
    return families


def _averaged(node: Node, entries: Tensor, groups: Tensor) -> tuple[Tensor, Tensor] | None:
    """A mean over positions keeps Σ = 0, if every channel of a group is averaged over the same positions."""
    first = [entries, groups]
    for dim in node.arg(1) or range(entries.ndim):
        first = [t.narrow(dim, 0, 1) for t in first]
    if any(bool((t != f).any()) for t, f in zip((entries, groups), first, strict=True)):
        return None
    shape = node.outputs[0].shape
    return first[0].reshape(shape), first[1].reshape(shape)


def _trailing(node: Node) -> int:
    return len(node.args[1]) if node.op == "native_layer_norm" else 1


def _reader_family(
    graph: Graph, labels: Labels, node: Node, reader: Node, active: Value, entries: Tensor, groups: Tensor, size: int
) -> Generator | None:
    normal = normalization(node)
    assert normal is not None
    found = reading(labels, reader, active) if reader.op in ("mm", "addmm", "convolution") else None
    if found is None or len(labels.uses.get(found[0], ())) > 1 or found[0] in labels.base:
        return None
    if reader.op == "convolution" and (reader.args[8] != 1 or (any(reader.args[4]) and normal.bias is not None)):
        return None
    channels = reader.op == "convolution"
    rows = entries.movedim(1, -1).flatten(0, -2) if channels else entries
    sets = groups.movedim(1, -1).flatten(0, -2) if channels else groups
    local = _local(sets)
    if bool((rows != rows[:1]).any()) or local is None or bool((torch.bincount(local) != size).any()):
        return None
    behind = bias_behind(graph, labels, reader)
    if normal.bias is not None and behind is None:
        return None
    gain, shift = (labels.rearranged(v) if v is not None else None for v in (normal.weight, normal.bias))
    if (normal.weight is not None and gain is None) or (normal.bias is not None and shift is None):
        return None
    name, matrix = found
    matrix = matrix.flatten(2).movedim(2, 0) if channels else matrix[None]  # (taps, in, out)
    return _reading(name, matrix, local, rows[0], gain, shift, behind)


def _local(sets: Tensor) -> Tensor | None:
    """Groups of a row numbered from 0, if every row has the same pattern; an entry from nowhere spoils it."""
    if bool((sets < 0).any()):
        return None
    first = torch.unique(sets[0], return_inverse=True)[1]
    for row in sets[1:]:
        if not bool((torch.unique(row, return_inverse=True)[1] == first).all()):
            return None
    return first


def _reading(
    name: str,
    matrix: Tensor,
    local: Tensor,
    entry: Tensor,
    gain: tuple[str, Tensor] | None,
    shift: tuple[str, Tensor] | None,
    behind: tuple[str, Tensor, float] | None,
) -> Generator:
    taps, outputs, groups = matrix.shape[0], matrix.shape[2], int(local.max()) + 1

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        amount = numbers.reshape(taps, groups, outputs)
        ones = torch.ones(len(entry), dtype=torch.float64)
        inverse = ones / (taken(state, gain[0], gain[1]).reshape(-1)[entry] if gain else ones)
        after = {name: put(state, name, matrix, taken(state, name, matrix) + inverse[:, None] * amount[:, local])}
        if shift is not None and behind is not None:
            beta = taken(state, shift[0], shift[1]).reshape(-1)[entry]
            by = torch.einsum("k,tko->o", beta * inverse, amount[:, local])
            bias, places, sign = behind
            if bias:
                old = state[bias].reshape(-1)
                after[bias] = put({bias: old}, bias, places, old[places] + sign * by).reshape(state[bias].shape)
        return after

    others = (behind[0],) if shift is not None and behind is not None and behind[2] < 0 else ()
    what = "multiples of 1/gain added to rows that read a centred value"
    return Generator("shift", what, (name, *others), taps * groups * outputs, move)
