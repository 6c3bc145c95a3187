"""The mathematics shared by every normalizer that divides a group by its own spread."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import end_down, end_up, log_inward, log_outward, size_up
from normgauge.instrument.rules.flow import INF, Context, Flow, Gain, NormalizerMap, Transfer, log_vector
from normgauge.instrument.rules.worked import equal, number, worst_sample


def smallest_spread(sigma: Tensor, reach: Tensor, size: int) -> Tensor:
    """min of σ over a ball of radius ρ: max(0, σ(x0) − ρ/√n), attained."""
    return (sigma - reach / math.sqrt(size)).nan_to_num(nan=0.0, neginf=0.0).clamp_min(0.0)


def steepest_slope(floor: Tensor, eps: float, size: int, centred: bool) -> Tensor:
    """‖J‖ without γ where the spread is at least ``floor``.

    1/√(s²+ε) in general; ε/(s²+ε)^(3/2) when no direction is left but the radial one (n = 2 centred, n = 1 not);
    0 for a single centred entry.
    """
    if centred and size == 1:
        return torch.zeros_like(floor)
    spread = floor.square() + eps
    if size == (2 if centred else 1):
        return eps * spread.pow(-1.5)
    return spread.rsqrt()


def displacement(sigma: Tensor, slope: Tensor, reach: Tensor, eps: float, size: int) -> tuple[Tensor, Tensor]:
    """How far the normalized group can move when its input moves by ``reach``, and whether the chord was usable.

    min(ρ·slope, 2√n sin(½ arcsin q), √n(1 + σ0/σ_ε0)),  q = ρ/(√n σ_ε0) < 1 for the chord (lift y to (y, √(nε)))
    """
    sigma_eps = (sigma.square() + eps).sqrt()
    q = reach / (math.sqrt(size) * sigma_eps)
    inside = q < 1
    chord = 2 * math.sqrt(size) * torch.sin(torch.asin(q.clamp_max(1.0)) / 2)
    best = torch.minimum((reach * slope).nan_to_num(nan=INF, posinf=INF), math.sqrt(size) * (1 + sigma / sigma_eps))
    return size_up(torch.where(inside, torch.minimum(best, chord), best)), inside


def together(moved: Tensor, whole: Tensor, inside: Tensor) -> Tensor:
    """How far all groups move: each on its own, or as if one moved alone where the chord holds for all."""
    apart = moved.square().sum(1).sqrt()
    return torch.where(inside.all(1), torch.minimum(apart, whole.amax(1)), apart)


def groupwise(
    groups: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    eps: float,
    flow: Flow,
    ctx: Context,
    *,
    centred: bool,
    gamma_axis: int,
    period: int = 1,
    rows: bool = False,
    unit: str = "group",
    flat: bool = False,
) -> Transfer:
    """The transfer of a normalizer that divides each group by its own spread.

    Args:
        groups: centre values as (samples, groups, entries of a group).
        gamma: gains; length = entries of a group when ``rows``, else one for each channel in the order of the groups.
        beta: shifts, laid out as gamma.
        eps: ε under the root.
        flow: what is known of the input.
        ctx: the context.
        centred: whether the mean is taken off (LayerNorm) or not (RMSNorm).
        gamma_axis: the tensor axis gamma lies on.
        period: after how many groups the gammas repeat (the groups of one image).
        rows: every group is one row (vector along the last axis), so rows' radii apply.
        unit: what a group is called.
        flat: the groups of one input lie side by side along the last axis.
    """
    count, size = groups.shape[1], groups.shape[2]
    spread = (groups.var(2, unbiased=False) if centred else groups.square().mean(2)).cpu()
    sigma = spread.sqrt()  # (S, G)
    top = torch.ones(count, dtype=torch.float64)
    if gamma is not None:
        size_of = gamma.detach().double().abs().cpu().reshape(-1)
        top = size_of.max().expand(count) if rows else size_of.reshape(period, -1).amax(1).repeat(count // period)
    reach = (torch.minimum(flow.row, flow.radius) if rows else flow.radius)[:, None]
    floor = smallest_spread(sigma, reach, size)
    slope = steepest_slope(floor, eps, size, centred)
    log = log_vector((slope * top).amax(1))
    moved, _ = displacement(sigma, slope, reach, eps, size)
    whole, inside = displacement(sigma, slope, flow.radius[:, None], eps, size)
    radius, bare = (together(moved * factor, whole * factor, inside) for factor in (top, torch.ones_like(top)))
    inverse = (floor.square() + eps).rsqrt().reshape(-1, period)  # (sets, groups of one set)
    facts = sigma_facts((spread + eps).sqrt(), gamma, eps, groups=inverse if centred else None)
    low, high, norm = _caps(gamma, beta, size, centred, ctx, rows)
    parts = (1 if rows else period if flat else 0) if centred else 0
    falls = ctx.scope.kind != "global" and bool((floor.square() <= eps).any())
    falling = "σ falls" if ctx.scope.kind == "point" else "in this ball it is not excluded that σ falls"
    note = f"{falling} to the ε floor (√ε = {math.sqrt(eps):.1e}): ε alone decides the constant"
    return Transfer(
        (
            Gain(
                log,
                _lower(sigma, gamma, eps, size, centred, rows, ctx),
                _form(slope, bare, gamma, gamma_axis, period, parts),
            ),
        ),
        radius=radius,
        row=(moved * top).amax(1) if rows else radius,
        norm=norm,
        low=low,
        high=high,
        sigma=facts,
        note=note if falls else "",
        worked=_worked(log, decider(log, slope * top, sigma, reach, unit, period), top, eps, size, centred),
    )


@dataclass(frozen=True, slots=True)
class Decider:
    """The group with the largest gain: where it is, its spread at the centre and how far its input moves."""

    index: int
    place: str
    sigma: float
    reach: float

    def floor(self, size: int, centred: bool) -> tuple[str, str, str]:
        """Its smallest spread in the scope: the derivation, the symbol and the number; no symbol where it is 0."""
        name, moved = ("σ", "ρ") if centred else ("rms", "r")
        if math.isinf(self.reach):
            return "", "", "0"
        if self.reach == 0:
            return "", name, number(self.sigma)
        low = self.sigma - self.reach / math.sqrt(size)
        form, put_in = f"{name}(x₀) − {moved}/√n", f"{number(self.sigma)} − {number(self.reach)}/√{size}"
        if low < 0:
            form, put_in = f"max(0, {form})", f"max(0, {put_in})"
        least = number(max(low, 0.0))
        return f"s = {form} = {put_in} = {least}; ", "s", least


def decider(log: Tensor, slopes: Tensor, sigma: Tensor, reach: Tensor, unit: str, period: int = 1) -> Decider:
    """The group that decides the gain; its place names sample and group where others differ."""
    sample = worst_sample(log)
    group = int(slopes[sample].argmax())
    alike = bool((slopes[sample] == slopes[sample, group]).all())
    places = [f"sample {sample}"] * bool((log != log[sample]).any())
    places += [f"{unit} {group % period if period > 1 else group}"] * (not alike)
    place = ", ".join(places) + ": " if places else ""
    return Decider(group, place, float(sigma[sample, group]), float(reach[sample, 0]))


def _worked(log: Tensor, who: Decider, top: Tensor, eps: float, size: int, centred: bool) -> str:
    if centred and size == 1:
        return equal("a single entry less its own mean", log)
    gamma = number(float(top[who.index]))
    how, symbol, least = who.floor(size, centred)
    if not symbol:
        return equal(f"{who.place}max|γ|/√ε = {gamma}/√{number(eps)}", log)
    if size == (2 if centred else 1):
        put_in = f"{gamma}·{number(eps)}/({least}² + {number(eps)})^1.5"
        return equal(f"{who.place}{how}max|γ|·ε/({symbol}²+ε)^1.5 = {put_in}", log)
    return equal(f"{who.place}{how}max|γ|/√({symbol}²+ε) = {gamma}/√({least}² + {number(eps)})", log)


def _form(slope: Tensor, moved: Tensor, gamma: Tensor | None, axis: int, period: int, centred: int) -> NormalizerMap:
    """Per-channel slopes when each group holds whole channels, one common slope otherwise."""
    size = None if gamma is None else gamma.detach().double().abs().cpu().reshape(-1)
    inverse = slope.amax(1, keepdim=True)
    if size is not None and axis == 1 and period > 1:
        by_group = slope.reshape(slope.shape[0], -1, period).amax(1)
        inverse = by_group.repeat_interleave(size.numel() // period, 1)
    return NormalizerMap(size, axis, centred, log_vector(inverse), log_vector(moved))


def _lower(
    sigma: Tensor, gamma: Tensor | None, eps: float, size: int, centred: bool, rows: bool, ctx: Context
) -> float:
    """A value the layer's constant surely reaches: interlacing, |γ|₍₃₎/σ_ε centred and |γ|₍₂₎/ρ_ε not."""
    floor = torch.zeros(1, dtype=torch.float64) if ctx.scope.kind == "global" else sigma
    slope = float(steepest_slope(floor, eps, size, centred).max())
    rank = 3 if centred else 2
    if size < rank or slope == 0:
        return -INF
    weight = 1.0
    if gamma is not None:
        if not rows:
            return -INF
        weight = float(gamma.detach().double().abs().reshape(-1).topk(rank).values[-1])
    return log_inward(slope * weight)


def _caps(
    gamma: Tensor | None, beta: Tensor | None, size: int, centred: bool, ctx: Context, rows: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Limits that hold for every input: |z_i| ≤ √(n−1) centred, √n not; ‖z‖ ≤ √n."""
    entry = math.sqrt(size - 1 if centred else size)
    gain = torch.ones(1, dtype=torch.float64) if gamma is None else gamma.detach().double().abs().cpu().reshape(-1)
    shift = torch.zeros(1, dtype=torch.float64) if beta is None else beta.detach().double().cpu().reshape(-1)
    high, low = float((gain * entry + shift).max()), float((shift - gain * entry).min())
    length = math.sqrt(size) * float(gain.max())
    if rows:
        length += float(torch.linalg.vector_norm(shift))
    else:
        length += math.sqrt(size) * float(shift.abs().max())
    return ctx.full(end_down(low)), ctx.full(end_up(high)), ctx.full(size_up(length))


def sigma_facts(
    sigma: Tensor,
    gamma: Tensor | None,
    eps: float,
    *,
    groups: Tensor | None = None,
    scale: Tensor | None = None,
) -> dict[str, float | None]:
    """The facts about a normalizer's √(σ²+ε), (samples, groups), that tables and published products use.

    Args:
        sigma: √(σ²+ε) at the centre.
        gamma: gains.
        eps: ε.
        groups: largest 1/√(σ²+ε) in the scope, (sets, groups of one set), an input being one or several sets; None
            where no lemma is about such groups.
        scale: |γ|/√(σ²+ε) of each channel, where all inputs share it; None where they do not.
    """
    return {
        "min": float(sigma.min()),
        "rms": float(sigma.square().mean().sqrt()),
        "max": float(sigma.max()),
        "gamma_max": 1.0 if gamma is None else float(gamma.detach().double().abs().max()),
        "eps": eps,
        "log_l2": log_outward(float(scale.norm())) if scale is not None else None,
        "log_inverse_l2": log_outward(float(torch.linalg.vector_norm(1 / sigma))) if scale is not None else None,
        "log_inverse": log_outward(float(groups.max())) if groups is not None and groups.shape[1] == 1 else None,
        "log_sum": log_outward(float(groups.sum(1).max())) if groups is not None else None,
        "log_count": None if groups is None else math.log(groups.shape[1]),
    }
