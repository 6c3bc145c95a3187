"""Sums and products of branches, with broadcasting, and reductions."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import Tensor

from normgauge.core.rounding import log_inward, log_root, size_down, size_up
from normgauge.instrument.rules.algebra import EUCLIDEAN, norm_order
from normgauge.instrument.rules.flow import (
    INF,
    Commute,
    Context,
    Diagonal,
    Flow,
    Gain,
    SamplesMixed,
    Transfer,
    endless,
    log_vector,
)
from normgauge.instrument.rules.registry import Family, spellings
from normgauge.instrument.rules.worked import (
    JUMPS,
    at_sample,
    equal,
    largest_term,
    number,
    result,
    shape_words,
    worst_sample,
)
from normgauge.instrument.spectral.dense import to_double
from normgauge.instrument.trace.step import Step, Value, axes_of

rules = Family("combine")


def data_of(operand: Any) -> Tensor:
    """Contents of a value, a constant tensor or a number, in float64 or complex128."""
    if isinstance(operand, Value | Tensor):
        return to_double(operand.tensor if isinstance(operand, Value) else operand)
    return torch.tensor(operand, dtype=torch.complex128 if isinstance(operand, complex) else torch.float64)


def broadcast_copies(shape: torch.Size, out: torch.Size) -> int:
    """How many copies broadcasting makes of each entry."""
    return math.prod(out) // max(math.prod(shape), 1)


def repeated_axes(shape: torch.Size, out: torch.Size) -> tuple[int, ...]:
    """The axes along which broadcasting repeats a tensor of ``shape``."""
    new = len(out) - len(shape)
    return tuple(i for i in range(len(out)) if i < new or shape[i - new] != out[i])


def aligned_axis(step: Step, incoming: tuple[Flow, ...], ctx: Context, operands: tuple[Any, ...]) -> int:
    """The sample axis of a broadcast result.

    Raises:
        SamplesMixed: when the operands' samples do not line up, or broadcasting repeats entries across samples.
    """
    out = step.outputs[0].tensor
    if ctx.samples == 1:
        return 0
    axes = set()
    for operand, flow in zip([o for o in operands if isinstance(o, Value)], incoming, strict=True):
        shape = operand.tensor.shape
        axis = flow.axis % max(len(shape), 1) + out.ndim - len(shape)
        if not shape or shape[flow.axis % len(shape)] != out.shape[axis]:
            raise SamplesMixed("broadcasting across samples")
        axes.add(axis)
    if len(axes) != 1:
        raise SamplesMixed("operands whose samples lie on different axes")
    return axes.pop()


@rules.add(
    *spellings(
        "add",
        "add_",
        "sub",
        "sub_",
        "subtract",
        "__add__",
        "__radd__",
        "__iadd__",
        "__sub__",
        "__rsub__",
        "__isub__",
        "rsub",
    ),
    operator.add,
    operator.sub,
    claim="X.add",
    complex=True,
)
def add(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Sum or difference of branches, or of a branch and a constant.

    L ≤ ΣL_i, each times √copies where broadcasting repeats it;  a constant adds nothing

    Holds:  everywhere; attained when the branches align.
    Source: triangle inequality.
    """
    operands = (step.args[0], step.get(1, "other"))
    alpha = step.kwargs.get("alpha", 1)
    if isinstance(alpha, complex):
        return ctx.unknown(incoming, "a complex alpha")
    alpha = float(alpha)
    scales = [alpha, 1.0] if step.kind == "rsub" else [1.0, alpha]
    out = step.outputs[0].tensor
    axis = aligned_axis(step, incoming, ctx, operands)
    gains, row, norm, low, high = [], ctx.full(0.0), ctx.full(0.0), ctx.full(0.0), ctx.full(0.0)
    terms = []
    flows = iter(incoming)
    minus = "sub" in step.kind
    flipped = step.kind in ("__rsub__", "rsub")
    for k, (operand, scale) in enumerate(zip(operands, scales, strict=True)):
        sign = -1.0 if (minus and (k == 1) != flipped) != (scale < 0) else 1.0
        scale = abs(scale)
        if not isinstance(operand, Value):
            data = data_of(operand) * scale * sign
            if data.numel():
                norm = norm + _row_length(data, out)
                ends = (-data.abs(), data.abs()) if data.is_complex() else (data, data)
                low, high = low + float(ends[0].min()), high + float(ends[1].max())
            continue
        flow = next(flows)
        copies = broadcast_copies(operand.tensor.shape, out.shape)
        value = scale * math.sqrt(copies)
        terms.append(f"{number(scale)}·√{copies}")
        gains.append(
            Gain(
                ctx.log(value) if value != 1 else ctx.full(0.0),
                form=Diagonal() if operand.tensor.shape == out.shape else None,
            )
        )
        stretch = scale * math.sqrt(_row_copies(operand.tensor.shape, out.shape))
        row, norm = row + stretch * flow.row, norm + stretch * flow.norm
        ends = (flow.low * scale * sign, flow.high * scale * sign)
        low, high = low + torch.minimum(*ends), high + torch.maximum(*ends)
    return Transfer(
        tuple(gains),
        row=row,
        norm=norm,
        low=low,
        high=high,
        axis=axis,
        onto=len(gains) == 1 and terms[0].endswith("√1") and bool(gains[0].log[0] > -INF),
        neutral=len(gains) == 1 and bool((gains[0].log == 0).all()),  # a constant is added, nothing is repeated
        worked=_sum_worked(terms, gains),
    )


def _sum_worked(terms: list[str], gains: list[Gain]) -> str:
    """The formula of a sum with its numbers: the gain of the branch that is enlarged most."""
    logs = [g.log for g in gains]
    if all(term == "1·√1" for term in terms):
        what = "one branch, the constant adds nothing" if len(terms) == 1 else "2 branches that add, each as it is"
        return equal(what, *logs)
    branches = "" if len(terms) == 1 else ", the larger of 2 branches"
    return equal(f"|α|·√copies{branches} = {largest_term(terms)}", *logs)


def _row_copies(shape: torch.Size, out: torch.Size) -> int:
    """How often an entry is repeated within a row of the result."""
    return 1 if not out or (shape and shape[-1] == out[-1]) else out[-1]


def _row_length(data: Tensor, out: Tensor) -> float:
    length = out.shape[-1] if out.ndim else 1
    if data.ndim and data.shape[-1] == length:
        return float(torch.linalg.vector_norm(data, dim=-1).max())
    return float(data.abs().max()) * math.sqrt(length)


@rules.add(
    *spellings("mul", "mul_", "multiply", "__mul__", "__rmul__", "__imul__"),
    operator.mul,
    claim="X.multiply",
    complex=True,
)
def multiply(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Product of branches, or of a branch and a constant.

    constant c: ‖J‖ = max|c| (blocks of c where broadcasting repeats the branch);
    branches: L ≤ sup‖b‖·L_a + sup‖a‖·L_b, where ‖·‖ is the largest entry, or for a broadcast operand the largest
    ℓ2 norm of a block it multiplies

    Holds:  everywhere for a constant; for two branches where both are bounded, not Lipschitz otherwise.
    Source: product rule.
    """
    a, b = step.args[0], step.get(1, "other")
    if not (isinstance(a, Value) and isinstance(b, Value)):
        value, constant = (a, b) if isinstance(a, Value) else (b, a)
        return by_constant(step, value, data_of(constant), incoming[0], ctx)
    axis = aligned_axis(step, incoming, ctx, (a, b))
    out = step.outputs[0].tensor
    flow_a, flow_b = incoming
    gains = (Gain(log_vector(_block(a, b, flow_b, out, ctx))), Gain(log_vector(_block(b, a, flow_a, out, ctx))))
    peak = (flow_a.peak * flow_b.peak).nan_to_num(nan=INF, posinf=INF)
    row = _product_row(a, b, flow_a, flow_b, out)
    norm = torch.minimum((flow_a.peak * flow_b.norm), (flow_a.norm * flow_b.peak)).nan_to_num(nan=INF, posinf=INF)
    if a.tensor.shape[-1:] != b.tensor.shape[-1:]:
        norm = None  # type: ignore[assignment]
    nonnegative = bool((flow_a.low >= 0).all()) and bool((flow_b.low >= 0).all())
    low = ctx.full(0.0) if nonnegative or a is b else -peak  # of complex numbers the ends are set aside
    worked = _product_worked(gains, (a, b), out)
    found = Transfer(gains, row=row, norm=norm, low=low, high=peak, axis=axis, worked=worked)
    if a is b:
        return endless(found, f"{step.kind} squares what is not bounded in this scope", proved=flow_a.covers)
    return endless(found, f"{step.kind} multiplies branches for which no bound is known in this scope", proved=False)


def _product_worked(gains: tuple[Gain, Gain], operands: tuple[Value, Value], out: Tensor) -> str:
    """The formula of a product with its numbers: the gain in a is the size of b, and the gain in b the size of a."""
    logs = [g.log for g in gains]
    blocks = [broadcast_copies(operand.tensor.shape, out.shape) > 1 for operand in operands]
    names = [f"sup‖block of {other}‖" if block else f"sup|{other}|" for other, block in zip("ba", blocks, strict=True)]
    sizes = [result(float(log[worst_sample(*logs)]), 6) for log in logs]
    return equal(f"{at_sample(*logs)}{largest_term(names)} = {largest_term(sizes)}", *logs)


def _block(operand: Value, other: Value, flow: Flow, out: Tensor, ctx: Context) -> Tensor:
    """Largest ℓ2 norm of the entries of ``other`` that one entry of ``operand`` multiplies, over the scope.

    Each block moves by at most the radius of ``other``: its norm is at most that at the centre plus the radius,
    and at most peak·√copies.
    """
    shape = operand.tensor.shape
    copies = broadcast_copies(shape, out.shape)
    if copies == 1:
        return flow.peak
    data = data_of(other).expand(out.shape)
    blocks = torch.linalg.vector_norm(data, dim=repeated_axes(shape, out.shape), keepdim=True).expand(out.shape)
    own = broadcast_copies(other.tensor.shape, out.shape)
    centre = ctx.rows(blocks, flow.axis + out.ndim - other.tensor.ndim).amax((1, 2)).cpu()
    return size_up(torch.minimum(centre + flow.radius * math.sqrt(own), flow.peak * math.sqrt(copies)))


def _product_row(a: Value, b: Value, flow_a: Flow, flow_b: Flow, out: Tensor) -> Tensor | None:
    if a.tensor.shape[-1:] != out.shape[-1:] or b.tensor.shape[-1:] != out.shape[-1:]:
        return None
    return (flow_a.row * flow_b.peak + flow_b.row * flow_a.peak).nan_to_num(nan=INF, posinf=INF)


def by_constant(step: Step, value: Value, constant: Tensor, flow: Flow, ctx: Context, symbol: str = "c") -> Transfer:
    """The transfer of a branch times a constant tensor or number."""
    out = step.outputs[0].tensor
    shape = value.tensor.shape
    axis = aligned_axis(step, (flow,), ctx, (value,))
    size = constant.abs()
    biggest = float(size.max()) if size.numel() else 0.0
    top = biggest
    if shape != out.shape:
        top = float(torch.linalg.vector_norm(size.expand(out.shape), dim=repeated_axes(shape, out.shape)).max())
    if top == 0.0:  # 0 times anything, bounded or not
        zero = ctx.full(0.0)
        gains, worked = (Gain(ctx.full(-INF)),), equal(f"max|{symbol}|", ctx.full(-INF))
        return Transfer(gains, radius=zero, row=zero, norm=zero, low=zero, high=zero, axis=axis, worked=worked)
    peak = size_up(flow.peak * biggest)
    gain = Gain(ctx.log(top), log_inward(top), _scaling(size, shape, out))
    same_row = shape[-1:] == out.shape[-1:]
    return Transfer(
        (gain,),
        row=biggest * flow.row if same_row else None,
        norm=size_up(biggest * flow.norm) if same_row else None,
        low=-peak,
        high=peak,
        axis=axis,
        onto=shape == out.shape and bool((size > 0).all()),
        neutral=top == 1.0 and size.numel() == 1,
        worked=equal(_constant_words(symbol, size, shape == out.shape), gain.log),
    )


def _constant_words(symbol: str, size: Tensor, plain: bool) -> str:
    if size.numel() == 1 and plain:
        return f"|{symbol}|"
    return f"{f'max|{symbol}|' if plain else f'largest ‖block of {symbol}‖'} over c ({shape_words(size.shape)})"


def _scaling(size: Tensor, shape: torch.Size, out: Tensor) -> Diagonal | None:
    """The scales of the channels for a constant that varies along one axis only; None for any other."""
    if shape != out.shape:
        return None
    if size.numel() == 1:
        return Diagonal(size.reshape(1).cpu())
    wide = [i for i, n in enumerate(size.shape) if n > 1]
    if len(wide) != 1:
        return None
    return Diagonal(size.reshape(-1).cpu(), wide[0] + out.ndim - size.ndim)


@rules.add(
    *spellings("div", "div_", "divide", "true_divide", "__truediv__", "__rtruediv__", "__itruediv__"),
    operator.truediv,
    claim="X.divide",
    complex=True,
)
def divide(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Quotient of a branch by a constant or by a branch that stays away from 0.

    constant: max 1/|c|;  a/b: L ≤ L_a/inf|b| + sup|a|·L_b/inf b²

    Holds:  where |b| is bounded below (and a above); not Lipschitz otherwise.
    Source: quotient rule; a constant numerator is a product with 1/b.
    """
    a, b = step.args[0], step.get(1, "other")
    if step.kwargs.get("rounding_mode") is not None:
        jumps = tuple(Gain(ctx.full(INF)) for _ in incoming)
        worked = equal(f"a rounded quotient jumps: {JUMPS}", ctx.full(INF))
        found = Transfer(jumps, worked=worked)
        return endless(found, "a rounded quotient is discontinuous", not isinstance(b, Value) and incoming[0].covers)
    if step.kind in ("__rtruediv__", "__rdiv__"):  # torch defines the first as the second, name and all
        a, b = b, a
    if not isinstance(b, Value):
        return by_constant(step, a, 1 / data_of(b), incoming[0], ctx, "1/c")
    flow_b = incoming[-1]
    floor = size_down(torch.maximum(flow_b.low, -flow_b.high).clamp_min(0.0))
    axis = aligned_axis(step, incoming, ctx, (a, b))
    out = step.outputs[0].tensor
    repeats = [broadcast_copies(o.tensor.shape, out.shape) if isinstance(o, Value) else 1 for o in (a, b)]
    size_a = incoming[0].peak if isinstance(a, Value) else ctx.full(float(data_of(a).abs().max()))
    gains = [Gain(log_vector((size_a / floor.square() * math.sqrt(repeats[1])).nan_to_num(nan=INF, posinf=INF)))]
    if isinstance(a, Value):
        gains.insert(0, Gain(log_vector(1 / floor * math.sqrt(repeats[0]))))
    peak = (size_a / floor).nan_to_num(nan=INF, posinf=INF)
    apart = bool((floor > 0).all())
    why = f"a division {'of something that may be unbounded' if apart else 'by something that may be 0'} in this scope"
    found = Transfer(
        tuple(gains), low=-peak, high=peak, axis=axis, worked=_quotient_worked(gains, size_a, floor, repeats)
    )
    return endless(found, why, proved=not isinstance(a, Value) and bool((size_a > 0).all()) and flow_b.covers)


def _quotient_worked(gains: list[Gain], size_a: Tensor, floor: Tensor, repeats: list[int]) -> str:
    """The formula of a quotient with its numbers: the gains in the numerator, where it moves, and the denominator."""
    logs = [g.log for g in gains]
    sample = worst_sample(*logs)
    size, least = number(float(size_a[sample])), number(float(floor[sample]))
    by_a, by_b = ("" if n == 1 else f"·√{n}" for n in repeats)
    terms = [f"1/{least}{by_a}", f"{size}/{least}²{by_b}"][-len(logs) :]
    names = ["1/inf|b|", "sup|a|/inf|b|²"][-len(logs) :]
    copied = ", times √copies" if max(repeats) > 1 else ""
    return equal(f"{at_sample(*logs)}{largest_term(names)}{copied} = {largest_term(terms)}", *logs)


def reduced_axes(step: Step, data: Tensor) -> tuple[int, ...]:
    """The axes a reduction runs over, non-negative."""
    dim = step.get(1, "dim")
    if dim is None:
        dim = step.kwargs.get("axis")
    if dim is None or isinstance(dim, bool):  # x.std(False) says how, not where
        return tuple(range(data.ndim))
    return tuple(sorted(axes_of(dim, data.ndim))) or tuple(range(data.ndim))


def after_reduction(step: Step, flow: Flow, ctx: Context, axes: tuple[int, ...], data: Tensor) -> int:
    """The sample axis once ``axes`` are gone.

    Raises:
        SamplesMixed: when the samples' own axis is reduced.
    """
    if ctx.samples == 1:
        return 0
    axis = flow.axis % data.ndim
    if axis in axes:
        raise SamplesMixed("a reduction over the samples")
    kept = step.outputs[0].tensor.ndim == data.ndim
    return axis if kept else axis - sum(d < axis for d in axes)


@rules.add(*spellings("sum", "mean"), claim="X.reduce", complex=True)
def reduce_linear(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Sum or mean over axes.

    sum of n entries: ‖J‖ = √n;  mean: ‖J‖ = 1/√n

    Holds:  everywhere, exactly.
    Source: one row of J is a constant vector of n entries.
    """
    data, flow = step.inputs[0].tensor, incoming[0]
    axes = reduced_axes(step, data)
    axis = after_reduction(step, flow, ctx, axes, data)
    n = math.prod(data.shape[d] for d in axes)
    is_mean = step.kind == "mean"
    value = 1 / math.sqrt(n) if is_mean else math.sqrt(n)
    whole_rows = data.ndim - 1 not in axes
    factor = 1.0 if is_mean else float(n)
    gain = Gain(ctx.log(value), log_inward(value), Commute(axes))
    return Transfer(
        (gain,),
        row=factor * flow.row if whole_rows else None,
        norm=factor * flow.norm if whole_rows else None,
        low=flow.low * factor,
        high=flow.high * factor,
        axis=axis,
        worked=equal(f"1/√n = 1/√{n}" if is_mean else f"√n = √{n}", gain.log),
    )


def entry_by_entry(step: Step, incoming: tuple[Flow, ...], ctx: Context, operands: tuple[Any, ...]) -> Transfer:
    """Every entry of the result is an entry of one operand: |Δy| ≤ max|Δa_i| ≤ √Σ|Δa_i|², times √copies."""
    out = step.outputs[0].tensor.shape
    copies = [broadcast_copies(o.tensor.shape, out) for o in operands if isinstance(o, Value)]
    axis = aligned_axis(step, incoming, ctx, operands)
    gains = tuple(Gain(ctx.full(log_root(n))) for n in copies)
    worked = equal(f"√(most copies of one entry) = √{max(copies)}", *(g.log for g in gains))
    return Transfer(gains, disjoint=True, axis=axis, worked=worked)


@rules.add(*spellings("amax", "amin", "max", "min"), claim="X.reduce")
def reduce_extreme(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Largest or smallest entry over axes.

    each output is one entry:  ‖J‖ ≤ 1

    Holds:  everywhere; the indices returned beside it are discontinuous.
    Source: |max a − max b| ≤ max|a − b|, windows are disjoint.
    """
    data, flow = step.inputs[0].tensor, incoming[0]
    other = step.get(1, "other")
    if isinstance(other, Tensor | Value):
        return entry_by_entry(step, incoming, ctx, (step.args[0], other))
    axes = reduced_axes(step, data)
    axis = after_reduction(step, flow, ctx, axes, data)
    worked = equal("each output is one entry of its own", ctx.full(0.0))
    return Transfer((Gain(ctx.full(0.0)),), low=flow.low, high=flow.high, axis=axis, worked=worked)


@rules.add(*spellings("norm", "std", "var"), torch.linalg.norm, torch.linalg.vector_norm, claim="X.reduce")
def reduce_length(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Euclidean length or standard deviation over axes.

    ‖x‖₂: ‖J‖ ≤ 1;  std over n entries: 1/√(n − correction), 1/√(n−1) unless told otherwise, biased 1/√n

    Holds:  everywhere for the ℓ2 norm and std; var is not Lipschitz unless the input is bounded.
    Source: reverse triangle inequality.
    """
    data, flow = step.inputs[0].tensor, incoming[0]
    if step.kind == "var":
        return ctx.unknown(incoming, "a variance")
    if step.kind != "std" and norm_order(step) not in EUCLIDEAN:
        return ctx.unknown(incoming, f"{step.kind} of order {norm_order(step)}")
    if step.kind == "std":
        axes = reduced_axes(step, data)
        n = math.prod(data.shape[d] for d in axes)
        first = step.get(1, "dim")
        unbiased = first if isinstance(first, bool) else step.get(2, "unbiased", True)
        correction = step.kwargs.get("correction")
        correction = int(unbiased) if correction is None else correction
        if n <= correction:
            return ctx.unknown(incoming, f"a deviation of {n} entries with correction {correction}")
        value = 1 / math.sqrt(n - correction)
        text = f"1/√(n − {number(correction)}) = 1/√{number(n - correction)}"
    else:
        dim = step.get(2, "dim")
        axes = axes_of(range(data.ndim) if dim is None else dim, data.ndim)
        value, text = 1.0, "a length moves by no more than its vector"
    axis = after_reduction(step, flow, ctx, axes, data)
    gain = Gain(ctx.log(value))
    return Transfer((gain,), low=ctx.full(0.0), axis=axis, worked=equal(text, gain.log))
