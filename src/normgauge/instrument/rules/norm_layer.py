"""Normalizers that act on each sample: LayerNorm, RMSNorm, GroupNorm, InstanceNorm, local response."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from normgauge.core.rounding import log_above, size_up
from normgauge.instrument.rules.flow import INF, Context, Flow, Gain, Transfer
from normgauge.instrument.rules.norm_batch import channel_affine, within_rows
from normgauge.instrument.rules.normalizer import FLOOR, Normalizer, arguments, known_normalizer, targets
from normgauge.instrument.rules.registry import Family
from normgauge.instrument.rules.spread import groupwise
from normgauge.instrument.rules.worked import at_sample, equal, number, worst_sample
from normgauge.instrument.trace.step import Step

rules = Family("norm_layer")


def over_last(step: Step, norm: Normalizer, flow: Flow, ctx: Context) -> Transfer:
    """The transfer of a normalizer over the last axes.

    Raises:
        SamplesMixed: when the samples lie on one of them.
    """
    data = step.inputs[0].tensor
    ctx.keep_apart(flow, data, norm.dims, "a normalizer")
    size, single = math.prod(data.shape[d] for d in norm.dims), len(norm.dims) == 1
    groups = ctx.rows(data, flow.axis).reshape(ctx.samples, -1, size)
    given = (norm.gamma, norm.beta, norm.eps)
    if single:
        layout: dict[str, Any] = {"gamma_axis": data.ndim - 1, "rows": True, "unit": "row"}
        return groupwise(groups, *given, flow, ctx, centred=norm.centred, **layout)
    # a group spans several rows: only the sample's own radius may be used, and γ lies on no single axis
    wide = replace(flow, row=flow.radius)
    transfer = groupwise(groups, *given, wide, ctx, centred=norm.centred, gamma_axis=-1, rows=True)
    return replace(transfer, gains=(Gain(transfer.gains[0].log, transfer.gains[0].lo),), row=None)


@rules.add(*targets("layer"), claim="T.L2")
def layer_norm(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Layer normalization.

    J(x) = diag(γ)(P − c ŷŷᵀ)/√(σ²+ε);  ‖J(x)‖ ≤ max|γ|/√(σ²(x)+ε) ≤ max|γ|/√ε,  equality for γ = 1 and n ≥ 3;
    ‖y‖ ≤ √n max|γ| + ‖β‖

    Holds:  everywhere with ε alone; on a ball with σ ≥ σ(x0) − ρ/√n; at a point with σ(x0).
    Source: Jacobian of Ba, Kiros & Hinton 2016, section 3.
    """
    return over_last(step, known_normalizer(step, ctx.dtype), incoming[0], ctx)


@rules.add(*targets("rms"), claim="X.rmsnorm")
def rms_norm(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Root-mean-square normalization.

    J(x) = diag(γ)(I − xxᵀ/(nρ²))/ρ,  ρ = √(‖x‖²/n + ε);  ‖J(x)‖ ≤ max|γ|/ρ ≤ max|γ|/√ε

    Holds:  everywhere with ε alone; on a ball with ‖x‖ ≥ ‖x0‖ − r; at a point with ρ(x0). eps=None is
            that of the precision torch computes in: float64's own, else float32's.
    Source: Zhang & Sennrich 2019.
    """
    return over_last(step, known_normalizer(step, ctx.dtype), incoming[0], ctx)


@rules.add(*targets("group"), claim="T.L3")
def group_norm(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Group normalization.

    block diagonal over groups:  ‖J‖ ≤ max_g (max_{c∈g}|γ_c|)/√(σ_g²+ε)  (the maximum, not the sum)

    Holds:  as for layer normalization, group by group.
    Source: Wu & He 2018.
    """
    norm = known_normalizer(step, ctx.dtype)
    return by_channel_groups(step, norm.count, norm, incoming[0], ctx)


def by_channel_groups(step: Step, count: int, norm: Normalizer, flow: Flow, ctx: Context) -> Transfer:
    """The transfer of a normalizer over groups of channels (axis 1) and all positions of each sample.

    Raises:
        SamplesMixed: when the samples lie on an axis it normalizes over.
    """
    data = step.inputs[0].tensor
    ctx.keep_apart(flow, data, range(1, data.ndim), "a normalizer")
    # several images a sample: their groups side by side
    groups = ctx.rows(data, flow.axis).reshape(ctx.samples, -1, data[0].numel() // count)
    unit = "channel" if count == data.shape[1] else "group"
    layout: dict[str, Any] = {"gamma_axis": 1, "period": count, "unit": unit, "flat": data.ndim == 2}
    transfer = groupwise(groups, norm.gamma, norm.beta, norm.eps, flow, ctx, centred=True, **layout)
    return within_rows(transfer, data)


@rules.add(*targets("instance"), claim="T.L3.maps")
def instance_norm(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Instance normalization.

    ‖J‖ ≤ max_c |γ_c|/√(σ_c²+ε) over the channels of a sample; with running statistics in eval it is affine

    Holds:  as for layer normalization, channel by channel.
    Source: Ulyanov, Vedaldi & Lempitsky 2016.
    """
    norm, data = known_normalizer(step, ctx.dtype), step.inputs[0].tensor
    if step.module is not None and data.ndim == step.module._get_no_batch_dim():
        return Transfer((Gain(ctx.full(INF)),), unknown="an unbatched input")
    if norm.stored is not None:
        return channel_affine(norm, incoming[0], ctx)
    return by_channel_groups(step, data.shape[1], norm, incoming[0], ctx)


@rules.add(*targets("response"), claim="X.response")
def local_response_norm(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Local response normalization.

    y_i = x_i b_i^(−β), b_i = k + (α/m) Σ_window x²;  L ≤ k^(−β) + √m·(2β/(β+1))·(k(β+1)/β)^(−β)

    Holds:  everywhere, for k, α, β > 0.
    Source: J = diag(b^(−β)) − T; a row of T has length ≤ 2β b^(−β)(1 − k/b), largest at b = k(β+1)/β;
            m windows share an entry.

    Raises:
        SamplesMixed: when the samples lie on the channel axis.
    """
    ctx.keep_apart(incoming[0], step.inputs[0].tensor, (1,), "a normalizer")
    given, standard = arguments(step), {"alpha": 1e-4, "beta": 0.75, "k": 1.0}
    m, alpha, beta, k = (standard[n] if given[n] is None else given[n] for n in ("size", *standard))
    if min(k, alpha, beta) <= 0:
        return Transfer(
            (Gain(ctx.full(INF)),), unknown=f"parameters k={k}, alpha={alpha}, beta={beta} that are not all positive"
        )
    value = k**-beta + math.sqrt(m) * 2 * beta / (beta + 1) * (k * (beta + 1) / beta) ** -beta
    gain = Gain(ctx.log(value))
    m_, b_, k_ = number(m), number(beta), number(k)
    put_in = f"{k_}^(−{b_}) + √{m_}·2·{b_}/({b_} + 1)·({k_}·({b_} + 1)/{b_})^(−{b_})"
    worked = equal(f"k^(−β) + √m·2β/(β+1)·(k(β+1)/β)^(−β) = {put_in}", gain.log)
    return Transfer((gain,), radius=None, norm=None, worked=worked)


@rules.add(*targets("length"), claim="X.normalize")
def normalize(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Division by the Euclidean length, floored at ε.

    y = x/max(‖x‖, ε):  ‖J‖ = 1/max(‖x‖, ε),  ‖y‖ ≤ 1

    Holds:  everywhere with ε alone; on a ball with ‖x‖ ≥ ‖x0‖ − r; for p = 2.
    Source: the tangential directions are divided by the length, the radial one vanishes or is divided by ε.

    Raises:
        SamplesMixed: when the length is taken over the samples.
    """
    p, dim, eps = step.get(1, "p", 2.0), step.get(2, "dim", 1), step.get(3, "eps", FLOOR)
    data, flow = step.inputs[0].tensor, incoming[0]
    if p != 2 or not isinstance(dim, int):
        return Transfer((Gain(ctx.full(INF)),), unknown=f"p={p}, dim={dim}")
    ctx.keep_apart(flow, data, (dim,), "a normalizer")
    last = dim % data.ndim == data.ndim - 1
    moved = data.movedim(dim, -1)
    axis = flow.axis % data.ndim
    axis = axis - 1 if axis > dim % data.ndim else axis
    lengths = torch.linalg.vector_norm(ctx.rows(moved, axis), dim=2).cpu()
    reach = torch.minimum(flow.row, flow.radius) if last else flow.radius
    floor = (lengths - reach[:, None]).nan_to_num(nan=0.0, neginf=0.0).clamp_min(eps)
    slope = 1 / floor.amin(1)
    gain = Gain(log_above(slope.log()))
    worked = _normalize_worked(gain.log, lengths, reach, eps)
    transfer = Transfer((gain,), low=ctx.full(-1.0), high=ctx.full(1.0), worked=worked)
    if not last:
        return transfer
    row = (slope * flow.row).nan_to_num(nan=INF, posinf=INF).clamp_max(2.0)
    return replace(transfer, row=row, norm=ctx.full(size_up(1.0)))


def _normalize_worked(log: Tensor, lengths: Tensor, reach: Tensor, eps: float) -> str:
    sample = worst_sample(log)
    length, moved = float(lengths[sample].min()), float(reach[sample])
    if math.isinf(moved):
        return equal(f"1/ε = 1/{number(eps)}", log)
    if moved == 0:
        return equal(f"{at_sample(log)}1/max(‖x‖, ε) = 1/max({number(length)}, {number(eps)})", log)
    put_in = f"1/max({number(length)} − {number(moved)}, {number(eps)})"
    return equal(f"{at_sample(log)}1/max(‖x₀‖ − r, ε) = {put_in}", log)
