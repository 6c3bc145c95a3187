"""Batch normalization: an affine map of each channel in eval mode, layer normalization along the batch in training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from normgauge.core.rounding import house_up, log_inward
from normgauge.instrument.rules.flow import Context, Diagonal, Flow, Gain, SamplesMixed, Transfer
from normgauge.instrument.rules.normalizer import Normalizer, known_normalizer, targets
from normgauge.instrument.rules.registry import Family
from normgauge.instrument.rules.spread import groupwise, sigma_facts
from normgauge.instrument.rules.worked import equal, number
from normgauge.instrument.trace.step import Step

rules = Family("norm_batch")
CANCELLED = 1e-3  # of ε, at least, that a negative variance has to leave of it


def channel_affine(norm: Normalizer, flow: Flow, ctx: Context) -> Transfer:
    """The transfer of y_c = γ_c (x_c − mean_c)/√(var_c + ε) + β_c with fixed statistics: exact everywhere."""
    assert norm.stored is not None
    variance, gamma, eps = norm.stored[1].detach().double().cpu(), norm.gamma, norm.eps
    least = -(1 - CANCELLED) * eps if norm.where == "inside" else 0.0  # nearer to −ε the sum is rounding
    if not bool((variance >= least).all()):
        return ctx.unknown((flow,), "a negative running variance, which ε does not outweigh")
    sigma = norm.below(variance)
    size = torch.ones_like(sigma) if gamma is None else gamma.detach().double().abs().cpu()
    scale = size / sigma
    top = float(scale.max())
    gain = Gain(ctx.log(top), log_inward(top), Diagonal(scale))
    c = int(scale.argmax())
    put_in = f"{number(float(size[c]))}/√({number(float(variance[c]))} + {number(eps)})"
    reach = house_up(top * flow.peak) + float(norm.affine()[1].abs().max())
    return Transfer(
        (gain,),
        row=top * flow.row,
        low=-reach,
        high=reach,
        sigma=sigma_facts(sigma[None], gamma, eps, scale=scale),
        worked=equal(f"channel {c}: |γ|/√(var+ε) = {put_in}", gain.log),
    )


def train_statistics(data: Tensor, norm: Normalizer, flow: Flow, ctx: Context) -> Transfer:
    """The transfer with the batch's own statistics: each channel is normalized over all its values in the batch.

    Raises:
        SamplesMixed: unless the batch is measured as one point.
    """
    if ctx.samples != 1:
        raise SamplesMixed("batch statistics couple the samples")
    channels = data.shape[1]
    groups = data.detach().double().movedim(1, 0).reshape(1, channels, -1)
    layout: dict[str, Any] = {"gamma_axis": 1, "period": channels, "unit": "channel"}
    transfer = groupwise(groups, norm.gamma, norm.beta, norm.eps, flow, ctx, centred=True, **layout)
    # a group spans the batch: neither the lemma on fixed statistics nor those on groups of one input are about it
    facts = sigma_facts((groups.var(2, unbiased=False) + norm.eps).sqrt().cpu(), norm.gamma, norm.eps)
    return within_rows(replace(transfer, sigma=facts), data)


def within_rows(transfer: Transfer, data: Tensor) -> Transfer:
    """The transfer without its bound on a row's length, where rows run across channels and so across groups."""
    return replace(transfer, norm=None) if data.ndim == 2 else transfer


@rules.add(*targets("batch"), claim="T.L1")
def batch_norm(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Batch normalization.

    eval: J = diag(γ_c/√(var_c+ε)),  ‖J‖ = max_c |γ_c|/√(running_var_c + ε);
    train: ‖J‖ = max_c |γ_c|/√(σ_c²(batch) + ε), m ≥ 3

    Holds:  eval: everywhere, exactly. train: for the map of the whole batch, in the scope asked for.
    Source: Ioffe & Szegedy 2015; the ℓ2 norm over channels printed elsewhere is √C too large.
    """
    norm = known_normalizer(step, ctx.dtype)
    if norm.stored is None:
        return train_statistics(step.inputs[0].tensor, norm, incoming[0], ctx)
    return channel_affine(norm, incoming[0], ctx)
