"""What reads a value that a normalizer has centred.

Behind a normalizer with a mean, Σ_k (z_k − β_k)/γ_k = 0 over every group: a matrix that reads z may add any multiple of
1/γ to its rows, and the bias behind it takes back what the shifts β make of that. Where there is no such bias, the same
multiples take back a shift of β itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from normgauge.geometry.symmetry.generators import Generator, State, put_entries, taken_entries
from normgauge.geometry.symmetry.graph import GraphValue, Node
from normgauge.geometry.symmetry.labels import Labels, distinct_rows
from normgauge.geometry.symmetry.operations import (
    NormalizerNode,
    channels_of,
    mean_dims,
    normalization,
    only_moves,
    replay_entries,
)
from normgauge.geometry.symmetry.sites import bias_behind, reading_counts, weight_applied_to

Placed = tuple[str, Tensor]


@dataclass(frozen=True, slots=True)
class Centred:
    """A value whose groups sum to zero: for every entry its channel and its group, and the entries a group has."""

    entry: Tensor
    group: Tensor
    size: int
    alone: bool  # whether nothing else has read what it comes from

    def moved(self, node: Node, value: GraphValue) -> list[Centred]:
        """After a copy, view or cut."""
        entries, groups = (replay_entries(node, {value.index: t}) for t in (self.entry, self.group))
        return [replace(self, entry=e, group=g) for e, g in zip(entries, groups, strict=True)]

    def averaged(self, node: Node) -> Centred | None:
        """After a mean over positions: sums stay zero if every position has the same channels in its groups."""
        dims = mean_dims(node, self.entry.ndim)
        first = list(range(len(dims)))
        entry, group = (t.movedim(dims, first).flatten(0, len(dims) - 1) for t in (self.entry, self.group))
        if bool((entry != entry[:1]).any()) or bool((group < 0).any()) or not _same_sets(group):
            return None
        shape, kept = node.outputs[0].shape, group[0].unique(return_counts=True)[1]
        times = len(group) * len(kept) // len(group.unique())  # positions that one group runs over
        if bool((kept * times != self.size).any()):
            return None
        return Centred(entry[0].reshape(shape), group[0].reshape(shape), int(kept[0]), self.alone)


def _same_sets(groups: Tensor) -> bool:
    """Whether every row cuts its entries into the same sets."""
    if not groups[0].numel():
        return False
    row = torch.arange(len(groups))[:, None].expand(len(groups), groups[0].numel()).reshape(-1)
    first, own = groups[0].reshape(1, -1).expand(len(groups), -1).reshape(-1), groups.reshape(-1)
    count = int(max(groups.max(), row.max())) + 1
    return (
        len(distinct_rows([row, first], count)[0])
        == len(distinct_rows([row, own], count)[0])
        == len(distinct_rows([row, first, own], count)[0])
    )


def reader_shifts(labels: Labels, state: State) -> Iterator[Generator]:
    """The families of every matrix that reads a centred value."""
    for node in labels.graph.nodes:
        normal = normalization(node)
        if normal is None or normal.frozen or not normal.centres or normal.kind == "batch":
            continue
        carried = {node.outputs[0].index: _start(node, normal)}
        for reader, (value, *others) in labels.graph.following(carried, node):
            if others:
                continue
            results: list[Centred | None] = []
            centred = carried[value.index]
            centred = replace(centred, alone=centred.alone and len(labels.graph.readers(value)) == 1)
            if only_moves(reader):
                results = [*centred.moved(reader, value)]
            elif reader.op == "native_dropout":
                results = [centred]
            elif reader.op == "mean":
                results = [centred.averaged(reader)]
            elif (family := _family(labels, state, normal, reader, value, centred)) is not None:
                yield family
            carried.update({o.index: c for o, c in zip(reader.outputs, results, strict=False) if c is not None})


def _start(node: Node, normal: NormalizerNode) -> Centred:
    """Channels and groups of what a normalizer makes."""
    shape = node.outputs[0].shape
    size = normal.groups(torch.empty(shape)).shape[1]
    group = (torch.arange(shape.numel()) // size).reshape(shape)
    last = torch.arange(normal.size).expand(shape.numel() // normal.size, -1)
    return Centred(channels_of(node) if normal.axis == 1 else last.reshape(shape), group, size, True)


def _family(
    labels: Labels, state: State, normal: NormalizerNode, reader: Node, value: GraphValue, centred: Centred
) -> Generator | None:
    """What one matrix may add to its rows; None where something is in the way."""
    found = weight_applied_to(labels, reader, value) if reader.op in ("mm", "addmm", "convolution") else None
    channels = reader.op == "convolution"
    cut = channels and (reader.args[8] != 1 or (any(reader.args[4]) and normal.bias is not None))
    if found is None or not labels.single(found[0]) or cut:
        return None
    entry, group = (t.movedim(1, -1).flatten(0, -2) if channels else t for t in (centred.entry, centred.group))
    if bool((entry != entry[:1]).any()) or bool((group < 0).any()) or not _same_sets(group):
        return None
    local = torch.unique(group[0], return_inverse=True)[1]
    gain, shift = (labels.rearranged(v) for v in (normal.weight, normal.bias))
    computed = (normal.weight is not None and gain is None) or (normal.bias is not None and shift is None)
    if computed or bool((torch.bincount(local) != centred.size).any()):
        return None
    name, matrix = found
    rows = Rows(name, matrix.flatten(2).movedim(2, 0) if channels else matrix[None], local, entry[0], gain, shift)
    behind = bias_behind(labels, reader)
    if shift is None or behind is not None:
        return rows.family(behind)
    lonely = centred.alone and reading_counts(labels)[shift[0]] == 1
    return rows.balanced(state) if lonely and not channels and int(local.max()) == 0 else None


@dataclass(frozen=True, slots=True)
class Rows:
    """A matrix (taps, in, out) that reads a centred value, with the gain and the shift before it."""

    name: str
    matrix: Tensor
    local: Tensor  # the group of every input channel
    entry: Tensor  # its place in gain and shift
    gain: Placed | None
    shift: Placed | None

    def inverse(self, state: State) -> Tensor:
        """1/γ for every input channel."""
        ones = torch.ones(len(self.entry), dtype=torch.float64)
        return ones / taken_entries(state, *self.gain).reshape(-1)[self.entry] if self.gain else ones

    def family(self, behind: tuple[str, Tensor, float] | None) -> Generator:
        """W → W + (1/γ) uᵀ, b → b − u Σ β/γ."""
        taps, outputs, groups = self.matrix.shape[0], self.matrix.shape[2], int(self.local.max()) + 1

        def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
            amount = self.inverse(state)[:, None] * numbers.reshape(taps, groups, outputs)[:, self.local]
            after = {
                self.name: put_entries(
                    state, self.name, self.matrix, taken_entries(state, self.name, self.matrix) + amount
                )
            }
            if self.shift is not None and behind is not None and behind[0]:
                beta = taken_entries(state, *self.shift).reshape(-1)[self.entry]
                bias, places, sign = behind
                moved = taken_entries(state, bias, places) + sign * torch.einsum("k,tko->o", beta, amount)
                after[bias] = put_entries(state, bias, places, moved)
            return after

        others = (behind[0],) if self.shift is not None and behind is not None and behind[2] < 0 else ()
        what = "multiples of 1/gain added to rows that read a centred value"
        return Generator("shift", what, (self.name, *others), taps * groups * outputs, move)

    def balanced(self, state: State) -> Generator | None:
        """β → β + δ, W → W − (1/γ) (Wᵀδ)ᵀ / Σ (β + δ)/γ; not near Σ β/γ = 0, as at β = 0."""
        assert self.shift is not None
        shift, places = self.shift

        def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
            inverse, old = self.inverse(state), taken_entries(state, self.name, self.matrix[0])
            beta = taken_entries(state, shift, places).reshape(-1) + numbers
            by = -inverse[:, None] * (numbers[self.entry] @ old) / (beta[self.entry] * inverse).sum()
            return {
                shift: put_entries(state, shift, places, beta),
                self.name: put_entries(state, self.name, self.matrix[0], old + by),
            }

        parts = taken_entries(state, shift, places).reshape(-1)[self.entry] * self.inverse(state)
        if not float(parts.sum().abs()) > 1e-3 * float(parts.abs().sum()) > 0:
            return None
        what = "shift that multiples of 1/gain in the rows behind it take back"
        return Generator("pair", what, (shift, self.name), places.numel(), move)
