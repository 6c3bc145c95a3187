"""Many tensors of all shapes in one launch: kernels for devices that Triton writes programs for.

A reading multiplies each matrix with a few directions and back, and compares each weight with what it was before the
step. Torch has one launch for each of them, or copies all into one tensor; here one kernel is told where all of them
lie. Products are added up in float64 where the device is quick at it, else in float32, in an order that no bound
depends on. Torch brings Triton along where it computes on such devices; elsewhere nothing of this is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from normgauge.monitor.maps import Maps, frobenius_norms, multiplies_doubles

BLOCK = 1024  # numbers that are compared at a time, and where the parts of a room begin

ROWS_AHEAD, COLUMNS_AHEAD = 8, 128  # of a matrix at a time, on the way forward
ROWS_BACK, COLUMNS_BACK = 32, 64  # and on the way back

MOST_ROWS = 4  # directions of each matrix in one launch

TYPES = {torch.float64: tl.float64, torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


class Table:
    """Where matrices lie, how large they are, and which parts of them are multiplied at a time.

    Args:
        weights: contiguous matrices of one type on one device.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.key, self.device = place_of(weights), weights[0].device
        shapes = [tuple(weight.flatten(1).shape) for weight in weights]
        self.outputs, self.inputs = max(s[0] for s in shapes), max(s[1] for s in shapes)
        ahead = [(k, row) for k, (rows, _) in enumerate(shapes) for row in range(0, rows, ROWS_AHEAD)]
        back = [(k, at) for k, (_, columns) in enumerate(shapes) for at in range(0, columns, COLUMNS_BACK)]
        self.ahead, self.back = _sent(ahead, self.device), _sent(back, self.device)
        self.places, self.shapes = _sent(self.key, self.device), _sent(shapes, self.device)
        widths = torch.arange(self.inputs, device=self.device)
        self.inside = widths < self.shapes[:, 1:]  # (matrices, inputs)
        self.type = TYPES[weights[0].dtype]

    @property
    def state(self) -> list[Tensor]:
        """All that kernels look up."""
        return [self.ahead, self.back, self.places, self.shapes, self.inside]


class GroupedMaps(Maps):
    """Matrices of all shapes where they are; rows are filled up with zeros."""

    def __init__(self, weights: Sequence[Tensor], table: Table) -> None:
        self._weights, self._table, self.device = weights, table, table.device
        self.count, self.outputs, self.inputs = len(weights), table.outputs, table.inputs
        self.terms, self.spread = max(self.outputs, self.inputs), 1.0
        self.dtype = torch.float64 if weights[0].dtype == torch.float64 or _doubles(self.device) else torch.float32
        self.unit = torch.finfo(self.dtype).eps / 2
        self._squares: Tensor | None = None

    @cached_property
    def inside(self) -> Tensor:
        """(matrices, 1, inputs): 1 where an input is one of the matrix, 0 where it fills up."""
        return self._table.inside[:, None].to(self.dtype)

    def forward(self, given: Tensor) -> Tensor:
        """Rows times the transposed matrix; what is squared and added up on the way is kept."""
        made = given.new_zeros(self.count, given.shape[1], self.outputs)
        squares = given.new_zeros(self.count, -(-self.outputs // ROWS_AHEAD))
        for rows, out in zip(given.split(MOST_ROWS, 1), made.split(MOST_ROWS, 1), strict=True):
            self._launch(_ahead, self._table.ahead, rows, out, squares, (ROWS_AHEAD, COLUMNS_AHEAD))
        self._squares = squares
        return made

    def adjoint(self, given: Tensor) -> Tensor:
        """Rows times the matrix."""
        made = given.new_zeros(self.count, given.shape[1], self.inputs)
        for rows, out in zip(given.split(MOST_ROWS, 1), made.split(MOST_ROWS, 1), strict=True):
            self._launch(_back, self._table.back, rows, out, None, (ROWS_BACK, COLUMNS_BACK))
        return made

    def sizes(self) -> Tensor:
        """Frobenius norm of each matrix, in float64."""
        if self._squares is None:
            return frobenius_norms(self._weights)
        return self._squares.sum(1, dtype=torch.float64).sqrt()

    def _launch(
        self, kernel: Any, tiles: Tensor, given: Tensor, made: Tensor, squares: Tensor | None, size: tuple[int, int]
    ) -> None:
        """Run a kernel on all tiles; the rows of one matrix may lie apart, the numbers of one row may not."""
        table, given = self._table, given if given.stride(-1) == 1 else given.contiguous()
        extra = () if squares is None else (squares, squares.shape[1])
        with on(self.device):
            kernel[(len(tiles),)](
                table.places, table.shapes, tiles, given, made, *extra,
                *given.stride()[:2], *made.stride()[:2],
                ROWS=given.shape[1], HIGH=size[0], WIDE=size[1], TYPE=table.type, SUM=TYPES[self.dtype], num_warps=4,
            )  # fmt: skip


@triton.jit
def _ahead(  # type: ignore[no-untyped-def]
    places, shapes, tiles, given, made, squares, tall, given_k, given_r, made_k, made_r,
    ROWS: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr, TYPE: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Some rows of one matrix times up to four vectors, and the sum of their squares."""
    k, first = tl.load(tiles + 2 * tl.program_id(0)), tl.load(tiles + 2 * tl.program_id(0) + 1)
    high, wide = tl.load(shapes + 2 * k), tl.load(shapes + 2 * k + 1)
    matrix = tl.load(places + k).to(tl.pointer_type(TYPE))
    row = first + tl.arange(0, HIGH)
    a = tl.zeros((HIGH, WIDE), SUM)
    b = tl.zeros((HIGH, WIDE), SUM)
    c = tl.zeros((HIGH, WIDE), SUM)
    d = tl.zeros((HIGH, WIDE), SUM)
    s = tl.zeros((HIGH, WIDE), SUM)
    x = given + k * given_k
    for begin in range(0, wide, WIDE):
        at = begin + tl.arange(0, WIDE)
        inside = (row < high)[:, None] & (at < wide)[None, :]
        w = tl.load(matrix + row[:, None] * wide + at[None, :], mask=inside, other=0.0).to(SUM)
        s += w * w
        a += w * tl.load(x + at, mask=at < wide, other=0.0)[None, :]
        if ROWS > 1:
            b += w * tl.load(x + given_r + at, mask=at < wide, other=0.0)[None, :]
        if ROWS > 2:
            c += w * tl.load(x + 2 * given_r + at, mask=at < wide, other=0.0)[None, :]
        if ROWS > 3:
            d += w * tl.load(x + 3 * given_r + at, mask=at < wide, other=0.0)[None, :]
    y = made + k * made_k + row
    tl.store(y, tl.sum(a, 1), mask=row < high)
    if ROWS > 1:
        tl.store(y + made_r, tl.sum(b, 1), mask=row < high)
    if ROWS > 2:
        tl.store(y + 2 * made_r, tl.sum(c, 1), mask=row < high)
    if ROWS > 3:
        tl.store(y + 3 * made_r, tl.sum(d, 1), mask=row < high)
    tl.store(squares + k * tall + first // HIGH, tl.sum(tl.sum(s, 1), 0))


@triton.jit
def _back(  # type: ignore[no-untyped-def]
    places, shapes, tiles, given, made, given_k, given_r, made_k, made_r,
    ROWS: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr, TYPE: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Up to four vectors times some columns of one matrix."""
    k, first = tl.load(tiles + 2 * tl.program_id(0)), tl.load(tiles + 2 * tl.program_id(0) + 1)
    high, wide = tl.load(shapes + 2 * k), tl.load(shapes + 2 * k + 1)
    matrix = tl.load(places + k).to(tl.pointer_type(TYPE))
    at = first + tl.arange(0, WIDE)
    a = tl.zeros((HIGH, WIDE), SUM)
    b = tl.zeros((HIGH, WIDE), SUM)
    c = tl.zeros((HIGH, WIDE), SUM)
    d = tl.zeros((HIGH, WIDE), SUM)
    x = given + k * given_k
    for begin in range(0, high, HIGH):
        row = begin + tl.arange(0, HIGH)
        inside = (row < high)[:, None] & (at < wide)[None, :]
        w = tl.load(matrix + row[:, None] * wide + at[None, :], mask=inside, other=0.0).to(SUM)
        a += w * tl.load(x + row, mask=row < high, other=0.0)[:, None]
        if ROWS > 1:
            b += w * tl.load(x + given_r + row, mask=row < high, other=0.0)[:, None]
        if ROWS > 2:
            c += w * tl.load(x + 2 * given_r + row, mask=row < high, other=0.0)[:, None]
        if ROWS > 3:
            d += w * tl.load(x + 3 * given_r + row, mask=row < high, other=0.0)[:, None]
    y = made + k * made_k + at
    tl.store(y, tl.sum(a, 0), mask=at < wide)
    if ROWS > 1:
        tl.store(y + made_r, tl.sum(b, 0), mask=at < wide)
    if ROWS > 2:
        tl.store(y + 2 * made_r, tl.sum(c, 0), mask=at < wide)
    if ROWS > 3:
        tl.store(y + 3 * made_r, tl.sum(d, 0), mask=at < wide)


class Compared:
    """Weights beside their gradients and what they were before the step, without copies of any of them but the last.

    Args:
        weights: of one type on one device; rows may lie apart, as every eighth row of a matrix does.

    Attributes:
        blocks: of each weight; each begins at a block in what is kept.
        sums: (blocks, 4): Σ weight², Σ gradient², Σ gradient·weight before the step and Σ step², as last compared.
        steps: the weights as kept, or what was taken off them in the step, once they were compared.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.device, self._key = weights[0].device, _where(weights)
        self.blocks = [-(-weight.numel() // BLOCK) for weight in weights]
        parts = [(part, block * BLOCK) for part, count in enumerate(self.blocks) for block in range(count)]
        self._tiles, self._weights = _sent(parts, self.device), _sent(self._rows(weights), self.device)
        self._wide = torch.float64 if weights[0].dtype == torch.float64 else torch.float32
        self._type = TYPES[weights[0].dtype]
        self.sums = torch.zeros(len(parts), 4, dtype=torch.float64, device=self.device)
        self._kept = torch.zeros(len(parts) * BLOCK, dtype=self._wide, device=self.device)
        lines = self._kept.split([count * BLOCK for count in self.blocks])
        self.steps = [line[: w.numel()].view(w.shape) for line, w in zip(lines, weights, strict=True)]

    @property
    def state(self) -> list[Tensor]:
        """Where everything is."""
        return [self._tiles, self._weights, self.sums, self._kept]

    def follow(self, weights: Sequence[Tensor]) -> bool:
        """Take in where the same weights lie now; False if a kernel does not find them there."""
        key = _where(weights)
        if key == self._key:
            return True
        if can_compare(weights, []):
            self._key, self._weights = key, _sent(self._rows(weights), self.device)
            return True
        return False

    def keep(self) -> None:
        """Copy the weights as they are now."""
        with on(self.device):
            _keep[(len(self._tiles),)](self._tiles, self._weights, self._kept, TYPE=self._type, BLOCK=BLOCK)

    def compare(self, gradients: Sequence[Tensor | None], *, kept: bool) -> None:
        """Take the sums of the weights as they are now; what was kept becomes the step, where something was."""
        known = next((slope for slope in gradients if slope is not None), None)
        slopes = _sent(self._rows(gradients), self.device)
        with on(self.device):
            _compare[(len(self._tiles),)](
                self._tiles, self._weights, slopes, self._kept, self.sums,
                TYPE=self._type, SLOPE=self._type if known is None else TYPES[known.dtype],
                WIDE=TYPES[self._wide], KEPT=kept, BLOCK=BLOCK,
            )  # fmt: skip

    def _rows(self, tensors: Sequence[Tensor | None]) -> list[tuple[int, int, int, int]]:
        """Where each tensor begins, how many numbers it has, how many lie together, how far these are apart."""
        return [(0, 0, 1, 1) if t is None else (t.data_ptr(), t.numel(), *_pitch(t)) for t in tensors]


@triton.jit
def _keep(tiles, weights, kept, TYPE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One block of the weights."""
    block = tl.program_id(0).to(tl.int64)
    part, first = tl.load(tiles + 2 * block), tl.load(tiles + 2 * block + 1)
    matrix = tl.load(weights + 4 * part).to(tl.pointer_type(TYPE))
    size, wide, pitch = (
        tl.load(weights + 4 * part + 1), tl.load(weights + 4 * part + 2), tl.load(weights + 4 * part + 3)
    )  # fmt: skip
    at = first + tl.arange(0, BLOCK)
    w = tl.load(matrix + at // wide * pitch + at % wide, mask=at < size, other=0.0)
    tl.store(kept + block * BLOCK + tl.arange(0, BLOCK), w)


@triton.jit
def _compare(  # type: ignore[no-untyped-def]
    tiles, weights, slopes, kept, sums,
    TYPE: tl.constexpr, SLOPE: tl.constexpr, WIDE: tl.constexpr, KEPT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sums of one block."""
    block = tl.program_id(0).to(tl.int64)
    part, first = tl.load(tiles + 2 * block), tl.load(tiles + 2 * block + 1)
    matrix = tl.load(weights + 4 * part).to(tl.pointer_type(TYPE))
    size, wide, pitch = (
        tl.load(weights + 4 * part + 1), tl.load(weights + 4 * part + 2), tl.load(weights + 4 * part + 3)
    )  # fmt: skip
    at = first + tl.arange(0, BLOCK)
    w = tl.load(matrix + at // wide * pitch + at % wide, mask=at < size, other=0.0).to(WIDE)
    slope = tl.load(slopes + 4 * part).to(tl.pointer_type(SLOPE))
    size, wide, pitch = (
        tl.load(slopes + 4 * part + 1), tl.load(slopes + 4 * part + 2), tl.load(slopes + 4 * part + 3)
    )  # fmt: skip
    g = tl.load(slope + at // wide * pitch + at % wide, mask=at < size, other=0.0).to(WIDE)
    before, step = w, w - w
    if KEPT:
        place = kept + block * BLOCK + tl.arange(0, BLOCK)
        before = tl.load(place)
        step = before - w
        tl.store(place, step)
    tl.store(sums + 4 * block, tl.sum((w * w).to(tl.float64), 0))
    tl.store(sums + 4 * block + 1, tl.sum((g * g).to(tl.float64), 0))
    tl.store(sums + 4 * block + 2, tl.sum((g * before).to(tl.float64), 0))
    tl.store(sums + 4 * block + 3, tl.sum((step * step).to(tl.float64), 0))


def can_compare(weights: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> bool:
    """Whether one kernel reads all of these: of one type each, rows that lie together, something in each."""
    several: tuple[Sequence[Tensor | None], ...] = (weights, gradients)
    for tensors in several:
        known = [tensor for tensor in tensors if tensor is not None]
        if len({tensor.dtype for tensor in known}) > 1 or not all(map(_is_in_rows, known)):
            return False
    return True


def place_of(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Where tensors begin."""
    return tuple(tensor.data_ptr() for tensor in tensors)


def _where(tensors: Sequence[Tensor]) -> list[tuple[int, tuple[int, ...]]]:
    """Where tensors of known shapes lie."""
    return [(tensor.data_ptr(), tensor.stride()) for tensor in tensors]


def on(device: torch.device) -> AbstractContextManager[Any]:
    """Kernels run on the device their tensors are on."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _doubles(device: torch.device) -> bool:
    return device.type == "cpu" or multiplies_doubles(device)


def _is_in_rows(tensor: Tensor) -> bool:
    """Whether a kernel finds the numbers of a tensor: all together, or those of each row."""
    if tensor.dtype not in TYPES or not tensor.numel():
        return False
    return tensor.is_contiguous() or (tensor.ndim > 1 and tensor.stride(0) > 0 and tensor[0].is_contiguous())


def _pitch(tensor: Tensor) -> tuple[int, int]:
    """How many numbers lie together, and how far the next ones are from there."""
    if tensor.ndim < 2 or tensor.is_contiguous():
        return tensor.numel(), tensor.numel()
    return tensor.numel() // len(tensor), tensor.stride(0)


def _sent(numbers: Sequence[Any], device: torch.device) -> Tensor:
    """Whole numbers on their way to a device; from pinned memory nothing waits for them."""
    made = torch.tensor(numbers, dtype=torch.int64)
    return (made.pin_memory() if device.type == "cuda" else made).to(device, non_blocking=True)
