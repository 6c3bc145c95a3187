"""Operator norms of all matrices and convolutions: from below at every reading, from above on a slower clock.

Layers of one shape are measured together. No copy of a weight is kept: from reading to reading there are a few
directions a layer (`warm`), and an upper end belongs to the weights it was proved for (`proofs`) and to no others.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.monitor.launched import kernels
from normgauge.monitor.layers import WatchedLayer
from normgauge.monitor.maps import (
    SMALL_SIDE,
    ConvMaps,
    Maps,
    MatrixMaps,
    frobenius_norms,
    is_pointwise,
    multiplies_doubles,
    spec_of,
    working,
)
from normgauge.monitor.proofs import (
    DENSE,
    FACTORED,
    SLOT,
    Begun,
    begin_proof,
    chance_at,
    factored_proof,
)
from normgauge.monitor.rotation import REMEMBERED, middle
from normgauge.monitor.shards import Block, ShardedMaps
from normgauge.monitor.sheet import Sheet
from normgauge.monitor.warm import BLOCK, WARM_UP, Fold, Job, Turned, cold_space, proved_lower, turn, warm_folded

SUM_ROOM = 1.02  # as many additions in float32 as `frobenius_norms` makes are off by less
UNDERFLOW = 2.0**-63  # squares of smaller numbers may be lost in float32

# Longest sides up to which matrices of all shapes are measured together, on a CPU and on a device that kernels are
# written for; directions are as long as the longest of them
TOGETHER = (4096, 16384)

TALLEST = 4  # long sides for each short one of a matrix that a device measures together with others of that short side

# Entries of all matrices proved at once, of which copies are made: little memory, and on a CPU a short pause
MOST_PROVED, MOST_PROVED_CPU = 2**25, 2**20

MOST_READ = 2**24  # the same for what is read in one go by a graph, which holds its memory

EVERY = slice(None)

# Turns of directions that were left alone for some steps, before a proof looks above them; fewer on a CPU, where a turn
# tells by which factor it raised a norm, once that is below this
STALE_TURNS, SETTLED = 3, 1.003

Factors = tuple[Tensor | None, Tensor | None]  # what a layer's outputs and inputs are multiplied with, if anything


class Together(NamedTuple):
    """What matrices of several shapes have in common that are measured together: about how long the longest is too."""

    device: torch.device
    dtype: torch.dtype
    longest: int


@dataclass(slots=True, eq=False)
class Group:
    """Layers that are measured together.

    Attributes:
        key: device, type and shape of the weight, and the size of the input of a convolution; small ones share one.
        rows: the layers.
        conv: of a convolution; such a group has one layer.
        blocks: where the part of each layer lies that is here, by row; empty where weights are whole.
        grouped: whether matrices of all shapes are multiplied where they are.
        table: where that is.
        size: of its input.
        space: (layers, 3 or `BLOCK`, inputs): directions of the layers as they are.
        folded: (layers, 1, inputs): of the layers as folded.
        folds: whether one of them was folded at the last reading.
        lower: norms from below at the last reading.
        gained: the largest factor by which the last turn found more of a norm than the first direction had shown.
    """

    key: Hashable
    rows: list[int]
    conv: WatchedLayer | None = None
    blocks: dict[int, Block] = field(default_factory=dict)
    grouped: bool = False
    table: Any = None
    size: tuple[int, ...] | None = None
    space: Tensor | None = None
    folded: Tensor | None = None
    folds: bool = False
    lower: Tensor | None = None
    gained: float | None = None

    def maps(
        self, weights: Sequence[Tensor], dtype: torch.dtype | None = None, rows: Sequence[int] | None = None
    ) -> Maps:
        """The maps of these weights, of all rows or some; in the working precision unless another is asked for."""
        if self.blocks:
            blocks = [self.blocks[row] for row in (self.rows if rows is None else rows)]
            return ShardedMaps(weights, blocks, dtype or working(weights[0]))
        if self.conv is not None and self.size is not None:
            return ConvMaps(weights[0], spec_of(self.conv.module, self.size))
        if self.grouped and dtype is None:
            return self._where_they_are(weights)
        upright = [w.flatten(1).mT if is_turned(w) else w.flatten(1) for w in weights]
        return MatrixMaps(upright, dtype or working(weights[0]))

    def _where_they_are(self, weights: Sequence[Tensor]) -> Maps:
        """All matrices without a copy; looked up anew where one of them has moved."""
        made = kernels(weights[0].device)
        if self.table is None or not self.table.holds(weights):
            self.table = made.Table(weights)
        maps: Maps = made.GroupedMaps(weights, self.table)
        return maps

    def job(self, weights: Sequence[Tensor], folds: Sequence[Factors], which: slice = EVERY) -> Job:
        """What is to be turned, of all rows or some; new directions of all are turned until they are warm."""
        maps = self.maps(weights, rows=self.rows[which])
        if isinstance(maps, MatrixMaps):
            folds = [one[::-1] if is_turned(weight) else one for one, weight in zip(folds, weights, strict=True)]
        fold = Fold(*(_factors(maps, [one[side] for one in folds], side) for side in (0, 1)))
        folds_now = fold.outer is not None or fold.inner is not None
        if self.space is None or self.folded is None or (which == EVERY and folds_now != self.folds):
            # New directions for the folded maps too: what they find must not depend on the gauge of the plain ones.
            several = 3 if isinstance(maps, ConvMaps) or maps.device.type != "cpu" else BLOCK
            cold = cold_space(maps.count, maps.inputs, weights[0], maps.dtype, several)
            if maps.inside is not None:
                cold = F.normalize(cold * maps.inside, dim=-1)
            self.folds, self.folded = folds_now, cold[:, :1].clone()
            if self.space is None:
                self.space = cold
                for _ in range(WARM_UP - 1):
                    (turned,) = turn([Job(maps, self.space, self.folded, fold)])
                    self.space, self.folded = turned.space, turned.folded
            else:
                self.folded = warm_folded(maps, self.folded, fold)
        return Job(maps, self.space[which][..., : maps.inputs], self.folded[which][..., : maps.inputs], fold)

    def lowers(self, weights: Sequence[Tensor], which: slice) -> Tensor:
        """Norms from below of some rows, whose directions are turned first, as long as that raises them."""
        job = self.job(weights, [(None, None)] * len(weights), which)
        for _ in range(STALE_TURNS):
            (found,) = turn([job])
            job.space.copy_(found.space)
            if found.gained is not None and bool((found.gained < SETTLED).all()):
                break
        else:
            (found,) = turn([job], moves=False)
        sizes, lost = frobenius_norms(weights), math.sqrt(job.maps.inputs * job.maps.outputs) * UNDERFLOW
        return proved_lower(job.maps, found, SUM_ROOM * sizes + lost)

    def put(self, weights: Sequence[Tensor], job: Job, turned: Turned, sheet: Sheet, which: slice = EVERY) -> None:
        """Keep the directions, and write down Frobenius norm, norm from below and folded norm of each layer."""
        maps, rows = job.maps, self.rows[which]
        self.gained = None if turned.gained is None else float(turned.gained.nan_to_num(1.0).amax())
        if turned.space is not job.space:
            job.space.copy_(turned.space)  # where they were: a graph goes on from there
            job.folded.copy_(turned.folded)
        sizes = maps.sizes()
        lost = math.sqrt(maps.inputs * maps.outputs) * UNDERFLOW  # squares that underflow are smaller
        sheet.put_column(rows, "frobenius", sizes)
        self.lower = proved_lower(maps, turned, SUM_ROOM * sizes + lost)
        sheet.put_column(rows, "norm_lower", self.lower)
        sheet.put_column(rows, "folded", turned.gain)


@dataclass(slots=True, eq=False)
class Part:
    """Layers of one group whose norms are proved at one time.

    Attributes:
        group: theirs.
        rows: the layers.
        proved: the step of the last proof.
        cost: seconds that one takes, on the host or on the device, whichever is longer.
        taken: on the host, by the last few.
    """

    group: Group
    rows: list[int]
    proved: int | None = None
    cost: float = 0.0
    taken: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def prove(self, weights: Sequence[Tensor], step: int, chance: float, seed: int) -> Begun:
        """Begin the proof of each layer's norm as it is now."""
        return begin_proof(self.group.maps(weights, torch.float64, self.rows), self.rows, step, chance, seed)

    def factored(self, weights: Sequence[Tensor], step: int, *, fresh: bool) -> Begun | None:
        """A proof by factorization, where a CPU has matrices of its size and they are known well from below.

        Args:
            weights: of the layers, as they are now.
            step: of this reading.
            fresh: whether the directions were turned at this reading.
        """
        group, first = self.group, weights[0]
        plain = group.conv is None and not group.blocks and working(first) == torch.float32
        if not plain or group.lower is None or not DENSE < min(first.flatten(1).shape) <= FACTORED:
            return None
        begin = group.rows.index(self.rows[0])
        which = slice(begin, begin + len(self.rows))
        lowers = group.lower[which] if fresh else group.lowers(weights, which)
        begun = factored_proof(weights, lowers.tolist(), self.rows, step)
        if begun is None and not fresh:  # directions that were left alone for long: a few more turns cost least
            begun = factored_proof(weights, group.lowers(weights, which).tolist(), self.rows, step)
        return begun


class Norms:
    """The groups of a model's matrices and convolutions.

    Attributes:
        groups: what is read together.
        parts: what is proved together.
    """

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.parts: list[Part] = []
        self._keys: dict[int, Hashable] = {}
        self._slots: dict[int, int] = {}  # of the last proof of each layer that spent a chance

    def __contains__(self, row: int) -> bool:
        return row in self._keys

    def follow(
        self, weights: Mapping[int, tuple[WatchedLayer, Tensor]], sizes: Mapping[nn.Module, tuple[int, ...]]
    ) -> None:
        """Take in which layers there are: a convolution once the size of its input is known.

        A weight of another device, type or shape, or a convolution on a larger input, is followed anew.
        """
        keys = {row: key for row, (layer, w) in weights.items() if (key := _key(row, layer, w, sizes)) is not None}
        if keys == self._keys:
            return
        known, self.groups = {(group.key, *group.rows): group for group in self.groups}, []
        together: dict[Hashable, list[int]] = {}
        for row, key in keys.items():
            together.setdefault(key, []).append(row)
        for key, unsorted in together.items():
            rows = sorted(unsorted, key=lambda row: weights[row][0].shape)  # parts are of one shape where they can
            layer = weights[rows[0]][0]
            conv = layer if layer.role == "conv" and not is_pointwise(layer.module) else None
            size = sizes.get(layer.module) if conv is not None else None
            blocks = {row: block for row in rows if conv is None and (block := weights[row][0].block) is not None}
            device = weights[rows[0]][1].device
            where_they_are = isinstance(key, Together) and device.type != "cpu"
            group = known.get((key, *rows)) or Group(key, rows, conv, blocks, where_they_are, size=size)
            self.groups.append(group)
            if group not in known.values():
                by_gram = conv is None and not blocks and multiplies_doubles(device)
                self.parts += _parts(group, [weights[row][0].shape for row in rows], device, by_gram)
        self.parts = [part for part in self.parts if any(part.group is group for group in self.groups)]
        self._keys = keys

    def read(
        self,
        weights: Mapping[int, Tensor],
        fold: Callable[[int], Factors],
        turns: int,
        sheet: Sheet,
        *,
        frugal: bool = False,
    ) -> None:
        """Turn the directions of all groups of a device together, and write down what they show."""
        devices: dict[torch.device, list[Group]] = {}
        for group in self.groups:
            devices.setdefault(weights[group.rows[0]].device, []).append(group)
        for groups in devices.values():
            given = [[weights[row] for row in group.rows] for group in groups]
            folds = [[fold(row) for row in group.rows] for group in groups]
            read_together(groups, given, folds, turns, sheet, frugal=frugal)

    @property
    def state(self) -> list[Tensor]:
        """Where the directions are."""
        spaces = (space for group in self.groups for space in (group.space, group.folded))
        tables = (group.table.state for group in self.groups if group.table is not None)
        return [*(space for space in spaces if space is not None), *(tensor for state in tables for tensor in state)]

    @property
    def gained(self) -> float | None:
        """By which factor the last turn raised a norm; None where directions did not turn, or on a device."""
        return max((group.gained for group in self.groups if group.gained is not None), default=None)

    @property
    def proofs(self) -> list[tuple[int, float]]:
        """For what is proved together the step of the last proof, 0 before there was one, and seconds that it takes."""
        return [(part.proved or 0, part.cost) for part in self.parts]

    def provable(self, step: int) -> list[Part]:
        """Parts that may be proved at this step, the oldest proofs first: those that spend a chance once in a slot."""
        free = [p for p in self.parts if all(self._slots.get(row, -1) < step // SLOT for row in p.rows)]
        return sorted(free, key=lambda part: -1 if part.proved is None else part.proved)

    def chance(self, step: int) -> float:
        """The chance that the proof of one layer may spend at this step."""
        return chance_at(step, len(self._keys))

    def book(self, part: Part, begun: Begun, seconds: float) -> None:
        """Note that the proof of one part was begun, what it took and what it spends."""
        part.proved = begun.step
        part.taken.append(seconds)
        part.cost = middle(part.taken)
        if begun.chance:
            self._slots.update(dict.fromkeys(part.rows, begun.step // SLOT))


def read_together(
    groups: Sequence[Group],
    weights: Sequence[Sequence[Tensor]],
    folds: Sequence[Sequence[Factors]],
    turns: int,
    sheet: Sheet,
    *,
    frugal: bool = False,
) -> None:
    """Turn the directions of groups on one device, and write down what they show; with no turn, where they are.

    Args:
        groups: what is read.
        weights: of each group.
        folds: of each weight.
        turns: how often directions turn.
        sheet: where to write.
        frugal: whether a few at a time are read, which takes little memory and more launches.
    """
    together = list(zip(groups, weights, folds, strict=True))
    if frugal:
        for group, given, factors in together:
            folds_now = any(factor is not None for pair in factors for factor in pair)
            if group.space is None or folds_now != group.folds:
                group.job(given, factors)  # directions of all are warmed up
            most = len(given) if group.grouped else max(1, MOST_READ // max(weight.numel() for weight in given))
            for first in range(0, len(given), most):
                which = slice(first, first + most)
                _read_jobs([(group, given[which], factors[which], which)], turns, sheet)
        return
    _read_jobs([(*parts, EVERY) for parts in together], turns, sheet)


def _read_jobs(
    parts: Sequence[tuple[Group, Sequence[Tensor], Sequence[Factors], slice]], turns: int, sheet: Sheet
) -> None:
    begun = [group.job(given, factors, which) for group, given, factors, which in parts]
    jobs, found = begun, [] if turns else turn(begun, moves=False)
    for _ in range(turns):
        found = turn(jobs)
        jobs = [Job(job.maps, one.space, one.folded, job.fold) for job, one in zip(jobs, found, strict=True)]
    for (group, given, _, which), job, one in zip(parts, begun, found, strict=True):
        group.put(given, job, one, sheet, which)


def _key(row: int, layer: WatchedLayer, weight: Tensor, sizes: Mapping[nn.Module, tuple[int, ...]]) -> Hashable | None:
    """What layers that are measured together have in common; None for one that has no norm to follow."""
    if layer.role == "matrix" or (layer.role == "conv" and is_pointwise(layer.module)):
        flat = weight.flatten(1).shape
        shape = tuple(flat) if layer.block is None else layer.block.shape  # the same on every process
        if max(shape) > SMALL_SIDE and layer.block is None and _goes_together(weight):
            longest = next((side for side in TOGETHER if max(shape) <= side), None)
            if longest is not None:
                return Together(weight.device, weight.dtype, longest)
        if weight.device.type != "cpu" and max(shape) > SMALL_SIDE and max(shape) <= TALLEST * min(shape):
            shape = (min(shape),)  # one launch for matrices of all heights costs a device less than what it fills up
        return weight.device, weight.dtype, shape if max(shape) > SMALL_SIDE else "small"
    if layer.role == "conv" and layer.module in sizes:
        return row, weight.device, weight.dtype, tuple(weight.shape), sizes[layer.module]
    return None


def _goes_together(weight: Tensor) -> bool:
    """Whether it is measured with matrices of other shapes: on a CPU, or where kernels are written for that."""
    if weight.device.type == "cpu":
        return True
    made = kernels(weight.device)
    return made is not None and weight.is_contiguous() and weight.dtype in made.TYPES


def is_turned(weight: Tensor) -> bool:
    """Whether a device measures the transposed of a matrix, which has the same norm: so wide ones go with tall ones."""
    return weight.device.type != "cpu" and weight.shape[0] ** 2 < weight.numel()


def _parts(group: Group, shapes: Sequence[tuple[int, ...]], device: torch.device, by_gram: bool) -> Iterator[Part]:
    """What is proved together of a group; on a CPU, which multiplies one matrix at a time, layers of one shape."""
    on_host = device.type == "cpu"
    for _, run in groupby(zip(group.rows, shapes, strict=True), lambda pair: pair[1] if on_host else None):
        rows, alike = zip(*run, strict=True)
        most = _most_proved(device, alike, by_gram)
        yield from (Part(group, list(rows[i : i + most])) for i in range(0, len(rows), most))


def _most_proved(device: torch.device, shapes: Sequence[tuple[int, ...]], by_gram: bool) -> int:
    """How many layers are proved together, by the entries of what is held of each."""
    sides = [(shape[0], math.prod(shape[1:])) for shape in shapes]
    held = max(min(side) ** 2 if by_gram else math.prod(side) for side in sides)
    return max(1, (MOST_PROVED_CPU if device.type == "cpu" else MOST_PROVED) // max(1, held))


def _factors(maps: Maps, given: Sequence[Tensor | None], side: int) -> Tensor | None:
    """(layers, 1, numbers): what each folded layer is multiplied with, or 1; None where nothing is."""
    if all(factor is None for factor in given):
        return None
    count = maps.inputs if side else maps.outputs
    known = {place: factor for place, factor in enumerate(given) if factor is not None}
    made = torch.ones(len(given), 1, count, dtype=next(iter(known.values())).dtype, device=maps.device)
    pairs = [
        (made[place, 0], _spread_out(factor, count, isinstance(maps, ConvMaps))) for place, factor in known.items()
    ]
    torch._foreach_copy_([row[: factor.numel()] for row, factor in pairs], [factor for _, factor in pairs])
    return made.to(maps.dtype)


def _spread_out(factor: Tensor, count: int, repeated: bool) -> Tensor:
    """One number for each of ``count``, or fewer, from one a channel, whose pixels repeat it, or from one for all."""
    if factor.ndim == 0:
        return factor.expand(count)
    return factor.reshape(-1, 1).expand(-1, count // factor.numel()).reshape(-1) if repeated else factor
