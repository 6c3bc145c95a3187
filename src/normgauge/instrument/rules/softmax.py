"""Softmax and its relatives along one axis."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.rounding import LOG_SOFTMAX, STEPS, TINY, house_up, log_below, log_inward, size_down, size_up
from normgauge.instrument.rules.flow import INF, Commute, Context, Flow, Gain, Transfer, endless, log_vector
from normgauge.instrument.rules.registry import Family
from normgauge.instrument.rules.worked import at_sample, equal, number, worst_sample
from normgauge.instrument.trace.step import Step, axes_of

rules = Family("softmax")


def axis_of(step: Step, ndim: int) -> int:
    """The axis a softmax runs along, non-negative; torch's legacy default where none was given."""
    if isinstance(step.module, nn.Softmax2d):
        return ndim - 3
    dim = step.option(1, "dim")
    if dim is None:
        return 0 if ndim in (0, 1, 3) else 1
    return int(dim) % max(ndim, 1)


def laid_out(step: Step, flow: Flow, ctx: Context, sign: int = 1) -> tuple[int, int, Tensor, Tensor]:
    """The axis of a softmax, its entries, log softmax at the centre as (samples, rows, entries), how far logits move.

    Rows are vectors along the last axis.
    """
    data = step.inputs[0].tensor
    dim = axis_of(step, data.ndim)
    ctx.keep_apart(flow, data, (dim,), step.kind)
    logs = torch.log_softmax(sign * torch.atleast_1d(data).detach().double(), dim).movedim(dim, -1)
    axis = flow.axis % max(data.ndim, 1)
    move = torch.minimum(flow.row, flow.radius) if dim == data.ndim - 1 else flow.radius
    return dim, logs.shape[-1], ctx.rows(logs, axis - (axis > dim)), move


def odds_range(logs: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds of the log-odds log(p/(1−p)) of every probability while the logits move by at most ``reach`` in ℓ2.

    The log-odds of p_i have gradient (e_i − p)/(1 − p_i), and ‖e_i − p‖² = (1−p_i)² + Σ_{j≠i}p_j² ≤ 2(1−p_i)²:
    they move by at most √2·reach.
    """
    slack = LOG_SOFTMAX * (1 + logs.abs().nan_to_num(posinf=0.0))
    below, above = logs - slack, (logs + slack).clamp_max(0.0)
    move = size_up(math.sqrt(2) * reach).to(logs.device)[:, None, None]
    low = below - torch.log(-torch.expm1(below)) - move
    high = above - torch.log(-torch.expm1(above)) + move
    return low.nan_to_num(nan=-INF, neginf=-INF), high.nan_to_num(nan=INF, posinf=INF, neginf=-INF)


def steepest_softmax(odds_low: Tensor, odds_high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """sup‖J‖ ≤ min(½, sup p, sup 2p(1−p)), sup p and sup p(1−p) for ranges (samples, rows, entries) of log-odds."""
    nearest = torch.zeros_like(odds_low).clamp(odds_low, odds_high)  # where p(1−p) is largest
    spread = (torch.sigmoid(nearest) * torch.sigmoid(-nearest)).amax((1, 2))
    tallest = size_up(torch.sigmoid(odds_high.amax((1, 2))))
    return (size_up(torch.minimum(2 * spread, tallest)) + TINY).clamp_max(0.5), tallest, spread


@rules.add(
    nn.Softmax, nn.Softmax2d, nn.Softmin, F.softmax, F.softmin,
    torch.softmax, torch.Tensor.softmax, torch.special.softmax,
    claim="X.softmax",
)  # fmt: skip
def softmax(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Softmax and softmin along an axis.

    J = diag(p) − ppᵀ,  ‖J‖ ≤ min(½, max p_i, max 2p_i(1−p_i)), with p within its range in the scope;  ‖p‖₂ ≤ 1

    Holds:  everywhere with ½ (attained at p = (½, ½)); with p, where the logits move little.
    Source: J ≼ diag(p); Gershgorin: row i of |J| sums to 2p_i(1−p_i). Range of p: log-odds are √2-Lipschitz.
    """
    data, flow = step.inputs[0].tensor, incoming[0]
    sign = -1 if "softmin" in step.kind.lower() or isinstance(step.module, nn.Softmin) else 1
    dim, entries, logs, move = laid_out(step, flow, ctx, sign)
    odds_low, odds_high = odds_range(logs, move)
    slope, tallest, spread = (part.cpu() for part in steepest_softmax(odds_low, odds_high))
    slope = slope if entries > 1 else ctx.full(0.0)
    log = log_vector(slope)
    put_in = ", ".join(number(float(bound[worst_sample(log)])) for bound in (tallest, 2 * spread))
    text = f"{at_sample(log)}min(½, sup p, sup 2p(1−p)) = min(0.5, {put_in})" if entries > 1 else "a single p, always 1"
    along_rows = dim == data.ndim - 1
    lo = log_inward(0.5) if entries > 1 and ctx.scope.kind == "global" else -INF  # p → (½, ½, 0, …)
    count = max(math.prod(data.shape) // max(entries, 1) // ctx.samples, 1)
    return Transfer(
        (Gain(log, lo, Commute((dim,))),),
        radius=ctx.full(math.sqrt(2 * count)),
        row=torch.minimum((slope * flow.row).nan_to_num(nan=INF, posinf=INF), ctx.full(math.sqrt(2)))
        if along_rows
        else None,
        norm=size_up(tallest.sqrt().clamp_max(1.0)) if along_rows else None,
        low=size_down(torch.sigmoid(odds_low.amin((1, 2)))).cpu(),
        high=tallest,
        worked=equal(text, log),
    )


@rules.add(
    nn.LogSoftmax,
    F.log_softmax,
    torch.log_softmax,
    torch.Tensor.log_softmax,
    torch.special.log_softmax,
    claim="X.logsoftmax",
)
def log_softmax(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Logarithm of softmax along an axis of n entries.

    J = I − 1pᵀ,  ‖J‖ = √n·‖p‖₂ ≤ √n

    Holds:  everywhere with √n (a supremum, not attained); with p within its range, in the scope.
    Source: an oblique projector and its complement have one norm, ‖1pᵀ‖.
    """
    data, flow = step.inputs[0].tensor, incoming[0]
    dim, n, logs, reach = laid_out(step, flow, ctx)
    high = torch.sigmoid(odds_range(logs, reach)[1])
    square = torch.minimum(high.square().sum(2), high.amax(2)).clamp_max(1.0).amax(1).cpu()  # Σp² ≤ max p
    slope = house_up((n * square).sqrt()) if n > 1 else ctx.full(0.0)
    lo = log_below(math.log(n) / 2) if ctx.scope.kind == "global" and n > 1 else -INF
    move = size_up(math.sqrt(2) * reach)
    log = log_vector(slope)
    text = (
        f"{at_sample(log)}√(n·sup Σp²) = √({n}·{number(float(square[worst_sample(log)]))})"
        if n > 1
        else "log 1, always 0"
    )
    return Transfer(
        (Gain(log, lo, Commute((dim,))),),
        row=(slope * flow.row).nan_to_num(nan=INF, posinf=INF) if dim == data.ndim - 1 else None,
        low=(logs.amin((1, 2)).cpu() - move - STEPS).nan_to_num(nan=-INF, neginf=-INF),
        high=ctx.full(0.0),
        worked=equal(text, log),
    )


@rules.add(torch.logsumexp, torch.Tensor.logsumexp, torch.special.logsumexp, claim="X.logsoftmax")
def logsumexp(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Logarithm of a sum of exponentials over axes.

    the gradient is a softmax p over the reduced entries:  ‖p‖₂ ≤ 1;  low + log n ≤ y ≤ high + log n

    Holds:  everywhere; a supremum.
    Source: Σp = 1, p ≥ 0.
    """
    data, flow = step.inputs[0].tensor, incoming[0]
    dims = step.get(1, "dim")
    axes = sorted(set(axes_of(dims, data.ndim))) or list(range(data.ndim))
    axis = flow.axis % max(data.ndim, 1)
    ctx.keep_apart(flow, data, axes, step.kind)
    kept = step.outputs[0].tensor.ndim == data.ndim
    shift = math.log(max(math.prod(data.shape[d] for d in axes if data.ndim), 1))
    return Transfer(
        (Gain(ctx.full(0.0), log_below(0.0) if ctx.scope.kind == "global" else -INF, Commute(tuple(axes))),),
        low=flow.low + size_down(shift) - STEPS,
        high=flow.high + size_up(shift) + STEPS,
        axis=axis if kept else axis - sum(d < axis for d in axes),
        worked=equal("sup‖p‖₂ of a softmax p", ctx.full(0.0)),
    )


@rules.add(nn.GLU, F.glu, claim="X.glu")
def glu(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Gated linear unit, a·σ(b) of the two halves of an axis.

    a row of J has length s·√(1 + a²(1−s)²), s = σ(b);  for |a| ≤ A its maximum is 1, or that at
    s = (3 − √(1 − 8/A²))/4 when larger (A² ≥ 8)

    Holds:  where the input is bounded by A in the scope; not Lipschitz otherwise.
    Source: stationary points of s²(1 + A²(1−s)²) on [0, 1]; every output entry has its own pair of inputs.
    """
    data, flow = step.inputs[0].tensor, incoming[0]
    dim = step.option(1, "dim", -1) % data.ndim
    ctx.keep_apart(flow, data, (dim,), step.kind)
    square = flow.peak.square()
    s = (3 - (1 - 8 / square).clamp_min(0.0).sqrt()) / 4
    inner = s * (1 + square * (1 - s).square()).sqrt()
    slope = torch.where(square >= 8, torch.maximum(inner, torch.ones_like(inner)), 1.0)
    slope = size_up(slope).nan_to_num(nan=INF, posinf=INF)
    along_rows = dim == data.ndim - 1
    log = log_vector(slope)
    found = Transfer(
        (Gain(log, form=Commute((dim,))),),
        row=(slope * flow.row).nan_to_num(nan=INF, posinf=INF) if along_rows else None,
        norm=flow.norm if along_rows else None,
        low=flow.low.clamp_max(0.0),
        high=flow.high.clamp_min(0.0),
        worked=_gated_worked(log, flow.peak, s),
    )
    return endless(found, "a gated unit whose input is not bounded in this scope", flow.covers)


def _gated_worked(log: Tensor, peak: Tensor, s: Tensor) -> str:
    sample = worst_sample(log)
    top, gate = number(float(peak[sample])), number(float(s[sample]))
    if not 8 <= float(peak[sample].square()) < INF:
        size = "∞" if float(peak[sample]) == INF else f"{top}, below √8"
        return equal(f"{at_sample(log)}A = sup|x| = {size}: sup over s in [0, 1] of s·√(1 + A²(1−s)²)", log)
    put_in = f"max(1, {gate}·√(1 + {top}²·(1 − {gate})²))"
    return equal(f"{at_sample(log)}A = sup|x|, max(1, s·√(1 + A²(1−s)²)) = {put_in}", log)
