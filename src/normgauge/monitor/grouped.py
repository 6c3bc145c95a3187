"""Many tensors of all shapes in one launch: kernels for devices that Triton writes programs for.

A reading multiplies each matrix with a few directions and back, and compares each weight with what it was before the
step. Torch has one launch for each of them, or copies all into one tensor; here one kernel is told where all of them
lie. Torch brings Triton along where it computes on such devices; elsewhere nothing of this is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from normgauge.monitor.maps import Maps, frobenius_norms
from normgauge.monitor.warm import SQUARINGS, Fold

BLOCK = 1024  # numbers that are compared at a time, and where the parts of a room begin

PIECE = 8 * BLOCK  # numbers that one program squares and adds up

ROWS_AHEAD, COLUMNS_AHEAD = 8, 128  # of a matrix at a time, on the way forward
ROWS_BACK, COLUMNS_BACK = 128, 32  # and on the way back

MOST_ROWS = 4  # directions of each matrix in one launch

MOST_AT_ONCE = 4096  # longest direction that one program holds

SQUARED = tl.constexpr(SQUARINGS)

TYPES = {torch.float64: tl.float64, torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


class Table:
    """Where matrices lie, how large they are, and which parts of them are multiplied at a time.

    Args:
        weights: matrices of one type on one device, the numbers of each row together.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self._key, self.device = _where(weights), weights[0].device
        shapes = [tuple(weight.flatten(1).shape) for weight in weights]
        self.outputs, self.inputs = max(s[0] for s in shapes), max(s[1] for s in shapes)
        ahead = [(k, row) for k, (rows, _) in enumerate(shapes) for row in range(0, rows, ROWS_AHEAD)]
        back = [(k, at) for k, (_, columns) in enumerate(shapes) for at in range(0, columns, COLUMNS_BACK)]
        self.ahead, self.back = _sent(ahead, self.device), _sent(back, self.device)
        pitches = [(*shape, weight.stride(0)) for shape, weight in zip(shapes, weights, strict=True)]
        self.places, self.shapes = _sent([w.data_ptr() for w in weights], self.device), _sent(pitches, self.device)
        widths = torch.arange(self.inputs, device=self.device)
        self.inside = (widths < self.shapes[:, 1:2])[:, None].double()
        self.type = TYPES[weights[0].dtype]
        self.sums = torch.float64 if weights[0].dtype == torch.float64 else torch.float32

    def holds(self, weights: Sequence[Tensor]) -> bool:
        """Whether these lie where those did, and are of their shapes."""
        return self._key == _where(weights)

    @property
    def state(self) -> list[Tensor]:
        """All that kernels look up."""
        return [self.ahead, self.back, self.places, self.shapes, self.inside]


class GroupedMaps(Maps):
    """Matrices of all shapes where they are; directions are float64, filled up with zeros.

    What is multiplied is added up in float32 (but float64 weights): a lane of a sum has as many terms as there are
    tiles in a row or column, and the lanes of a tile are added up in some order.
    """

    def __init__(self, weights: Sequence[Tensor], table: Table) -> None:
        self._weights, self._table, self.device = weights, table, table.device
        self.count, self.outputs, self.inputs = len(weights), table.outputs, table.inputs
        self.spread, self.dtype, self.unit = 1.0, torch.float64, torch.finfo(torch.float64).eps / 2
        lanes = (-(-self.inputs // COLUMNS_AHEAD) + COLUMNS_AHEAD, -(-self.outputs // ROWS_BACK) + ROWS_BACK)
        self._lanes, self.inside = max(lanes) + 1, table.inside
        self.terms = self._lanes
        self._squares: Tensor | None = None

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
        return frobenius_norms(self._weights) if self._squares is None else self._squares.sum(1).sqrt()

    def product_error(self, sizes: Tensor) -> Tensor:
        """As of any maps, in the precision of the sums; a direction is rounded to it first."""
        return 1.1 * (self._lanes + 16) * torch.finfo(self._table.sums).eps / 2 * sizes

    @property
    def underflow(self) -> float:
        """What is lost of a product where numbers are too small for the sums."""
        return (self._lanes + 16) * torch.finfo(self._table.sums).tiny * math.sqrt(self.inputs * self.outputs)

    def turned(self, space: Tensor, folded: Tensor, fold: Fold, *, moves: bool) -> Tensor | None:
        """Turn directions where they are, as `warm.turn` does, in five launches; None for matrices too long for that.

        Returns:
            (7, matrices): image, length, parts and gain as in `Turned`, then the coefficients of the best direction.
        """
        if max(self.inputs, self.outputs) > MOST_AT_ONCE:
            return None
        outer, inner = (None if factor is None else factor.to(space.dtype).contiguous() for factor in fold)
        basis = space.new_empty(self.count, 4, self.inputs)
        rows = space.new_empty(self.count, 2, self.outputs)
        found = space.new_empty(7, self.count)
        sizes = {"N": triton.next_power_of_2(self.inputs), "M": triton.next_power_of_2(self.outputs), "num_warps": 8}
        shape = (self.count, self.inputs, self.outputs)
        with on(self.device):
            _begin[(self.count,)](space, folded, inner, basis, *shape, INNER=inner is not None, **sizes)
        images = self.forward(basis)
        with on(self.device):
            _mix[(self.count,)](images, basis, outer, rows, found, *shape, OUTER=outer is not None, **sizes)
        if moves:
            back = self.adjoint(rows)
            noise = math.sqrt(self.unit)
            with on(self.device):
                _move[(self.count,)](
                    back, basis, inner, found, space, folded, *shape, noise, INNER=inner is not None, **sizes
                )
        return found

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
                ROWS=given.shape[1], HIGH=size[0], WIDE=size[1], TYPE=table.type, SUM=TYPES[table.sums], num_warps=4,
            )  # fmt: skip


@triton.jit
def _begin(  # type: ignore[no-untyped-def]
    space, folded, inner, basis, count, inputs, outputs,
    INNER: tl.constexpr, N: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """Gram-Schmidt on the three directions of one matrix, and that of the folded one as it goes in."""
    k, at = tl.program_id(0), tl.arange(0, N)
    inside = at < inputs
    rows, out = space + 3 * k * inputs + at, basis + 4 * k * inputs + at
    q = tl.load(rows, mask=inside, other=0.0)
    r = tl.load(rows + inputs, mask=inside, other=0.0)
    r -= tl.sum(r * q, 0) * q
    r /= tl.maximum(tl.sqrt(tl.sum(r * r, 0)), 2.0**-1022)
    s = tl.load(rows + 2 * inputs, mask=inside, other=0.0)
    along_q, along_r = tl.sum(s * q, 0), tl.sum(s * r, 0)
    s -= along_q * q + along_r * r
    s /= tl.maximum(tl.sqrt(tl.sum(s * s, 0)), 2.0**-1022)
    f = tl.load(folded + k * inputs + at, mask=inside, other=0.0)
    if INNER:
        f *= tl.load(inner + k * inputs + at, mask=inside, other=0.0)
    tl.store(out, q, mask=inside)
    tl.store(out + inputs, r, mask=inside)
    tl.store(out + 2 * inputs, s, mask=inside)
    tl.store(out + 3 * inputs, f, mask=inside)


@triton.jit
def _mix(  # type: ignore[no-untyped-def]
    images, basis, outer, made, found, count, inputs, outputs,
    OUTER: tl.constexpr, N: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """The best combination of the three images of one matrix, and what goes back."""
    k, at = tl.program_id(0), tl.arange(0, M)
    inside = at < outputs
    rows = images + 4 * k * outputs + at
    x = tl.load(rows, mask=inside, other=0.0)
    y = tl.load(rows + outputs, mask=inside, other=0.0)
    z = tl.load(rows + 2 * outputs, mask=inside, other=0.0)
    a, b, c = tl.sum(x * x, 0), tl.sum(x * y, 0), tl.sum(x * z, 0)
    d, e, f = tl.sum(y * y, 0), tl.sum(y * z, 0), tl.sum(z * z, 0)
    for turn in tl.static_range(SQUARED):
        if turn % 5 == 0:  # the trace stays above 3^-31 in between
            t = a + d + f
            a, b, c, d, e, f = a / t, b / t, c / t, d / t, e / t, f / t
        a, b, c, d, e, f = (
            a * a + b * b + c * c, a * b + b * d + c * e, a * c + b * e + c * f,
            b * b + d * d + e * e, b * c + d * e + e * f, c * c + e * e + f * f,
        )  # fmt: skip
    top = tl.maximum(a, tl.maximum(d, f))
    p = tl.where(a == top, a, tl.where(d == top, b, c))
    q = tl.where(a == top, b, tl.where(d == top, d, e))
    r = tl.where(a == top, c, tl.where(d == top, e, f))
    size = tl.maximum(tl.sqrt(p * p + q * q + r * r), 2.0**-1022)
    p, q, r = p / size, q / size, r / size
    best = p * x + q * y + r * z
    image = tl.sqrt(tl.sum(best * best, 0))
    w = tl.load(rows + 3 * outputs, mask=inside, other=0.0)
    o = w - w
    if OUTER:
        o = tl.load(outer + k * outputs + at, mask=inside, other=0.0)
        w *= o
    gain = tl.sqrt(tl.sum(w * w, 0))
    w /= gain
    if OUTER:
        w *= o
    out = made + 2 * k * outputs + at
    tl.store(out, best / image, mask=inside)
    tl.store(out + outputs, w, mask=inside)
    at_n = tl.arange(0, N)
    rows = basis + 4 * k * inputs + at_n
    known = at_n < inputs
    v = p * tl.load(rows, mask=known, other=0.0) + q * tl.load(rows + inputs, mask=known, other=0.0)
    v += r * tl.load(rows + 2 * inputs, mask=known, other=0.0)
    tl.store(found + k, image)
    tl.store(found + count + k, tl.sqrt(tl.sum(v * v, 0)))
    tl.store(found + 2 * count + k, tl.abs(p) + tl.abs(q) + tl.abs(r))
    tl.store(found + 3 * count + k, gain)
    tl.store(found + 4 * count + k, p)
    tl.store(found + 5 * count + k, q)
    tl.store(found + 6 * count + k, r)


@triton.jit
def _move(  # type: ignore[no-untyped-def]
    back, basis, inner, found, space, folded, count, inputs, outputs, noise,
    INNER: tl.constexpr, N: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """The directions of one matrix after the turn: the best, the gradient there, the move, and the folded one."""
    k, at = tl.program_id(0), tl.arange(0, N)
    inside = at < inputs
    p, q, r = tl.load(found + 4 * count + k), tl.load(found + 5 * count + k), tl.load(found + 6 * count + k)
    rows, out = basis + 4 * k * inputs + at, space + 3 * k * inputs + at
    move = q * tl.load(rows + inputs, mask=inside, other=0.0) + r * tl.load(rows + 2 * inputs, mask=inside, other=0.0)
    best = p * tl.load(rows, mask=inside, other=0.0) + move
    slope = tl.load(back + 2 * k * inputs + at, mask=inside, other=0.0) / tl.load(found + k) - best
    size = tl.where(inside, tl.sqrt(tl.sum(best * best, 0)), 0.0)
    tl.store(out, best / size, mask=(size > noise) & (size < float("inf")))
    size = tl.where(inside, tl.sqrt(tl.sum(slope * slope, 0)), 0.0)
    tl.store(out + inputs, slope / size, mask=(size > noise) & (size < float("inf")))
    size = tl.where(inside, tl.sqrt(tl.sum(move * move, 0)), 0.0)
    tl.store(out + 2 * inputs, move / size, mask=(size > noise) & (size < float("inf")))
    f = tl.load(back + (2 * k + 1) * inputs + at, mask=inside, other=0.0)
    if INNER:
        f *= tl.load(inner + k * inputs + at, mask=inside, other=0.0)
    size = tl.where(inside, tl.sqrt(tl.sum(f * f, 0)), 0.0)
    tl.store(folded + k * inputs + at, f / size, mask=(size > 0.0) & (size < float("inf")))


@triton.jit
def _ahead(  # type: ignore[no-untyped-def]
    places, shapes, tiles, given, made, squares, tall, given_k, given_r, made_k, made_r,
    ROWS: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr, TYPE: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Some rows of one matrix times up to four vectors, and the sum of their squares."""
    k, first = tl.load(tiles + 2 * tl.program_id(0)), tl.load(tiles + 2 * tl.program_id(0) + 1)
    high, wide, pitch = tl.load(shapes + 3 * k), tl.load(shapes + 3 * k + 1), tl.load(shapes + 3 * k + 2)
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
        w = tl.load(matrix + row[:, None] * pitch + at[None, :], mask=inside, other=0.0).to(SUM)
        s += w * w
        a += w * tl.load(x + at, mask=at < wide, other=0.0).to(SUM)[None, :]
        if ROWS > 1:
            b += w * tl.load(x + given_r + at, mask=at < wide, other=0.0).to(SUM)[None, :]
        if ROWS > 2:
            c += w * tl.load(x + 2 * given_r + at, mask=at < wide, other=0.0).to(SUM)[None, :]
        if ROWS > 3:
            d += w * tl.load(x + 3 * given_r + at, mask=at < wide, other=0.0).to(SUM)[None, :]
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
    high, wide, pitch = tl.load(shapes + 3 * k), tl.load(shapes + 3 * k + 1), tl.load(shapes + 3 * k + 2)
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
        w = tl.load(matrix + row[:, None] * pitch + at[None, :], mask=inside, other=0.0).to(SUM)
        a += w * tl.load(x + row, mask=row < high, other=0.0).to(SUM)[:, None]
        if ROWS > 1:
            b += w * tl.load(x + given_r + row, mask=row < high, other=0.0).to(SUM)[:, None]
        if ROWS > 2:
            c += w * tl.load(x + 2 * given_r + row, mask=row < high, other=0.0).to(SUM)[:, None]
        if ROWS > 3:
            d += w * tl.load(x + 3 * given_r + row, mask=row < high, other=0.0).to(SUM)[:, None]
    y = made + k * made_k + at
    tl.store(y, tl.sum(a, 0), mask=at < wide)
    if ROWS > 1:
        tl.store(y + made_r, tl.sum(b, 0), mask=at < wide)
    if ROWS > 2:
        tl.store(y + 2 * made_r, tl.sum(c, 0), mask=at < wide)
    if ROWS > 3:
        tl.store(y + 3 * made_r, tl.sum(d, 0), mask=at < wide)


class Places:
    """Where tensors lie that lie elsewhere at every step, in memory that stays where it is, as a graph needs it.

    Attributes:
        table: one number for each.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self.table = torch.zeros(count, dtype=torch.int64, device=device)
        self._known: list[int] = []

    def tell(self, tensors: Sequence[Tensor | None]) -> None:
        """Take in where they lie now."""
        where = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
        if where != self._known:
            self._known = where
            self.table.copy_(_at_hand(where, self.table.device), non_blocking=True)


class Compared:
    """Weights beside their gradients and what they were before the step, without copies of any of them but the last.

    Args:
        weights: of one type on one device; rows may lie apart, as every eighth row of a matrix does.

    Attributes:
        blocks: of each weight; each begins at a block in what is kept.
        sums: (4, blocks): Σ weight², Σ gradient², Σ gradient·weight before the step and Σ step², as last compared.
        steps: the weights as kept, or what was taken off them in the step, once they were compared.
        kind: type of the gradients.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.device, self._key = weights[0].device, _where(weights)
        self.blocks = [-(-weight.numel() // BLOCK) for weight in weights]
        parts = [(part, block * BLOCK) for part, count in enumerate(self.blocks) for block in range(count)]
        self._tiles, self._weights = _sent(parts, self.device), _sent(self._rows(weights), self.device)
        self._wide = torch.float64 if weights[0].dtype == torch.float64 else torch.float32
        self._dtype = self.kind = weights[0].dtype
        self._slopes = Places(len(weights), self.device)
        self._lying = torch.ones(len(weights), 3, dtype=torch.int64, device=self.device)
        self._forms: list[Any] | None = None  # of the gradients that `_lying` describes
        self._copied: list[Tensor | None] = []
        self.sums = torch.zeros(4, len(parts), dtype=torch.float64, device=self.device)
        self._lengths = _sent(4 * self.blocks, self.device)
        self._kept = torch.zeros(len(parts) * BLOCK, dtype=self._wide, device=self.device)
        lines = self._kept.split([count * BLOCK for count in self.blocks])
        self.steps = [line[: w.numel()].view(w.shape) for line, w in zip(lines, weights, strict=True)]

    @property
    def state(self) -> list[Tensor]:
        """Where everything is."""
        return [self._tiles, self._weights, self.sums, self._lengths, self._kept, self._slopes.table, self._lying]

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
            _keep[(len(self._tiles),)](
                self._tiles, self._weights, self._kept, TYPE=TYPES[self._dtype], BLOCK=BLOCK
            )  # fmt: skip

    def meet(self, whole: Sequence[Tensor | None], cut: Callable[[int, Tensor], Tensor]) -> None:
        """Take in the gradients of the coming comparison.

        Args:
            whole: of each weight, where it has one.
            cut: the part of a gradient that belongs to the weight, from the place of both; it begins where that does.
        """
        forms = [None if slope is None else (slope.stride(), slope.dtype) for slope in whole]
        if forms != self._forms:
            parts = [None if slope is None else cut(place, slope) for place, slope in enumerate(whole)]
            known = can_compare([], parts)
            if not known:
                parts = [None if slope is None else slope.to(self._dtype).contiguous() for slope in parts]
                whole = self._copied = parts  # held until they are compared
            self._forms = forms if known else None
            self.kind = next((slope.dtype for slope in parts if slope is not None), self._dtype)
            self._lying.copy_(_at_hand([row[1:] for row in self._rows(parts)], self.device), non_blocking=True)
        self._slopes.tell(whole)

    def compare(self, *, kept: bool) -> None:
        """Take the sums of the weights as they are now; what was kept becomes the step, where something was."""
        with on(self.device):
            _compare[(len(self._tiles),)](
                self._tiles, self._weights, self._slopes.table, self._lying, self._kept, self.sums, self.sums.shape[1],
                TYPE=TYPES[self._dtype], SLOPE=TYPES[self.kind], WIDE=TYPES[self._wide], KEPT=kept, BLOCK=BLOCK,
            )  # fmt: skip

    def added(self) -> Sequence[Tensor]:
        """The four sums of each weight."""
        lengths = self._lengths
        return (
            torch.segment_reduce(self.sums.flatten(), "sum", lengths=lengths, axis=0, unsafe=True).view(4, -1).unbind()
        )

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
    tiles, weights, slopes, lying, kept, sums, blocks,
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
    slope = tl.load(slopes + part).to(tl.pointer_type(SLOPE))
    size, wide, pitch = tl.load(lying + 3 * part), tl.load(lying + 3 * part + 1), tl.load(lying + 3 * part + 2)
    g = tl.load(slope + at // wide * pitch + at % wide, mask=at < size, other=0.0).to(WIDE)
    before, step = w, w - w
    if KEPT:
        place = kept + block * BLOCK + tl.arange(0, BLOCK)
        before = tl.load(place)
        step = before - w
        tl.store(place, step)
    tl.store(sums + block, tl.sum((w * w).to(tl.float64), 0))
    tl.store(sums + blocks + block, tl.sum(g.to(tl.float64) * g.to(tl.float64), 0))  # float32 may hold no square
    tl.store(sums + 2 * blocks + block, tl.sum((g * before).to(tl.float64), 0))
    tl.store(sums + 3 * blocks + block, tl.sum((step * step).to(tl.float64), 0))


class Squares:
    """Euclidean norms of tensors that may lie elsewhere each time, as gradients do.

    Args:
        tensors: of one type on one device, the numbers of each together.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.device, self._dtype = tensors[0].device, tensors[0].dtype
        self._shapes = [tensor.shape for tensor in tensors]
        counts = [-(-tensor.numel() // PIECE) for tensor in tensors]
        pieces = [(part, piece * PIECE) for part, count in enumerate(counts) for piece in range(count)]
        self._tiles, self._lengths = _sent(pieces, self.device), _sent(counts, self.device)
        self._sizes = _sent([tensor.numel() for tensor in tensors], self.device)
        self._sums = torch.zeros(len(pieces), dtype=torch.float64, device=self.device)
        self._places = Places(len(counts), self.device)

    @property
    def state(self) -> list[Tensor]:
        """Where everything is."""
        return [self._tiles, self._lengths, self._sizes, self._sums, self._places.table]

    def fit(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these are as those were, wherever they are."""
        if [tensor.shape for tensor in tensors] != self._shapes:
            return False
        return all(tensor.dtype == self._dtype and tensor.is_contiguous() for tensor in tensors)

    def meet(self, tensors: Sequence[Tensor]) -> None:
        """Take in where they lie now."""
        self._places.tell(tensors)

    def norms(self) -> Tensor:
        """The norm of each, in float64."""
        with on(self.device):
            _square[(len(self._tiles),)](
                self._tiles, self._places.table, self._sizes, self._sums,
                TYPE=TYPES[self._dtype], BLOCK=BLOCK, PIECE=PIECE,
            )  # fmt: skip
        return torch.segment_reduce(self._sums, "sum", lengths=self._lengths, axis=0, unsafe=True).sqrt()


@triton.jit
def _square(  # type: ignore[no-untyped-def]
    tiles, places, sizes, sums, TYPE: tl.constexpr, BLOCK: tl.constexpr, PIECE: tl.constexpr
):
    """Σ x² of one piece of one tensor."""
    tile = tl.program_id(0).to(tl.int64)
    part, first = tl.load(tiles + 2 * tile), tl.load(tiles + 2 * tile + 1)
    numbers, size = tl.load(places + part).to(tl.pointer_type(TYPE)), tl.load(sizes + part)
    s = tl.zeros((BLOCK,), tl.float64)
    for begin in range(0, PIECE, BLOCK):
        at = first + begin + tl.arange(0, BLOCK)
        x = tl.load(numbers + at, mask=at < size, other=0.0).to(tl.float64)
        s += x * x
    tl.store(sums + tile, tl.sum(s, 0))


def can_square(tensors: Sequence[Tensor]) -> bool:
    """Whether `Squares` takes these: of one type, nothing between their numbers, something in each."""
    kinds = {tensor.dtype for tensor in tensors}
    return len(kinds) == 1 and kinds <= TYPES.keys() and all(t.numel() and t.is_contiguous() for t in tensors)


def can_compare(weights: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> bool:
    """Whether one kernel reads all of these: of one type each, rows that lie together, something in each."""
    several: tuple[Sequence[Tensor | None], ...] = (weights, gradients)
    for tensors in several:
        known = [tensor for tensor in tensors if tensor is not None]
        if len({tensor.dtype for tensor in known}) > 1 or not all(map(_is_in_rows, known)):
            return False
    return True


def _where(tensors: Sequence[Tensor]) -> list[tuple[int, tuple[int, ...]]]:
    """Where tensors of known shapes lie."""
    return [(tensor.data_ptr(), tensor.stride()) for tensor in tensors]


def on(device: torch.device) -> AbstractContextManager[Any]:
    """Kernels run on the device their tensors are on."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


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
    """Whole numbers on their way to a device."""
    return _at_hand(numbers, device).to(device, non_blocking=True)


def _at_hand(numbers: Sequence[Any], device: torch.device) -> Tensor:
    """Whole numbers in main memory that a device takes without anybody waiting."""
    made = torch.tensor(numbers, dtype=torch.int64)
    return made.pin_memory() if device.type == "cuda" else made
