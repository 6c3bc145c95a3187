"""Shifts of weights as families of moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

import torch
from torch import Tensor, nn

from normgauge.geometry.symmetry.generators import Generator, State, put_entries, taken_entries
from normgauge.geometry.symmetry.graph import GraphValue, Node
from normgauge.geometry.symmetry.labels import Labels, components
from normgauge.geometry.symmetry.operations import (
    EMBEDDING,
    NormalizerNode,
    channel_axis,
    channels_of,
    mean_dims,
    normalization,
    only_moves,
    subtracts_mean,
)
from normgauge.geometry.symmetry.shifts import ShiftWalk
from normgauge.geometry.symmetry.sites import Fate, Follow, Site, positions, product_weight, reading_counts, sites_of


def shift_sets(fate: Fate, size: int) -> Tensor:
    """For every entry of a weight, the number of its set of entries that may be shifted alike; −1 where none may."""
    pairs = [torch.stack([group[:, :1].expand(group.shape), group], 2).reshape(-1, 2) for group in fate.together]
    roots = components(size, torch.cat([torch.empty(0, 2, dtype=torch.long), *pairs]))
    lost = torch.ones(size, dtype=torch.bool)
    lost[roots[torch.tensor(sorted(fate.seen), dtype=torch.long)]] = False
    lost &= roots == torch.arange(size)
    numbers = torch.where(lost, lost.cumsum(0) - 1, torch.tensor(-1))
    return numbers[roots]


def changes(state: State, after: dict[str, Tensor], shift: Tensor, followers: Iterable[Follow]) -> None:
    """Let the weights that follow a shift follow it."""
    for follow in followers:
        by = shift[follow.origin]
        if follow.matrix is not None:
            matrix = taken_entries(state, *follow.matrix)
            by = by @ (matrix if matrix.ndim == 2 else matrix.sum(-1))
        now = {follow.name: after.get(follow.name, state[follow.name])}
        entries = taken_entries(now, follow.name, follow.places) + follow.factor * by
        after[follow.name] = put_entries(now, follow.name, follow.places, entries)


def fates(labels: Labels, sites: list[Site]) -> Iterator[Fate]:
    """What becomes of a shift at all the places a weight is added: alone, then taken back by each sum it reaches."""
    fate = Fate()
    for site in sites:
        ShiftWalk(labels, fate).run(site)
    if len(sites) > 1:
        for follow in fate.back:
            fate.spoil(follow.origin)
        fate.back = []
    yield fate
    for stop in _sums(labels, sites[0].value) if len(sites) == 1 else []:
        yield ShiftWalk(labels, Fate(), stop=stop).run(sites[0])


def _sums(labels: Labels, value: GraphValue) -> list[Node]:
    """The sums a value reaches before anything but copies."""
    found: list[Node] = []
    stack = [value]
    while stack and len(found) < 4:
        for node in labels.graph.readers(stack.pop()):
            if node.op == "add" and len(set(node.inputs)) == 2:
                found.append(node)
                stack.append(node.outputs[0])
            elif only_moves(node) or node.op == "native_dropout":
                stack.extend(node.outputs)
    return found


def bias_shifts(labels: Labels) -> list[Generator]:
    """Shifts of everything that is added: biases, position tables, columns of embeddings."""
    sites: dict[str, list[Site]] = defaultdict(list)
    for node in labels.graph.nodes:
        for site in sites_of(labels, node):
            sites[site.name].append(site)
    found = []
    reads = reading_counts(labels)
    for name, here in sites.items():
        embedding = any(s.value.node is not None and s.value.node.op in EMBEDDING for s in here)
        alone = len(here) == 1 and labels.single(name) if embedding else name not in labels.uses
        if reads[name] != len(here) or not alone:  # it is also read where nothing is added
            continue
        shape = labels.graph.state[name].shape
        size = shape[1] if embedding else shape.numel()
        unread = set(range(size)) - {int(i) for s in here for i in torch.unique(s.origin)}
        for fate in fates(labels, here):
            fate.seen |= unread
            parts = shift_sets(fate, size)
            if bool((parts >= 0).any()):
                found.append(_family(name, parts if embedding else parts.reshape(shape), fate))
    largest: dict[frozenset[str], Generator] = {}  # the same two biases are met from both sides
    for family in found:
        key = frozenset(family.parameters)
        if key not in largest or family.count > largest[key].count:
            largest[key] = family
    return list(largest.values())


def _family(name: str, parts: Tensor, fate: Fate, what: str = "") -> Generator:
    """A number for each set of entries (or columns) that are shifted alike, none where ``parts`` is −1."""

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        shift = torch.where(parts >= 0, numbers[parts.clamp_min(0)], torch.zeros((), dtype=numbers.dtype))
        after = {name: state[name] + shift}
        changes(state, after, shift.reshape(-1), fate.back + fate.statistics)
        return after

    others = tuple(dict.fromkeys(follow.name for follow in fate.back))
    kind, usual = (
        ("pair", "shift that another bias takes back") if others else ("shift", "shift that is taken off again")
    )
    return Generator(kind, what or usual, (name, *others), int(parts.max()) + 1, move)


def _placed(shape: torch.Size, places: Tensor, numbers: Tensor) -> Tensor:
    """Numbers at some places of a weight, −1 elsewhere."""
    parts = torch.full((shape.numel(),), -1)
    parts[places.reshape(-1)] = numbers.expand(places.shape).reshape(-1)
    return parts.reshape(shape)


def weight_shifts(labels: Labels) -> Iterator[Generator]:
    """W → W + 1uᵀ under a normalizer that takes the mean over the rows' outputs, position by position."""
    places: dict[str, list[tuple[Tensor, Node]]] = defaultdict(list)
    for node in labels.graph.nodes:
        if (found := product_weight(labels, node)) is not None:
            places[found[0]].append((found[1], node))
    for name, here in places.items():
        covered = {int(i) for p, _ in here for i in p.reshape(-1)[:1]}
        sizes = {p.shape[-1] for p, _ in here}
        if len(here) != len(labels.uses.get(name, ())) or name in labels.base or len(here) > 1 < len(covered | sizes):
            continue
        fate, matrix = Fate(), here[0][0]
        for _, node in here:
            value = node.outputs[0]
            ShiftWalk(labels, fate).run(Site(name, value, channels_of(node), positions(value, channel_axis(node))))
        parts = shift_sets(fate, matrix.shape[-1])
        if fate.anywhere and not fate.back and bool((parts >= 0).any()):
            inputs = torch.arange(matrix[..., 0].numel()).reshape(*matrix.shape[:-1], 1)
            numbers = torch.where(parts >= 0, parts * inputs.numel() + inputs, torch.tensor(-1))
            what = "the same row added to every row under a mean"
            yield _family(name, _placed(labels.graph.state[name].shape, matrix, numbers), Fate(), what)


def kernel_shifts(labels: Labels) -> Iterator[Generator]:
    """w − mean(w): a weight that is centred before it is used may be shifted as far as the mean reaches."""
    reads = reading_counts(labels)
    for node in labels.graph.nodes:
        found = labels.rearranged(node.args[0]) if subtracts_mean(node) else None
        if found is not None and reads[found[0]] == 2:
            name, places = found
            dims = mean_dims(node.args[1].node, places.ndim)
            rest = torch.Size(1 if d in dims else n for d, n in enumerate(places.shape))
            parts = _placed(labels.graph.state[name].shape, places, torch.arange(rest.numel()).reshape(rest))
            yield _family(name, parts, Fate(), "shift that is taken off before the weight is used")


def bias_pairs(model: nn.Module, names: Collection[str]) -> Iterator[Generator]:
    """b_ih + s, b_hh − s: a gate sees their sum, at every moment; but a GRU's reset gate comes between the last third.

    Args:
        model: the network.
        names: its weights.
    """
    for path, module in model.named_modules():
        if not isinstance(module, nn.RNNBase | nn.RNNCellBase):
            continue
        for key in [key for key in module._parameters if key.startswith("bias_ih")]:
            given, own = (f"{path}.{k}" if path else k for k in (key, key.replace("_ih", "_hh")))
            if given in names and own in names:
                shape = module.get_parameter(key).shape
                free = torch.arange(2 * shape[0] // 3 if isinstance(module, nn.GRU | nn.GRUCell) else shape[0])
                yield _family(given, _placed(shape, free, free), Fate(back=[Follow(own, free, free, -1.0)]))


def mean_shifts(labels: Labels, eps: dict[str, float]) -> Iterator[Generator]:
    """One family for every frozen normalizer with a mean and a shift of its own.

    y = γ (x − m)/√(v + ε) + β does not change under m → m + δ, β → β + γδ/√(v + ε).
    """
    reads = reading_counts(labels)
    for node in labels.graph.nodes:
        normal = normalization(node)
        if normal is not None and normal.frozen and normal.statistics:
            shift = labels.rearranged(normal.bias)
            if shift is not None and reads[normal.statistics[0].name] == 1 == reads[shift[0]]:
                yield _mean_family(labels, normal, *shift, eps)


def _mean_family(
    labels: Labels, normal: NormalizerNode, shift: str, places: Tensor, eps: dict[str, float]
) -> Generator:
    mean, variance = (v.name for v in normal.statistics)
    gain = labels.rearranged(normal.weight)

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        by = numbers / (state[variance] + eps.get(variance, 0.0)).sqrt()
        by = by * taken_entries(state, *gain) if gain is not None else by
        return {
            mean: state[mean] + numbers,
            shift: put_entries(state, shift, places, taken_entries(state, shift, places) + by),
        }

    return Generator("pair", "shift of a frozen mean that the bias takes back", (mean, shift), len(places), move)
