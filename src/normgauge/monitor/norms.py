"""Operator norms of all matrices and convolutions: from below at every reading, from above on a slower clock.

Layers of one shape are measured together. No copy of a weight is kept: from reading to reading there are three
directions a layer (`warm`), and an upper end belongs to the weights it was proved for (`proofs`) and to no others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normgauge.monitor.layers import WatchedLayer
from normgauge.monitor.maps import ConvMaps, Maps, MatrixMaps, is_pointwise, spec_of, working
from normgauge.monitor.proofs import SLOT, Begun, begin_proof, chance_at, seed_of
from normgauge.monitor.sheet import Sheet
from normgauge.monitor.warm import WARM_UP, Fold, cold_space, proved_lower, turn

CHUNK = 2**18  # most numbers added up in float32 before the sum goes on in float64

SUM_ROOM = 1.02  # CHUNK additions in float32 are off by less

LARGEST_GROUP = 2**25  # entries of all matrices of a group: copies of them in float64 are made for a proof

Factors = tuple[Tensor | None, Tensor | None]  # what a layer's outputs and inputs are multiplied with, if anything


@dataclass(slots=True)
class Group:
    """Layers of one shape.

    Attributes:
        key: device, type and shape of the weight, and the size of the input of a convolution.
        rows: the layers.
        conv: of a convolution; such a group has one layer.
        size: of its input.
        space: (layers, 3, inputs): directions of the layers as they are.
        folded: (layers, 1, inputs): of the layers as folded.
        proved: the step of the last proof.
        spends: whether its proofs may be wrong by chance.
        cost: seconds that took, on the host or on the device, whichever was longer.
    """

    key: Hashable
    rows: list[int]
    conv: WatchedLayer | None = None
    size: tuple[int, ...] | None = None
    space: Tensor | None = None
    folded: Tensor | None = None
    proved: int | None = None
    spends: bool = True
    cost: float = 0.0

    def maps(self, weights: Sequence[Tensor], dtype: torch.dtype | None = None) -> Maps:
        """The maps of these weights; in the working precision unless another is asked for."""
        if self.conv is not None and self.size is not None:
            return ConvMaps(weights[0], spec_of(self.conv.module, self.size))
        return MatrixMaps(weights, dtype or working(weights[0]))

    def read(self, weights: Sequence[Tensor], folds: Sequence[Factors], turns: int, sheet: Sheet) -> None:
        """Write down Frobenius norm, norm from below and folded norm of each layer."""
        maps = self.maps(weights)
        sizes = frobenius_norms(weights)
        fold = Fold(*(_factors(maps, [one[side] for one in folds], side) for side in (0, 1)))
        if self.space is None or self.folded is None:
            self.space = cold_space(maps.count, maps.inputs, weights[0], maps.dtype)
            self.folded, turns = self.space[:, :1], WARM_UP
        for _ in range(turns):
            turned = turn(maps, self.space, self.folded, fold)
            self.space, self.folded = turned.space, turned.folded
        above = SUM_ROOM * sizes + math.sqrt(weights[0].numel()) * 2.0**-63  # squares that underflow are smaller
        sheet.put_column(self.rows, "frobenius", sizes)
        sheet.put_column(self.rows, "norm_lower", proved_lower(maps, turned, above))
        sheet.put_column(self.rows, "folded", turned.gain)

    def prove(self, weights: Sequence[Tensor], step: int, chance: float, seed: int) -> list[Begun]:
        """Begin the proof of each layer's norm as it is now, in parts that need little memory."""
        began = time.perf_counter()
        most = max(1, LARGEST_GROUP // weights[0].numel())
        begun = []
        for first in range(0, len(weights), most):
            maps = self.maps(weights[first : first + most], torch.float64)
            rows = self.rows[first : first + most]
            begun.append(begin_proof(maps, rows, step, chance, seed_of(seed, step, rows)))
        self.proved, self.cost = step, time.perf_counter() - began
        self.spends = any(proof.chance for proof in begun)
        return begun


class Norms:
    """The groups of a model's matrices and convolutions."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self._keys: dict[int, Hashable] = {}

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
        for key, rows in together.items():
            layer = weights[rows[0]][0]
            conv = layer if layer.role == "conv" and not is_pointwise(layer.module) else None
            size = sizes.get(layer.module) if conv is not None else None
            self.groups.append(known.get((key, *rows)) or Group(key, rows, conv, size))
        self._keys = keys

    def provable(self, step: int) -> list[Group]:
        """Groups that may be proved at this step, the oldest proofs first: those that spend a chance once in a slot."""
        ages = [(-1 if group.proved is None else group.proved, i) for i, group in enumerate(self.groups)]
        free = [i for at, i in sorted(ages) if at < 0 or not self.groups[i].spends or at // SLOT < step // SLOT]
        return [self.groups[i] for i in free]

    def chance(self, step: int) -> float:
        """What the proof of one layer may spend at this step."""
        return chance_at(step, len(self._keys))


def _key(row: int, layer: WatchedLayer, weight: Tensor, sizes: Mapping[nn.Module, tuple[int, ...]]) -> Hashable | None:
    """What layers that are measured together have in common; None for one that has no norm to follow."""
    if layer.role == "matrix" or (layer.role == "conv" and is_pointwise(layer.module)):
        return weight.device, weight.dtype, tuple(weight.flatten(1).shape)
    if layer.role == "conv" and layer.module in sizes:
        return row, weight.device, weight.dtype, tuple(weight.shape), sizes[layer.module]
    return None


def frobenius_norms(weights: Sequence[Tensor]) -> Tensor:
    """Frobenius norm of each weight in float64; long sums of float32 in pieces, so that their rounding stays small."""
    if weights[0].device.type != "cpu":
        return torch.stack(torch._foreach_norm(list(weights), 2, torch.float64))
    return torch.stack([_sum_of_squares(weight) for weight in weights]).double().sqrt()


def _sum_of_squares(tensor: Tensor) -> Tensor:
    """A dot product takes half the time of torch's norm."""
    plain = (tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()).reshape(-1)
    if plain.numel() <= CHUNK:
        return torch.dot(plain, plain)
    return torch.stack([torch.dot(piece, piece) for piece in plain.split(CHUNK)]).double().sum()


def _factors(maps: Maps, given: Sequence[Tensor | None], side: int) -> Tensor | None:
    """(layers, 1, numbers): what each folded layer is multiplied with, or 1; None where nothing is."""
    if all(factor is None for factor in given):
        return None
    count = maps.inputs if side else maps.outputs
    ones = torch.ones(count, dtype=maps.dtype, device=maps.device)
    return torch.stack([ones if factor is None else _spread_out(factor.to(maps.dtype), count) for factor in given])[
        :, None
    ]


def _spread_out(factor: Tensor, count: int) -> Tensor:
    """One number for each of ``count`` from one a channel, or from one for all."""
    if factor.ndim == 0:
        return factor.expand(count)
    return factor.reshape(-1, 1).expand(-1, count // factor.numel()).reshape(-1)
