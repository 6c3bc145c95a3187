"""Pooling, resizing and folding: maps of the last axes that keep channels apart."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.interval import LogInterval
from normgauge.core.rounding import STEPS, house_down, house_up, log_root, log_root_below, size_up
from normgauge.instrument.rules.flow import INF, Commute, Context, Flow, Gain, Transfer
from normgauge.instrument.rules.registry import Family, spellings
from normgauge.instrument.rules.shape import rerun_step
from normgauge.instrument.rules.worked import equal, shape_words, within
from normgauge.instrument.spectral.conv_operator import per_axis
from normgauge.instrument.spectral.dense import dense_norm
from normgauge.instrument.trace.step import Step

rules = Family("pooling")

CHUNK = 4_000_000  # most entries of a batch of unit vectors pushed through a layer at once


def each(stem: str, ending: str = "") -> list[str]:
    """The names of a layer in one, two and three dimensions."""
    return [f"{stem}{d}d{ending}" for d in (1, 2, 3)]


def spatial(step: Step) -> int:
    """How many of the last axes the layer works on, read off torch's own name for it: max_pool2d -> 2."""
    name = step.kind
    if step.module is not None:
        name = next(t.__name__ for t in type(step.module).__mro__ if t.__module__ == "torch.nn.modules.pooling")
    return next(d for d in (1, 2, 3) if f"{d}d" in name)


def keep_apart(step: Step, flow: Flow, ctx: Context, axes: int) -> None:
    """Refuse to measure samples one by one when they lie on one of the last ``axes`` axes."""
    ctx.keep_apart(flow, step.inputs[0].tensor, range(-axes, 0), step.kind)


def overlap(inputs: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> tuple[int, int]:
    """Along one axis: the most windows over one entry, and the fewest entries in one window."""
    place = torch.arange(outputs)[:, None] * stride - padding + torch.arange(kernel) * dilation
    inside = (place >= 0) & (place < inputs)
    return int(torch.bincount(place[inside], minlength=1).max()), int(inside.sum(1).min())


def window_overlaps(
    step: Step, axes: int, kernel: Any, stride: Any, padding: Any = 0, dilation: Any = 1
) -> list[tuple[int, int]]:
    """`overlap` along each of the last ``axes`` axes; windows that are given no stride lie side by side."""
    sizes = [v[0].tensor.shape[-axes:] for v in (step.inputs, step.outputs)]
    options = [per_axis(option, axes) for option in (kernel, stride or kernel, padding, dilation)]
    return [overlap(*line) for line in zip(*sizes, *options, strict=True)]


def window_transfer(flow: Flow, ctx: Context, axes: int, by_axis: list[int]) -> Transfer:
    """The transfer of outputs that are 1-Lipschitz in windows: √(windows over one entry), attained by a lone peak."""
    windows = math.prod(by_axis)
    lo = log_root_below(windows) if ctx.scope.kind == "global" else -INF
    gain = Gain(ctx.full(log_root(windows)), lo, Commute(tuple(range(-axes, 0))))
    product = "·".join(map(str, by_axis))
    worked = equal(f"√(most windows over one pixel) = √{f'({product})' if len(by_axis) > 1 else product}", gain.log)
    return Transfer((gain,), low=flow.low, high=flow.high, worked=worked)


@rules.add(*spellings(*each("MaxPool"), *each("max_pool"), *each("max_pool", "_with_indices")), claim="X.pool.max")
def max_pool(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Max pooling.

    ‖J‖ = √(most windows over one pixel), counted;  away from small borders ceil(k·gcd(s,e)/s)^(d/2):
    3×3 stride 2 → 2, 3×3 stride 1 → 3, 2×2 stride 2 → 1, 3×3 stride 2 dilation 2 → 3

    Holds:  everywhere, exactly (a lone peak wins all its windows); the indices are discontinuous.
    Source: JᵀJ is diagonal and counts the windows a pixel wins.
    """
    axes = spatial(step)
    keep_apart(step, incoming[0], ctx, axes)
    options = [step.option(i, n, d) for i, n, d in ((2, "stride", None), (3, "padding", 0), (4, "dilation", 1))]
    found = window_overlaps(step, axes, step.option(1, "kernel_size"), *options)
    if min(least for _, least in found) == 0:
        return ctx.unknown(incoming, "a pooling window that holds nothing but padding")
    return window_transfer(incoming[0], ctx, axes, [most for most, _ in found])


@rules.add(
    *spellings(*each("AdaptiveMaxPool"), *each("adaptive_max_pool"), *each("adaptive_max_pool", "_with_indices")),
    claim="X.pool.max",
)
def adaptive_max_pool(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Adaptive max pooling.

    ‖J‖ = √(most windows over one pixel), windows [⌊i·n/m⌋, ⌈(i+1)·n/m⌉):  5 → 2 in two dimensions gives 2

    Holds:  everywhere, exactly; the indices are discontinuous.
    Source: JᵀJ is diagonal and counts the windows a pixel wins.
    """
    axes = spatial(step)
    keep_apart(step, incoming[0], ctx, axes)
    windows = []
    for n, m in zip(*(v[0].tensor.shape[-axes:] for v in (step.inputs, step.outputs)), strict=True):
        count = torch.zeros(n, dtype=torch.long)
        for i in range(m):
            count[i * n // m : -(-(i + 1) * n // m)] += 1
        windows.append(int(count.max()))
    return window_transfer(incoming[0], ctx, axes, windows)


@rules.add(*spellings(*each("LPPool"), *each("lp_pool")), claim="X.pool.max")
def lp_pool(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Power-average pooling, (Σ xᵖ)^(1/p) over each window.

    ‖J‖ = √(most windows over one pixel) for even p and p = ∞

    Holds:  everywhere, exactly; other p and ceil_mode are not covered.
    Source: |‖a‖_p − ‖b‖_p| ≤ ‖a − b‖_p ≤ ‖a − b‖₂ for p ≥ 2.
    """
    axes = spatial(step)
    keep_apart(step, incoming[0], ctx, axes)
    power, ceil = float(step.option(1, "norm_type")), step.option(4, "ceil_mode", False)
    if ceil or not (power == INF or (power >= 2 and power % 2 == 0)):
        return ctx.unknown(incoming, f"power-average pooling with p = {power:g}" + (" and ceil_mode" if ceil else ""))
    kernel = per_axis(step.option(2, "kernel_size"), axes)
    windows = window_overlaps(step, axes, kernel, step.option(3, "stride"))
    found = window_transfer(incoming[0], ctx, axes, [most for most, _ in windows])
    top = size_up(incoming[0].peak * math.prod(kernel) ** (0.0 if power == INF else 1 / power))
    return replace(found, low=ctx.full(0.0), high=top)


def line_matrices(step: Step, axes: int) -> tuple[list[Tensor], Tensor, float]:
    """The layer's response to the unit vectors of each axis, spread over all others, along one line of the output.

    A separable layer A = A₁⊗…⊗A_d maps e_i ⊗ 1 ⊗ … to A₁e_i ⊗ A₂1 ⊗ …; read on a line through the position of the
    largest entry B of A(1⊗…⊗1), that is A₁e_i times the other factors of B, so ‖A‖ = Π‖lines‖ / B^(d−1).

    Returns:
        The matrices (inputs, outputs), A(1⊗…⊗1) and B.
    """
    data = step.inputs[0].tensor
    size = data.shape[-axes:]
    plain = torch.ones(1, 1, *size, dtype=torch.float64, device=data.device)
    flat = rerun_step(step, [plain])[0][0, 0]
    place = (flat.abs() == flat.abs().max()).nonzero()[0].tolist()
    matrices = []
    for axis, n in enumerate(size):
        unit = torch.eye(n, dtype=torch.float64, device=data.device)
        shape = [n, 1, *(n if a == axis else 1 for a in range(axes))]
        batch = unit.reshape(shape).expand(n, 1, *size)
        step_size = max(1, CHUNK // max(math.prod(size), flat.numel()))
        where = [slice(None), 0, *(slice(None) if a == axis else place[a] for a in range(axes))]
        parts = [
            rerun_step(step, [batch[i : i + step_size].contiguous()])[0][tuple(where)] for i in range(0, n, step_size)
        ]
        matrices.append(torch.cat(parts))
    return matrices, flat, float(flat[tuple(place)])


def separable_transfer(step: Step, incoming: tuple[Flow, ...], ctx: Context, axes: int) -> Transfer:
    """The transfer of a linear layer that is a product of one matrix per axis, each run on unit vectors in float64."""
    flow = incoming[0]
    keep_apart(step, flow, ctx, axes)
    matrices, flat, scale = ctx.once(("lines", id(step)), step, lambda: line_matrices(step, axes))
    if scale == 0 or not math.isfinite(scale):
        return ctx.unknown(incoming, "a resizing that maps a constant image to zero")
    norm = LogInterval.one()
    for matrix in matrices:
        norm = norm * dense_norm(matrix).log
    shift = (axes - 1) * math.log(abs(scale))
    log_hi, log_lo = norm.hi - shift + STEPS, norm.lo - shift - STEPS
    low, high = weighted_range(matrices, flat, scale, flow)
    sizes = [shape_words(v[0].tensor.shape[-axes:]) for v in (step.inputs, step.outputs)]
    text = f"‖{'⊗'.join('A₁A₂A₃'[2 * i : 2 * i + 2] for i in range(axes))}‖ from {sizes[0]} to {sizes[1]} pixels"
    worked = within(text, LogInterval(min(log_lo, log_hi), log_hi))
    return Transfer(
        (Gain(ctx.full(log_hi), log_lo, Commute(tuple(range(-axes, 0)))),), low=low, high=high, worked=worked
    )


def weighted_range(matrices: list[Tensor], flat: Tensor, scale: float, flow: Flow) -> tuple[Tensor, Tensor]:
    """Range of the output: with weights ≥ 0 between the smallest and largest Σw times the ends, else ±Σ|w|·sup|x|."""
    if scale > 0 and all(bool((m >= 0).all()) for m in matrices):
        sums = (house_down(float(flat.min())), house_up(float(flat.max())))
        low = torch.minimum(sums[0] * flow.low, sums[1] * flow.low)
        high = torch.maximum(sums[0] * flow.high, sums[1] * flow.high)
    else:
        width = math.prod(float(m.abs().sum(0).max()) for m in matrices) / abs(scale) ** (len(matrices) - 1)
        high = house_up(width) * flow.peak
        low = -high
    return low.nan_to_num(nan=-INF, neginf=-INF), high.nan_to_num(nan=INF, posinf=INF)


@rules.add(
    *spellings(*each("AvgPool"), *each("avg_pool"), *each("AdaptiveAvgPool"), *each("adaptive_avg_pool")),
    claim="X.pool.average",
)
def avg_pool(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Average pooling, plain and adaptive.

    J = A₁⊗…⊗A_d,  ‖J‖ = Π‖A_i‖:  global average over H×W 1/√(HW), 2×2 stride 2 ½, 3×3 stride 2 padding 1 on 12 0.530101

    Holds:  everywhere, exactly (padding, count_include_pad, divisor_override and ceil_mode included).
    Source: the divisor of a window is a product over the axes; norm of a Kronecker product.
    """
    return separable_transfer(step, incoming, ctx, spatial(step))


@rules.add(nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d, F.interpolate, claim="X.pool.average")
def interpolate(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Resizing: nearest, nearest-exact, linear, bilinear, trilinear, bicubic, area, with or without antialiasing.

    J = A₁⊗…⊗A_d,  ‖J‖ = Π‖A_i‖:  nearest ×2 in two dimensions 2, bilinear ×2 align_corners 2.086 on 8×8

    Holds:  everywhere, exactly.
    Source: weights of every mode are products over the axes; norm of a Kronecker product.
    """
    return separable_transfer(step, incoming, ctx, step.inputs[0].tensor.ndim - 2)


@rules.add(nn.Fold, F.fold, claim="X.copies")
def fold(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Summing of overlapping patches.

    ‖J‖ = √(most patches over one pixel), counted by folding ones

    Holds:  everywhere, exactly.
    Source: the adjoint of unfold, which copies: JJᵀ is diagonal and counts the copies.
    """
    data, flow = step.inputs[0].tensor, incoming[0]
    keep_apart(step, flow, ctx, 2)
    patches = math.prod(per_axis(step.option(2, "kernel_size"), 2))
    count = int(rerun_step(step, [data.new_ones(1, patches, data.shape[-1], dtype=torch.float64)])[0].max().round())
    if count == 0:
        return ctx.unknown(incoming, "a fold that keeps nothing")
    reach = count * flow.peak
    gain = Gain(ctx.log(math.sqrt(count)), log_root_below(count))
    worked = equal(f"√(most patches over one pixel) = √{count}", gain.log)
    return Transfer((gain,), low=-reach, high=reach, worked=worked)
