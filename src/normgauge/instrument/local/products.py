"""Products of two values in a ball: entry by entry, or of matrices, whichever way they are written.

At x the product moves by Ȧ B + A Ḃ, at the sample by Ȧ B_c + A_c Ḃ; what is left is Ȧ δB and δA Ḃ. Row i of the first
is (row i of Ȧ) δB, at most ‖δB‖ times as long as that row, column j of the second at most ‖δA‖ times column j of Ḃ:
a block for each row and each column, with ‖δB‖ ≤ r·sup‖∂B/∂x‖. Entry by entry all of these are single numbers.
Secants from the sample leave only ΔA ΔB.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normgauge.core.rounding import dot_error, house_up
from normgauge.instrument.local.blocks import SETTLED, Bent, Open, unit_columns
from normgauge.instrument.local.pieces import NotCarried, Piece
from normgauge.instrument.rules.product import centre_norms, matmul_letters
from normgauge.instrument.rules.projection import FIXED, spelled_out
from normgauge.instrument.trace.step import Step, Value

ELEMENTWISE, MATRICES = "combine.multiply", ("projection.matmul", "projection.einsum")
PRODUCTS = (ELEMENTWISE, *MATRICES)

Lengths = Callable[[Value, Tensor], Tensor]
"""From a value and places in it (blocks, entries) to how far each block moves in the ball as a length, with errors."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two values as matrices.

    Attributes:
        value: it.
        order: (blocks, rows, columns), places of its entries.
    """

    value: Value
    order: Tensor

    @property
    def centre(self) -> Tensor:
        """The matrices at the sample."""
        return self.of(self.value.tensor.detach()[None])[0]

    @property
    def copies(self) -> int:
        """How many matrices an entry is in, at most."""
        return int(self.order.reshape(-1).bincount().max())

    def of(self, tangents: Tensor) -> Tensor:
        """(count, blocks, rows, columns) of tangents."""
        return tangents.reshape(len(tangents), -1)[:, self.order]


@dataclass(frozen=True, slots=True)
class Product:
    """out = A B, block by block.

    Attributes:
        first: A, (blocks, m, k).
        second: B, (blocks, k, n).
        order: (blocks, m, n), places of the entries of the result.
    """

    first: Side
    second: Side
    order: Tensor

    def join(self, blocks: Tensor, shape: torch.Size) -> Tensor:
        """(count, *shape) from (count, blocks, m, n)."""
        back = torch.empty(self.order.numel(), dtype=torch.long)
        back[self.order.reshape(-1)] = torch.arange(self.order.numel())
        return blocks.reshape(len(blocks), -1)[:, back].reshape(-1, *shape)


def product_of(step: Step, rule: str) -> Product:
    """The two values of a product and how their entries meet.

    Raises:
        NotCarried: for a product in another form.
    """
    pair, letters = _operands(step, rule)
    if len(step.inputs) != 2 or not all(isinstance(one, Value) for one in pair):
        raise NotCarried("a product in this form")
    shape = step.outputs[0].tensor.shape
    places = [torch.arange(one.tensor.numel()).reshape(one.tensor.shape) for one in pair]
    if rule == ELEMENTWISE:
        first, second = (place.expand(shape).reshape(-1, 1, 1) for place in places)
        return Product(Side(pair[0], first), Side(pair[1], second), torch.arange(shape.numel()).reshape(-1, 1, 1))
    left, right, out = letters
    sizes: dict[str, int] = dict(zip(out, shape, strict=True))
    inner = [c for c in left if c in right and c not in out]
    batch = [c for c in out if c in left and c in right]
    lone = any(len(set(word)) < len(word) for word in letters)
    rows, columns = ([c for c in out if c in word and c not in batch] for word in (left, right))
    if lone or {*left, *right} - {*inner, *out} or len(out) != len(batch) + len(rows) + len(columns):
        raise NotCarried("a sum in this form")
    sizes |= {c: pair[0].tensor.shape[left.index(c)] for c in inner}
    count = math.prod(sizes[c] for c in batch)
    kept = [
        (left, places[0], [*batch, *rows, *inner], (count, math.prod(sizes[c] for c in rows), -1)),
        (right, places[1], [*batch, *inner, *columns], (count, -1, math.prod(sizes[c] for c in columns))),
        (out, torch.arange(shape.numel()).reshape(shape), [*batch, *rows, *columns], None),
    ]
    orders: list[Tensor] = []
    for word, place, wanted, split in kept:
        laid = place.permute([word.index(c) for c in wanted]).expand([sizes[c] for c in wanted])
        orders.append(laid.reshape(split or (count, orders[0].shape[1], orders[1].shape[2])))
    return Product(Side(pair[0], orders[0]), Side(pair[1], orders[1]), orders[2])


def _operands(step: Step, rule: str) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """The two operands in the order they are multiplied, and einsum's letters for them and the result."""
    if rule == "projection.einsum":
        pair: tuple[Any, ...] = tuple(step.args[1]) if isinstance(step.args[1], list | tuple) else step.args[1:]
        equation = str(step.args[0]).replace(" ", "")
        if len(pair) != 2 or not all(isinstance(one, Value) for one in pair):
            return pair, ()
        left, _, rest = spelled_out(equation, tuple(one.tensor.ndim for one in pair)).partition(",")
        return pair, (left, *rest.split("->"))
    names = ("other", "mat2", "vec", "vec2", "tensor")
    other = step.args[1] if len(step.args) > 1 else next((step.kwargs[k] for k in names if k in step.kwargs), None)
    given: tuple[Any, ...] = (step.get(0, "input"), other)
    pair = given[::-1] if step.kind == "__rmatmul__" else given
    if rule == ELEMENTWISE or not all(isinstance(one, Value) for one in pair):
        return pair, ()
    fixed = FIXED.get(step.kind, "")
    if fixed:
        left, _, rest = fixed.partition(",")
        return pair, (left, *rest.split("->"))
    return pair, matmul_letters(pair[0].tensor.shape, pair[1].tensor.shape)


def multiplied(step: Step, rule: str, lengths: Lengths, errors: Sequence[float], secant: bool = False) -> Bent:
    """A product of two values; ``errors`` are those of the two, as lengths.

    Raises:
        NotCarried: for a product in another form, and where nothing is known of how far its values move.
    """
    product = product_of(step, rule)
    sides = (product.first, product.second)
    moves = [lengths(side.value, side.order.flatten(1)) for side in sides]  # (blocks,) ‖δA‖, ‖δB‖
    if not all(bool(move.isfinite().all()) for move in moves):
        raise NotCarried("it multiplies values that may be of any size")
    centres = [side.centre for side in sides]
    value = step.outputs[0].tensor.detach()

    def push(v: Sequence[Tensor]) -> Tensor:
        left, right = (side.of(t) for side, t in zip(sides, v, strict=True))
        return product.join(left @ centres[1] + centres[0] @ right, value.shape)

    gains = [house_up(_largest_norm(centres[1 - k]) * math.sqrt(side.copies)) for k, side in enumerate(sides)]
    loose = [move > SETTLED for move in moves]
    rest = sum(
        float(torch.where(loose[1 - k], 0.0, moves[1 - k]).max()) * math.sqrt(side.copies)
        for k, side in enumerate(sides)
    )
    terms, sizes = sides[0].order.shape[2], [float(torch.linalg.vector_norm(centre)) for centre in centres]
    copies = max(side.copies for side in sides)
    slip = rest + 2 * dot_error(2 * terms + copies) * math.hypot(*sizes) * math.sqrt(copies)
    again = product.join((centres[0] @ centres[1])[None], value.shape)[0]
    blur = dot_error(terms) * sizes[0] * sizes[1] + float(torch.linalg.vector_norm(value - again))
    blur += errors[0] * errors[1]
    swap = step.inputs[0] is not sides[0].value  # a product is told the values in the order they were given
    inputs = tuple(v.index for v in step.inputs)
    ordered: Callable[[Sequence[Tensor]], list[Tensor]] = lambda v: [*v][::-1] if swap else [*v]  # noqa: E731
    piece = Piece(
        step, inputs, lambda v: push(ordered(v)), tuple(gains[::-1] if swap else gains), house_up(slip), house_up(blur)
    )
    found = [_opened(product, k, moves[1 - k], loose[1 - k], value.shape) for k in ((0,) if secant else (0, 1))]
    opened = [one for one in found if one is not None]
    if not opened:
        return Bent(piece, None)
    joined = opened[0] if len(opened) == 1 else _joined(*opened)
    return Bent(piece, dataclasses.replace(joined, select=lambda v: joined.select(ordered(v))))


def _largest_norm(blocks: Tensor) -> float:
    """The largest norm of matrices, from above; of numbers their size."""
    return float((blocks.abs() if blocks[0].numel() == 1 else centre_norms(blocks)).max())


def _opened(product: Product, which: int, half: Tensor, loose: Tensor, shape: torch.Size) -> Open | None:
    """Blocks with a multiplier each: the rows of the first of the two values, or the columns of the second."""
    if not bool(loose.any()):
        return None
    side = (product.first, product.second)[which]
    order, out = (t[loose] if which == 0 else t[loose].mT for t in (side.order, product.order))
    blocks, lines, entries = order.shape  # lines of the value, which make lines of the result
    width, count = out.shape[2], blocks * lines
    places = out.reshape(-1)
    number = torch.arange(count)
    picked = order.reshape(-1)
    return Open(
        lambda v: v[which].reshape(len(v[which]), -1)[:, picked].T,
        unit_columns(places, shape),
        half[loose].repeat_interleave(lines * entries),
        number.repeat_interleave(entries),
        number.repeat_interleave(width),
        spread=math.sqrt(side.copies),
    )


def _joined(first: Open, second: Open) -> Open:
    """Both, each with its own multipliers."""
    shift = int(first.group.max()) + 1
    return Open(
        lambda v: torch.cat([first.select(v), second.select(v)]),
        torch.cat([first.columns, second.columns]),
        torch.cat([first.half, second.half]),
        torch.cat([first.group, second.group + shift]),
        torch.cat([first.entering, second.entering + shift]),
        spread=math.hypot(first.spread, second.spread),
    )
