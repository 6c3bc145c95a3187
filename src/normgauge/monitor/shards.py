"""Weights of which each process has a part: norms and products from the parts, one sum over the processes each.

A weight is never put together. Sums of squares are added up over the processes; for a product each process multiplies
its rows and columns, puts the result where it belongs in zeros, and the vectors are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from normgauge.monitor.maps import Maps, sum_of_squares

Reduce = Callable[[Tensor], Tensor]


class Team(Protocol):
    """The processes that share a model."""

    rank: int
    world: int

    def added(self, tensor: Tensor) -> Tensor:
        """A tensor added up over all processes."""


@dataclass(frozen=True, slots=True)
class Block:
    """Where the part of this process lies in a weight.

    Attributes:
        shape: of the whole weight.
        start: place of the part's first row and column.
        factor: 1 over the number of processes that have this part.
        reduce: adds a tensor up over all processes.
        first: whether this is process 0.
    """

    shape: tuple[int, ...]
    start: tuple[int, ...]
    factor: float
    reduce: Reduce
    first: bool


def agreed(tensors: Sequence[Tensor], block: Block) -> list[Tensor]:
    """What process 0 has of each, on every process: what directions are turned with must be the same everywhere."""
    packed = torch.cat([tensor.reshape(-1) for tensor in tensors])
    shared = block.reduce(packed if block.first else torch.zeros_like(packed))
    parts = shared.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def whole_block(weight: Tensor, team: Team) -> Block:
    """A weight that every process has all of."""
    shape = tuple(weight.shape) if weight.ndim < 3 else (weight.shape[0], weight[0].numel())
    return Block(shape, (0,) * len(shape), 1 / team.world, team.added, team.rank == 0)


def block_of(parameter: Any, team: Team) -> Block | None:
    """The part of a sharded parameter that this process has; None where it is whole, or cut in an unknown way."""
    if getattr(parameter, "placements", None) is None:
        return None
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    placements, mesh = parameter.placements, parameter.device_mesh
    if not all(type(one) in (Replicate, Shard) for one in placements):
        return None
    copies = team.world // mesh.size()
    for place, size in zip(placements, mesh.shape, strict=True):
        copies *= size if isinstance(place, Replicate) else 1
    _, start = compute_local_shape_and_global_offset(parameter.shape, mesh, placements)
    return Block(tuple(parameter.shape), tuple(start), 1 / copies, team.added, team.rank == 0)


def local_part(tensor: Any) -> Tensor:
    """The part of a sharded tensor that is here."""
    part: Tensor = tensor.to_local()
    return part.detach()


class ShardedMaps(Maps):
    """Matrices of which each process multiplies a part."""

    def __init__(self, parts: Sequence[Tensor], blocks: Sequence[Block], dtype: torch.dtype) -> None:
        self.count, self._blocks = len(parts), blocks
        self.outputs, self.inputs = (max(block.shape[side] for block in blocks) for side in (0, 1))
        self.terms, self.spread, self.dtype = max(self.outputs, self.inputs), 1.0, dtype
        self.unit, self.device = torch.finfo(dtype).eps / 2, parts[0].device
        self._parts = [part.flatten(1).to(dtype) for part in parts]

    def forward(self, given: Tensor) -> Tensor:
        """Rows times the transposed matrix."""
        made = given.new_zeros((*given.shape[:2], self.outputs))
        for place, (part, block) in enumerate(zip(self._parts, self._blocks, strict=True)):
            (top, left), (height, width) = block.start, part.shape
            made[place, :, top : top + height] = given[place, :, left : left + width] @ part.T * block.factor
        return self._blocks[0].reduce(made)

    def adjoint(self, given: Tensor) -> Tensor:
        """Rows times the matrix."""
        made = given.new_zeros((*given.shape[:2], self.inputs))
        for place, (part, block) in enumerate(zip(self._parts, self._blocks, strict=True)):
            (top, left), (height, width) = block.start, part.shape
            made[place, :, left : left + width] = given[place, :, top : top + height] @ part * block.factor
        return self._blocks[0].reduce(made)

    def sizes(self) -> Tensor:
        """Frobenius norm of each matrix, in float64."""
        return added_norms([sum_of_squares(part) for part in self._parts], self._blocks)


def added_norms(squares: Sequence[Tensor], blocks: Sequence[Block]) -> Tensor:
    """Roots of sums of squares over all processes."""
    factors = [block.factor for block in blocks]
    mine = torch.stack([square.double() * factor for square, factor in zip(squares, factors, strict=True)])
    return blocks[0].reduce(mine).sqrt()
