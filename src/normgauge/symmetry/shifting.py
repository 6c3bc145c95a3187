"""Shifts of weights as families of moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

import torch
from torch import Tensor, nn

from normgauge.symmetry.generators import Generator, State, put, taken
from normgauge.symmetry.graph import Node, Value
from normgauge.symmetry.labels import Labels, components
from normgauge.symmetry.operations import (
    EMBEDDING,
    Normal,
    centres,
    channel_axis,
    channels_of,
    mean_dims,
    moves,
    normalization,
)
from normgauge.symmetry.shifts import Walk
from normgauge.symmetry.sites import Fate, Follow, Site, applied, positions, readings, sites_of


def alike(fate: Fate, size: int) -> Tensor:
    """For every entry of a weight, the number of its set of entries that may be shifted alike; −1 where none may."""
    pairs = [torch.stack([group[:, :1].expand(group.shape), group], 2).reshape(-1, 2) for group in fate.together]
    roots = components(size, torch.cat([torch.empty(0, 2, dtype=torch.long), *pairs]))
    lost = torch.ones(size, dtype=torch.bool)
    lost[roots[torch.tensor(sorted(fate.seen), dtype=torch.long)]] = False
    lost &= roots == torch.arange(size)
    numbers = torch.where(lost, lost.cumsum(0) - 1, torch.tensor(-1))
    return numbers[roots]


def changes(state: State, after: dict[str, Tensor], shift: Tensor, followers: list[Follow]) -> None:
    """Let the weights that follow a shift follow it."""
    for follow in followers:
        by = shift[follow.origin]
        if follow.matrix is not None:
            matrix = taken(state, *follow.matrix)
            by = by @ (matrix if matrix.ndim == 2 else matrix.sum(-1))
        now = {follow.name: after.get(follow.name, state[follow.name])}
        entries = taken(now, follow.name, follow.places) + follow.factor * by
        after[follow.name] = put(now, follow.name, follow.places, entries)


def fates(labels: Labels, sites: list[Site]) -> Iterator[Fate]:
    """What becomes of a shift at all the places a weight is added: alone, then taken back by each sum it reaches."""
    fate = Fate()
    for site in sites:
        Walk(labels, fate).run(site)
    if len(sites) > 1:
        for follow in fate.back:
            fate.spoil(follow.origin)
        fate.back = []
    yield fate
    for stop in _sums(labels, sites[0].value) if len(sites) == 1 else []:
        yield Walk(labels, Fate(), stop=stop).run(sites[0])


def _sums(labels: Labels, value: Value) -> list[Node]:
    """The sums a value reaches before anything but copies."""
    found: list[Node] = []
    stack = [value]
    while stack and len(found) < 4:
        for node in labels.graph.readers(stack.pop()):
            if node.op == "add" and len(set(node.inputs)) == 2:
                found.append(node)
                stack.append(node.outputs[0])
            elif moves(node) or node.op == "native_dropout":
                stack.extend(node.outputs)
    return found


def bias_shifts(labels: Labels) -> list[Generator]:
    """Shifts of everything that is added: biases, position tables, columns of embeddings."""
    sites: dict[str, list[Site]] = defaultdict(list)
    for node in labels.graph.nodes:
        for site in sites_of(labels, node):
            sites[site.name].append(site)
    found = []
    reads = readings(labels)
    for name, here in sites.items():
        if reads[name] != len(here):  # it is also read where nothing is added
            continue
        embedding = any(s.value.node is not None and s.value.node.op in EMBEDDING for s in here)
        shape = labels.graph.state[name].shape
        size = shape[1] if embedding else shape.numel()
        if embedding and (len(here) > 1 or name in labels.base or len(labels.uses.get(name, ())) > 1):
            continue
        if not embedding and name in labels.uses:
            continue
        unread = set(range(size)) - {int(i) for s in here for i in torch.unique(s.origin)}
        for fate in fates(labels, here):
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


def weight_shifts(labels: Labels) -> list[Generator]:
    """W → W + 1uᵀ under a normalizer that takes the mean over the rows' outputs, position by position."""
    places: dict[str, list[tuple[Tensor, Node]]] = defaultdict(list)
    for node in labels.graph.nodes:
        if (found := applied(labels, node)) is not None:
            places[found[0]].append((found[1], node))
    families = []
    for name, here in places.items():
        covered = {int(i) for p, _ in here for i in p.reshape(-1)[:1]}
        sizes = {p.shape[-1] for p, _ in here}
        if len(here) != len(labels.uses.get(name, ())) or name in labels.base or len(here) > 1 < len(covered | sizes):
            continue
        fate = Fate()
        for _, node in here:
            value = node.outputs[0]
            Walk(labels, fate).run(Site(name, value, channels_of(node), positions(value, channel_axis(node))))
        parts = alike(fate, here[0][0].shape[-1])
        if fate.anywhere and not fate.back and bool((parts >= 0).any()):
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


def kernel_shifts(labels: Labels) -> list[Generator]:
    """w − mean(w): a weight that is centred before it is used may be shifted as far as the mean reaches."""
    families = []
    reads = readings(labels)
    for node in labels.graph.nodes:
        found = labels.rearranged(node.args[0]) if centres(node) else None
        if found is None or reads[found[0]] != 2:
            continue
        name, places = found
        dims = mean_dims(node.args[1].node, places.ndim)
        rest = [1 if d in dims else n for d, n in enumerate(places.shape)]

        def move(
            state: State, numbers: Tensor, name: str = name, places: Tensor = places, rest: list[int] = rest
        ) -> dict[str, Tensor]:
            return {name: put(state, name, places, taken(state, name, places) + numbers.reshape(rest))}

        what = "shift that is taken off before the weight is used"
        families.append(Generator("shift", what, (name,), torch.Size(rest).numel(), move))
    return families


def bias_pairs(model: nn.Module, names: Collection[str]) -> Iterator[Generator]:
    """b_ih + s, b_hh − s: a gate sees their sum, at every moment; but a GRU's reset gate comes between the last third.

    Args:
        model: the network.
        names: its weights.
    """
    for path, module in model.named_modules():
        if not isinstance(module, nn.RNNBase | nn.RNNCellBase):
            continue
        third = isinstance(module, nn.GRU | nn.GRUCell)
        for key in [key for key in module._parameters if key.startswith("bias_ih")]:
            given, own = (f"{path}.{k}" if path else k for k in (key, key.replace("_ih", "_hh")))
            if given in names and own in names:
                size = module.get_parameter(key).numel()
                yield _pair(given, own, 2 * size // 3 if third else size)


def _pair(given: str, own: str, count: int) -> Generator:
    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        shift = torch.cat([numbers, numbers.new_zeros(len(state[given]) - count)])
        return {given: state[given] + shift, own: state[own] - shift}

    return Generator("pair", "shift that another bias takes back", (given, own), count, move)


def mean_shifts(labels: Labels, eps: dict[str, float]) -> list[Generator]:
    """One family for every frozen normalizer with a mean and a shift of its own.

    y = γ (x − m)/√(v + ε) + β does not change under m → m + δ, β → β + γδ/√(v + ε).
    """
    reads = readings(labels)
    families = []
    for node in labels.graph.nodes:
        normal = normalization(node)
        if normal is None or not normal.frozen or not normal.statistics:
            continue
        shift = labels.rearranged(normal.bias)
        if shift is not None and reads[normal.statistics[0].name] == 1 == reads[shift[0]]:
            families.append(_mean_family(labels, normal, *shift, eps))
    return families


def _mean_family(labels: Labels, normal: Normal, shift: str, places: Tensor, eps: dict[str, float]) -> Generator:
    mean, variance = (v.name for v in normal.statistics)
    gain = labels.rearranged(normal.weight)

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        by = numbers / (state[variance] + eps.get(variance, 0.0)).sqrt()
        by = by * taken(state, *gain) if gain is not None else by
        return {mean: state[mean] + numbers, shift: put(state, shift, places, taken(state, shift, places) + by)}

    return Generator("pair", "shift of a frozen mean that the bias takes back", (mean, shift), len(places), move)
