"""The mathematics of products of matrices: a constant times a branch, and two branches, in einsum's letters."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from normgauge.core.rounding import house_up
from normgauge.instrument.rules.affine import matrix_transfer
from normgauge.instrument.rules.flow import (
    INF,
    Commute,
    Context,
    Flow,
    Gain,
    SamplesMixed,
    Transfer,
    endless,
    log_vector,
)
from normgauge.instrument.rules.worked import at_sample, equal, largest_term, result, shape_words, within, worst_sample
from normgauge.instrument.spectral.dense import dense_norm, norms_squared, to_double
from normgauge.instrument.trace.step import Value

WORK_LIMIT = 2e10
"""Most operations spent on exact spectral norms of a branch's centre; beyond, √(‖·‖₁‖·‖_∞) is used."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a product: a letter for each axis, as in einsum, each once.

    Attributes:
        data: centre or constant, float64 or complex128.
        letters: one a tensor axis.
        flow: what is known of it; None for a constant.
        source: the tensor itself, for the cache.
        whole: no axis was squeezed away.
    """

    data: Tensor
    letters: str
    flow: Flow | None = None
    source: Tensor | None = None
    whole: bool = True

    def blocks(self, batch: str, inner: str) -> Tensor:
        """(batch…, inner, rest): the matrices the other side is multiplied with, one for each setting of ``batch``."""
        rest = [c for c in self.letters if c not in batch and c not in inner]
        order = [self.letters.index(c) for c in (*batch, *inner, *rest)]
        sizes = [self.data.shape[self.letters.index(c)] for c in batch]
        width = math.prod(self.data.shape[self.letters.index(c)] for c in inner)
        return self.data.permute(order).reshape(*sizes, width, -1)


@dataclass(frozen=True, slots=True)
class EinsumProduct:
    """out = Σ over ``inner`` letters of first·second."""

    first: Operand
    second: Operand
    out: str

    @property
    def inner(self) -> str:
        """Letters summed over."""
        return "".join(c for c in self.first.letters if c in self.second.letters and c not in self.out)

    @property
    def batch(self) -> str:
        """Letters that both sides and the result carry: the product is block diagonal in them."""
        return "".join(c for c in self.first.letters if c in self.second.letters and c in self.out)

    @property
    def trouble(self) -> str:
        """Why this is not a product of matrices; empty when it is."""
        for one, other in ((self.first, self.second), (self.second, self.first)):
            if len(set(one.letters)) < len(one.letters):
                return "a diagonal"
            if any(c not in self.out and c not in other.letters for c in one.letters):
                return "a sum over an axis of one operand only"
        return "a diagonal" if len(set(self.out)) < len(self.out) else ""


def operand(given: Any, letters: str, flows: list[Flow]) -> Operand:
    """An argument with its flow, if it is tracked."""
    if isinstance(given, Value):
        return Operand(to_double(given.tensor), letters, flows.pop(0))
    return Operand(to_double(given), letters, source=given)


def squeezed(one: Operand, out_sizes: dict[str, int]) -> Operand:
    """The operand without the axes of size 1 that broadcasting would repeat: only the other side has their letter."""
    data, letters = one.data, one.letters
    for c in one.letters:
        if data.shape[letters.index(c)] == 1 and out_sizes.get(c, 1) > 1:
            data, letters = data.squeeze(letters.index(c)), letters.replace(c, "")
    if one.flow is None or letters == one.letters:
        return replace(one, data=data, letters=letters)
    axis = sum(c in letters for c in one.letters[: one.flow.axis % max(one.data.ndim, 1)])
    rows_kept = one.letters[-1:] == letters[-1:]  # otherwise rows were single entries
    flow = one.flow if rows_kept else replace(one.flow, row=one.flow.radius, norm=one.flow.peak * INF)
    return Operand(data, letters, replace(flow, axis=axis), whole=False)


def product_axis(product: EinsumProduct, ctx: Context) -> int:
    """The axis of the result along which the samples lie.

    Raises:
        SamplesMixed: when the product sums over them or pairs different samples.
    """
    if ctx.samples == 1:
        return 0
    letters = {o.letters[o.flow.axis % o.data.ndim] for o in (product.first, product.second) if o.flow is not None}
    letter = letters.pop()
    both = product.first.flow is not None and product.second.flow is not None
    if letters or letter not in (product.batch if both else product.out):
        raise SamplesMixed("a product of matrices across samples")
    return product.out.index(letter)


def transfer_of(product: EinsumProduct, ctx: Context) -> Transfer:
    """The transfer of a product of which one side or both depend on the input."""
    axis = product_axis(product, ctx)
    if product.first.flow is not None and product.second.flow is not None:
        return of_branches(product, ctx, axis)
    if product.first.flow is not None:
        return by_constant(product, product.first, product.second, ctx, axis)
    return by_constant(product, product.second, product.first, ctx, axis)


def form_of(moving: Operand, product: EinsumProduct) -> Commute | None:
    """How channel weights pass: unchanged on every axis that keeps its place, since only the summed axis is mixed."""
    if len(product.inner) != 1 or not moving.whole or len(product.out) != len(moving.letters):
        return None
    kept = all(c in (o, product.inner) for c, o in zip(moving.letters, product.out, strict=True))
    return Commute((moving.letters.index(product.inner),)) if kept else None


def by_constant(product: EinsumProduct, moving: Operand, constant: Operand, ctx: Context, axis: int) -> Transfer:
    """The transfer of a branch times a constant: block diagonal, so exactly the largest norm of its matrices."""
    flow, inner, batch = moving.flow, product.inner, product.batch
    assert flow is not None
    free = "".join(c for c in constant.letters if c not in inner and c not in batch)
    key = ("product", id(constant.source), constant.letters, inner, batch)
    blocks = constant.blocks(batch, inner)
    matrix = ctx.once(key, constant.source, lambda: blocks.mT)
    on_rows = inner != "" and inner == moving.letters[-1:]
    if on_rows and not batch and len(free) == 1 and product.out == moving.letters[:-1] + free:
        return replace(matrix_transfer(matrix, None, flow, ctx), axis=axis)
    norm = ctx.once(("norm", *key), constant.source, lambda: dense_norm(blocks).log)
    last = moving.letters[-1:]
    stretch = row = length = None
    if on_rows and product.out[-1:] in free and product.out:
        stretch = math.exp(norm.hi) if norm.hi < 700 else INF
    elif last and product.out[-1:] == last:
        stretch = _row_sum(constant, product, last)
    if stretch is not None:
        row, length = ((stretch * size).nan_to_num(nan=INF, posinf=INF) for size in (flow.row, flow.norm))
    reach = (_row_sum(constant, product, "") * flow.peak).nan_to_num(nan=INF, posinf=INF)
    gain = Gain(ctx.full(norm.hi), norm.lo, form_of(moving, product))
    text = f"‖C‖₂, C {shape_words(matrix.shape)}"
    if matrix.ndim > 2:
        text = f"largest ‖C_b‖₂ of {math.prod(matrix.shape[:-2])} matrices, C_b {shape_words(matrix.shape[-2:])}"
    worked = within(text, norm)
    return Transfer((gain,), row=row, norm=length, low=-reach, high=reach, axis=axis, worked=worked)


def _row_sum(constant: Operand, product: EinsumProduct, along: str) -> float:
    """Largest Σ|c| over the summed letters, each |c| at its largest ``along`` a letter of the constant."""
    size = constant.data.abs()
    if along and along in constant.letters:
        size = size.amax(constant.letters.index(along), keepdim=True).expand_as(size)
    return house_up(float(Operand(size, constant.letters).blocks(product.batch, product.inner).sum(-2).max()))


def centre_norms(blocks: Tensor) -> Tensor:
    """Upper bounds of the spectral norms of a batch of matrices."""
    size = blocks.abs()
    quick = torch.minimum((size.sum(-1).amax(-1) * size.sum(-2).amax(-1)).sqrt(), torch.linalg.matrix_norm(blocks))
    rows, columns = blocks.shape[-2:]
    if max(quick.numel(), 1) * min(rows, columns) ** 2 * (max(rows, columns) + 10 * min(rows, columns)) > WORK_LIMIT:
        return house_up(quick)
    return house_up(torch.minimum(quick, norms_squared(blocks)[1].sqrt()))


def supremum(side: Operand, product: EinsumProduct, ctx: Context) -> Tensor:
    """The largest spectral norm that a side's matrices can have in the scope, for each sample.

    min(‖centre‖ + radius of the block, √rows·(longest row), √entries·(largest entry))
    """
    flow = side.flow
    assert flow is not None
    blocks = side.blocks(product.batch, product.inner)
    entries = blocks.shape[-1] * blocks.shape[-2]
    best, moved = (math.sqrt(entries) * flow.peak).nan_to_num(nan=INF, posinf=INF), flow.radius
    last = side.letters[-1:]
    if last and last not in product.batch:
        rows = math.sqrt(entries / max(side.data.shape[-1], 1))
        best = torch.minimum(best, (rows * flow.norm).nan_to_num(nan=INF, posinf=INF))
        moved = torch.minimum(moved, (rows * flow.row).nan_to_num(nan=INF, posinf=INF))
    if bool(torch.isfinite(moved).any()) and blocks.numel() and bool(torch.isfinite(blocks).all()):
        norms = centre_norms(blocks)
        if ctx.samples > 1:
            norms = norms.movedim(product.batch.index(side.letters[flow.axis % side.data.ndim]), 0)
        centre = norms.reshape(ctx.samples, -1).amax(1).cpu()
        best = torch.minimum(best, centre + moved)
    return house_up(best)


def of_branches(product: EinsumProduct, ctx: Context, axis: int) -> Transfer:
    """The transfer of a product of two branches: the product rule with sup‖A‖ and sup‖B‖ over the scope."""
    first, second = product.first, product.second
    a, b = first.flow, second.flow
    assert a is not None and b is not None
    sup_a, sup_b = supremum(first, product, ctx), supremum(second, product, ctx)
    gains = (Gain(log_vector(sup_b)), Gain(log_vector(sup_a), form=form_of(second, product)))
    inner = math.prod(first.data.shape[first.letters.index(c)] for c in product.inner)
    peak = torch.minimum(sup_a * sup_b, inner * a.peak * b.peak)
    row = norm = None
    if product.inner == first.letters[-1:]:  # rows of A meet whole matrices B
        peak = torch.minimum(peak, a.norm * sup_b)
        if product.out[-1:] in second.letters and product.out[-1:] not in product.batch:
            norm = house_up(a.norm * sup_b).nan_to_num(nan=INF, posinf=INF)
            row = house_up(a.row * sup_b + a.norm * b.radius).nan_to_num(nan=INF, posinf=INF)
    if product.inner == second.letters[-1:]:
        peak = torch.minimum(peak, sup_a * b.norm)
    peak = house_up(peak).nan_to_num(nan=INF, posinf=INF)
    low = ctx.full(0.0) if bool((a.low >= 0).all() and (b.low >= 0).all()) else -peak
    logs = [g.log for g in gains]
    sizes = largest_term(result(float(log[worst_sample(*logs)]), 6) for log in logs)
    worked = equal(f"{at_sample(*logs)}max(sup‖B‖, sup‖A‖) = {sizes}", *logs)
    found = Transfer(gains, row=row, norm=norm, low=low, high=peak, axis=axis, worked=worked)
    return endless(found, "a product of branches for which no bound is known in this scope", proved=False)


def matmul_letters(a: torch.Size, b: torch.Size) -> tuple[str, str, str]:
    """The letters of torch.matmul: batch axes aligned from the right, vectors without their own row or column."""
    count = max(len(a), len(b), 2) - 2
    batch = LETTERS[:count]
    rows, inner, columns = "xyz"
    first = inner if len(a) == 1 else batch[count - (len(a) - 2) :] + rows + inner
    second = inner if len(b) == 1 else batch[count - (len(b) - 2) :] + inner + columns
    return first, second, batch + (rows if len(a) > 1 else "") + (columns if len(b) > 1 else "")


def build_product(pair: tuple[Any, Any], equation: str, flows: list[Flow]) -> EinsumProduct:
    """The product of two arguments, by an einsum equation or, without one, as torch.matmul takes them."""
    if equation:
        sides, out = equation.split("->")
        left, right = sides.split(",")
    else:
        left, right, out = matmul_letters(*(o.tensor.shape if isinstance(o, Value) else o.shape for o in pair))
    first, second = operand(pair[0], left, flows), operand(pair[1], right, flows)
    sizes: dict[str, int] = {}
    for one in (first, second):
        for c, n in zip(one.letters, one.data.shape, strict=True):
            sizes[c] = max(sizes.get(c, 1), n)
    return EinsumProduct(squeezed(first, sizes), squeezed(second, sizes), out)
