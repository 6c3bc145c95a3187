"""Softmax attention as a map of its queries, keys and values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.rounding import CANCELLED, STEPS, TINY, TINY_SINGLE, UNIT, size_up
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
from normgauge.instrument.rules.registry import Family
from normgauge.instrument.rules.worked import at_sample, equal, largest_term, number, result, worst_sample
from normgauge.instrument.spectral.dense import to_double
from normgauge.instrument.trace.step import Step, Value

rules = Family("attention")

WORK = 3e9  # multiplications one attention step may cost before matrix norms give way to traces
CHUNK = 4_000_000  # entries of the largest intermediate
SINGLE = 2.0**-24  # the rounding of float32


@dataclass(frozen=True, slots=True)
class Blocks:
    """Queries, keys, values and mask with one block for each (batch item, key head), sample-major.

    Query heads that share a key head stand side by side among the queries of its block, so that grouped queries need
    no formula of their own.
    """

    q: Tensor  # (blocks, queries, d)
    k: Tensor  # (blocks, keys, d)
    v: Tensor  # (blocks, keys, d_v)
    mask: Tensor  # (blocks or 1, queries, keys), added to the logits
    scale: float
    shared: int  # query heads to a key head


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the rows of one operand move in the scope, and how long they get; one entry a block."""

    row: Tensor
    norm: Tensor


@dataclass(frozen=True, slots=True)
class AttentionSpread:
    """At the centre, for every query: √λmax of the values' and keys' covariance under its weights, and ‖Cov(v, k)‖."""

    v: Tensor
    k: Tensor
    cross: Tensor


def largest_singular(matrices: Tensor) -> Tensor:
    """Upper bounds on the spectral norms of a batch of matrices: exact when small, by repeated squaring otherwise.

    ‖M‖ ≤ ‖(MᵀM)^(2^t)‖_F^(1/2^(t+1)), at most rank^(1/2^(t+2)) above it
    """
    if 0 in matrices.shape:
        return matrices.new_zeros(matrices.shape[:-2])
    rows, columns = matrices.shape[-2:]
    if min(rows, columns) == 1:
        return torch.linalg.vector_norm(matrices, dim=(-2, -1))
    if matrices.numel() * min(rows, columns) <= 2e6:
        return torch.linalg.matrix_norm(matrices, 2)
    return _by_squaring(matrices if rows <= columns else matrices.mT)


def _by_squaring(matrices: Tensor) -> Tensor:
    """The norms from above by five squarings of A = MMᵀ/‖M‖_F², ‖M‖² ≤ ‖M‖_F²·‖A^32‖_F^(1/32).

    In float32, unless its products are made of shorter numbers here or on a device: a third of the time.

    Where a power A^k, scaled, is known up to ε in the Frobenius norm and no longer than 1 + ε, its computed square is
    known up to 2ε(1 + ε) + ε² + γ(1 + ε)², and both are divided by the length of it.

    Source: Higham, (3.13), for products of n terms: γ = 2(n + 8)u covers casts and divisions too.
    """
    whole = torch.linalg.matrix_norm(matrices)
    size, scaled = whole.clamp_min(TINY), matrices / whole.clamp_min(TINY)[..., None, None]
    rows, columns = matrices.shape[-2:]
    unit, product = SINGLE, _single_product(scaled, 2 * (columns + 16) * SINGLE)
    if product is None:
        unit, product = UNIT, scaled @ scaled.mT
    log, power, error = 2 * size.log(), 1.0, torch.full_like(size, 2 * (columns + 16) * unit)
    for squaring in range(6):
        size = torch.linalg.vector_norm(product, dim=(-2, -1), dtype=torch.float64) + TINY_SINGLE
        log, error = log + power * size.log(), error / size
        if squaring == 5:
            break
        product, power = product / size.to(product.dtype)[..., None, None], power / 2
        lost = 2 * (rows + 16) * unit * (1 + error) ** 2
        product, error = product @ product, 2 * error * (1 + error) + error**2 + lost
    return size_up(torch.minimum(((log + power * torch.log1p(error)) / 2).exp(), whole))


def _single_product(matrices: Tensor, known: float) -> Tensor | None:
    """MMᵀ in float32; None where its products are made of shorter numbers, which the squares on the diagonal show."""
    if matrices.device.type != "cpu" or torch.get_float32_matmul_precision() != "highest":
        return None
    single = matrices.float()
    product, lengths = single @ single.mT, matrices.square().sum(-1)
    off = (product.diagonal(dim1=-2, dim2=-1) - lengths).abs()
    return product if bool((off <= known * lengths + TINY_SINGLE).all()) else None


def lift(weights: Tensor, change: Tensor, mask: Tensor) -> Tensor:
    """The largest each softmax weight can become when no logit moves by more than ``change``.

    P_j = 1/(1 + Σ_{l≠j} e^(S_l − S_j)):  the odds P/(1−P) grow by at most e^(2·change)
    """
    factor = (-2 * change).exp()
    weights = weights.clamp_min(TINY)  # what has underflowed may come back
    lifted = weights / (weights + (1 - weights).clamp_min(0.0) * factor)
    return size_up(lifted.nan_to_num(nan=1.0).clamp_max(1.0).masked_fill(mask == -INF, 0.0))


def softmax_weights(logits: Tensor) -> Tensor:
    """Row-wise softmax; a query that may attend to nothing gets zeros, as torch gives it."""
    empty = (logits == -INF).all(-1, keepdim=True)
    return torch.softmax(logits.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)


def arrange(step: Step) -> Blocks | str:
    """The operands laid out in blocks, or a sentence that says why this use is not covered."""
    names = ("query", "key", "value", "attn_mask")
    q, k, v, mask = (_contents(step.get(i, name)) for i, name in enumerate(names))
    if isinstance(step.get(3, "attn_mask"), Value):
        return "a mask that depends on the input"
    if step.get(4, "dropout_p", 0.0):
        return "attention with dropout switched on"
    scale = step.get(6, "scale")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    heads = q.shape[-3] if q.ndim > 2 else 1
    shared = heads // k.shape[-3] if q.ndim > 3 and k.ndim == q.ndim and k.shape[-3] == v.shape[-3] else 1
    lead = (*q.shape[:-3], heads // shared) if q.ndim > 2 else ()
    full = (*q.shape[:-1], k.shape[-2])
    bias = q.new_zeros(full[-2:])
    if mask is not None:
        bias = (
            torch.zeros_like(mask, dtype=torch.float64).masked_fill(~mask, -INF)
            if mask.dtype == torch.bool
            else mask.double()
        )
    if step.get(5, "is_causal", False):
        bias = bias + torch.full(full[-2:], -INF, dtype=torch.float64, device=q.device).triu(1)
    small = bias.ndim == 2 and shared == 1
    bias = bias.expand(full[-2:])[None] if small else bias.expand(full).reshape(-1, shared * full[-2], full[-1])
    for name, tensor in (("key", k), ("value", v)):
        if tensor.shape[:-2] != lead and isinstance(step.get(names.index(name), name), Value):
            return f"a {name} that is broadcast over batch or heads"
    k, v = (t.expand(*lead, *t.shape[-2:]).reshape(-1, *t.shape[-2:]) for t in (k, v))
    return Blocks(q.reshape(-1, shared * q.shape[-2], q.shape[-1]), k, v, bias, scale, shared)


def _contents(operand: Any) -> Any:
    if operand is None:
        return None
    data = operand.tensor.detach() if isinstance(operand, Value) else operand.detach()
    return data if data.dtype == torch.bool else to_double(data)


def reaches(step: Step, incoming: tuple[Flow, ...], ctx: Context, blocks: Blocks) -> dict[str, Reach]:
    """How far the rows of each operand move and how long they get, block by block."""
    count = blocks.q.shape[0]
    flows = {id(value): flow for value, flow in zip(step.inputs, incoming, strict=True)}
    found = {}
    for i, (name, data) in enumerate((("query", blocks.q), ("key", blocks.k), ("value", blocks.v))):
        operand = step.get(i, name)
        longest = torch.linalg.vector_norm(data, dim=-1).amax(-1) if data.shape[1] else data.new_zeros(count)
        if isinstance(operand, Value):
            flow = flows[id(operand)]
            row, norm = (t.to(data.device).repeat_interleave(count // ctx.samples) for t in (flow.row, flow.norm))
            found[name] = Reach(row, torch.minimum(norm, longest + row))
        else:
            found[name] = Reach(data.new_zeros(count), longest)
    return found


def spread_at_centre(blocks: Blocks, part: slice, matrices: bool) -> AttentionSpread:
    """Covariances of values and keys under every query's weights, at the centre."""
    mask = blocks.mask if blocks.mask.shape[0] == 1 else blocks.mask[part]
    weights = softmax_weights(blocks.scale * blocks.q[part] @ blocks.k[part].mT + mask)
    # rows near 0 keep rounding small
    v = blocks.v[part] - blocks.v[part].mean(1, keepdim=True)
    k = blocks.k[part] - blocks.k[part].mean(1, keepdim=True)
    mean_v, mean_k = weights @ v, weights @ k
    if not matrices:
        size_v, size_k = (
            ((weights @ t.square().sum(-1, keepdim=True)).squeeze(-1) - m.square().sum(-1)).clamp_min(0.0)
            + CANCELLED * t.square().sum(-1).amax(-1, keepdim=True)
            for t, m in ((v, mean_v), (k, mean_k))
        )
        root_v, root_k = size_v.sqrt(), size_k.sqrt()
        return AttentionSpread(root_v, root_k, root_v * root_k)

    def covariance(a: Tensor, mean_a: Tensor, b: Tensor, mean_b: Tensor) -> Tensor:
        outer = (a[..., :, None] * b[..., None, :]).flatten(-2)  # (blocks, keys, d_a·d_b)
        second = (weights @ outer).unflatten(-1, (a.shape[-1], b.shape[-1]))
        slack = CANCELLED * torch.linalg.vector_norm(a, dim=-1).amax(-1) * torch.linalg.vector_norm(b, dim=-1).amax(-1)
        return largest_singular(second - mean_a[..., :, None] * mean_b[..., None, :]) + slack[:, None]

    root_v, root_k = covariance(v, mean_v, v, mean_v).sqrt(), covariance(k, mean_k, k, mean_k).sqrt()
    return AttentionSpread(root_v, root_k, torch.minimum(covariance(v, mean_v, k, mean_k), root_v * root_k))


def chunks(blocks: Blocks, matrices: bool) -> Iterator[slice]:
    """Slices of blocks whose intermediate results fit into `CHUNK` entries."""
    count, queries, d = blocks.q.shape
    keys, width = blocks.v.shape[1:]
    each = queries * keys + (max(queries, keys) * max(d, width) ** 2 if matrices else 0)
    size = max(1, CHUNK // max(each, 1))
    return (slice(i, min(i + size, count)) for i in range(0, count, size))


def finite_min(*bounds: Tensor) -> Tensor:
    """The smallest of several bounds, a missing one (nan) counting as infinite."""
    return torch.stack([b.nan_to_num(nan=INF, posinf=INF) for b in torch.broadcast_tensors(*bounds)]).amin(0)


def part_gains(
    blocks: Blocks, part: slice, reach: dict[str, Reach], matrices: bool, spread: AttentionSpread | None
) -> Tensor:
    """Gains in query, key and value, and the row factor of the keys, for a run of blocks: (4, blocks).

    See `attention` for the formulas; Δ is the largest change of a logit (up to a shift common to a row).
    """
    q, k = blocks.q[part], blocks.k[part]
    mask = blocks.mask if blocks.mask.shape[0] == 1 else blocks.mask[part]
    (rq, nq), (rk, nk), (rv, nv) = (
        (reach[n].row[part, None], reach[n].norm[part, None]) for n in ("query", "key", "value")
    )
    s = abs(blocks.scale)
    top = (s * nq * nk).nan_to_num(nan=INF, posinf=INF)[..., None]
    weight = lift(softmax_weights(mask), top, mask).expand(q.shape[0], -1, -1)  # from the mask and the lengths alone
    # a covariance does not change when all rows move together, so rows may be measured from their mean at the centre
    width_v, width_k = (
        torch.linalg.vector_norm(t - t.mean(1, keepdim=True), dim=-1).amax(-1, keepdim=True)
        for t in (blocks.v[part], k)
    )
    root_v, root_k = finite_min(nv, width_v + rv).expand(q.shape[:2]), finite_min(nk, width_k + rk).expand(q.shape[:2])
    cross, long_q = (root_v * root_k).nan_to_num(nan=INF, posinf=INF), nq.expand(q.shape[:2])
    if spread is not None:
        centre = softmax_weights(blocks.scale * q @ k.mT + mask)
        length_q = torch.linalg.vector_norm(q, dim=-1)
        delta = s * (length_q * rk + rq * width_k + rq * rk)  # (blocks, queries)
        growth, eta = delta.exp(), torch.expm1(2 * delta)
        weight = torch.minimum(weight, lift(centre, delta[..., None], mask))
        far_k = growth * (spread.k + rk)
        root_v, root_k = finite_min(root_v, growth * (spread.v + rv)), finite_min(root_k, far_k)
        moved = spread.cross + eta * (1 + eta) * spread.v * spread.k + far_k * rv + growth * spread.v * rk
        cross = finite_min(cross, root_v * root_k, moved)
        long_q = finite_min(long_q, length_q + rq)
    gain_v = weight.sum(-2).amax(-1).sqrt()  # √(largest column sum) ≥ ‖P‖, since the rows of P sum to at most 1
    if matrices:
        gain_v = torch.minimum(gain_v, largest_singular(weight))
    far = (root_v * long_q).nan_to_num(nan=INF, posinf=INF)
    gain_k = torch.where(weight > 0, weight * far.square()[..., None], 0.0).sum(1).amax(-1).sqrt()
    if spread is not None and matrices:
        heavy = torch.where(weight > 0, weight * root_v.square()[..., None], 0.0).mT  # (blocks, keys, queries)
        outer = heavy.nan_to_num(posinf=0.0) @ (q[..., :, None] * q[..., None, :]).flatten(-2)
        lengths = largest_singular(outer.unflatten(-1, (q.shape[-1],) * 2)).sqrt()  # √‖Σ_i w_ji q_i q_iᵀ‖, key by key
        shift = torch.where(rq > 0, rq * heavy.sum(-1).sqrt(), 0.0)
        gain_k = finite_min(gain_k, torch.where(heavy.isinf().any(-1), INF, lengths + shift).amax(-1))
    return torch.stack([s * cross.nan_to_num(nan=INF, posinf=INF).amax(-1), s * gain_k, gain_v, s * far.amax(-1)])


@rules.add(F.scaled_dot_product_attention, claim="X.attention.qkv")
def attention(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Softmax attention in queries, keys and values.

    P_i = softmax(s q_i kᵀ + mask), y_i = Σ_j P_ij v_j:
    dy_i = Σ_j P_ij dv_j + s Cov_i(v, k) dq_i + s Σ_j P_ij (v_j − y_i)(q_i·dk_j), and with R the longest row
    in v: ‖P‖ ≤ √(max column sum of P);
    in q: s·max_i‖Cov_i(v, k)‖ ≤ s·max_i √(λmax(Cov_i v)·λmax(Cov_i k)) ≤ s R_v R_k;
    in k: s·√(max_j ‖Σ_i P_ij λmax(Cov_i v) q_i q_iᵀ‖) ≤ s R_v R_q √(max column sum);
    on a ball, with Δ a bound on the change of the logits (up to a shift of a whole row) and η = e^(2Δ) − 1:
    P/(1−P) ≤ e^(2Δ) P⁰/(1−P⁰), √λmax(Cov v) ≤ e^Δ(√λmax(Cov⁰ v) + r_v),
    ‖Cov(v, k)‖ ≤ ‖Cov⁰‖ + η(1+η)√(λ⁰_v λ⁰_k) + e^Δ((√λ⁰_k + r_k) r_v + √λ⁰_v r_k)

    Holds:  where the rows of q, k, v are bounded (after a normalizer: everywhere); not Lipschitz on unbounded tokens.
            Masks are constant.
    Source: derivative of softmax; Cauchy–Schwarz under the weights P_i; block diagonal over batch and heads.
            Non-Lipschitz: Kim, Papamakarios & Mnih 2021.

    Raises:
        SamplesMixed: when the samples do not lie along the first axis.
    """
    blocks = arrange(step)
    if isinstance(blocks, str):
        return ctx.unknown(incoming, blocks)
    if ctx.samples > 1 and (
        step.outputs[0].tensor.ndim < 3
        or any(f.axis % v.tensor.ndim for f, v in zip(incoming, step.inputs, strict=True))
    ):
        raise SamplesMixed("attention whose samples do not lie along the first axis")
    matrices = _work(blocks) <= WORK
    reach = reaches(step, incoming, ctx, blocks)
    parts = [
        part_gains(blocks, part, reach, matrices, _spread(step, blocks, part, ctx, matrices))
        for part in chunks(blocks, matrices)
    ]
    gains = torch.cat(parts, 1).cpu()
    by_role = dict(zip(("query", "key", "value", "far"), gains.reshape(4, ctx.samples, -1).amax(2), strict=True))
    found = _transfer(step, incoming, ctx, by_role, blocks)
    return replace(found, worked=_worked(step, by_role, reach, blocks))


def _worked(step: Step, by_role: dict[str, Tensor], reach: dict[str, Reach], blocks: Blocks) -> str:
    """The gains in the operands that move, and the longest rows that allow them."""
    moving = [name for i, name in enumerate(("query", "key", "value")) if isinstance(step.get(i, name), Value)]
    logs = [log_vector(by_role[name]) for name in moving]
    sample = worst_sample(*logs)
    letters = {"query": "q", "key": "k", "value": "v"}
    lengths = [number(float(reach[n].norm.reshape(len(logs[0]), -1)[sample].max())) for n in letters]
    facts = f"{blocks.k.shape[1]} keys, s = {number(abs(blocks.scale))}, R_q, R_k, R_v = {', '.join(lengths)}"
    gains = largest_term(result(float(log[sample]), 6) for log in logs)
    return equal(f"{at_sample(*logs)}{facts}; {largest_term(f'in {letters[n]}' for n in moving)} = {gains}", *logs)


def _work(blocks: Blocks) -> float:
    count, queries, d = blocks.q.shape
    keys, width = blocks.v.shape[1:]
    return float(count) * queries * keys * (d * d + d * width + width * width) + float(count) * queries * keys * min(
        queries, keys
    )


def _spread(step: Step, blocks: Blocks, part: slice, ctx: Context, matrices: bool) -> AttentionSpread | None:
    """The centre's covariances, computed once for all scopes; None where the centre says nothing."""
    if ctx.scope.kind == "global" and (
        isinstance(step.get(0, "query"), Value) or isinstance(step.get(1, "key"), Value)
    ):
        return None
    out = step.outputs[0].tensor
    found: AttentionSpread = ctx.once(
        ("attention", id(out), part.start), out, lambda: spread_at_centre(blocks, part, matrices)
    )
    return found


def _transfer(
    step: Step, incoming: tuple[Flow, ...], ctx: Context, by_role: dict[str, Tensor], blocks: Blocks
) -> Transfer:
    roles = [(name, step.get(i, name)) for i, name in enumerate(("query", "key", "value"))]
    gains, row, flow_v = [], ctx.full(0.0), None
    for value, flow in zip(step.inputs, incoming, strict=True):
        name = next(n for n, operand in roles if operand is value)
        roles.remove((name, value))
        form = None
        if name == "value":
            flow_v = flow
            form = Commute((-2,) if blocks.shared == 1 else (-3, -2))
        gains.append(Gain(log_vector(by_role[name]), form=form))
        factor = {"query": by_role["query"], "key": by_role["far"]}.get(name, ctx.full(1.0))
        row = row + torch.where(flow.row > 0, factor * flow.row, 0.0).nan_to_num(nan=INF, posinf=INF)
    data = blocks.v
    empty = bool((blocks.mask == -INF).all(-1).any())
    low = ctx.full(float(data.min())) if flow_v is None else flow_v.low
    high = ctx.full(float(data.max())) if flow_v is None else flow_v.high
    longest = ctx.full(float(torch.linalg.vector_norm(data, dim=-1).max())) if flow_v is None else flow_v.norm
    slack = STEPS * torch.maximum(low.abs(), high.abs()).nan_to_num(posinf=0.0)
    low, high = low - slack, high + slack
    found = Transfer(
        tuple(gains),
        row=row,
        norm=size_up(longest),
        low=low.clamp_max(0.0) if empty else low,
        high=high.clamp_min(0.0) if empty else high,
    )
    # three free tokens that are query, key and value at once may be 0, R and −R
    same = len(set(step.inputs)) == 1 and len(step.inputs) == 3 and not bool(blocks.mask.any())
    free = same and incoming[0].covers and data.shape[1] >= 3 and blocks.scale > 0
    why = "attention is not Lipschitz on unbounded tokens" if free else "attention on tokens that may be of any length"
    return endless(found, why, free)
