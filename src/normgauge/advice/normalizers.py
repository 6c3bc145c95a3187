"""Normalizers that do not do their work: constant, dead, starved, out of date, or with one channel far too loud."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.advice.chains import columns, rows
from normgauge.advice.norms import Norm
from normgauge.advice.remark import Remark, Severity
from normgauge.advice.thresholds import (
    DEAD_GAIN,
    DEAD_SHARE,
    EPSILON_SHARE,
    OUTLIER_FEW,
    OUTLIER_GAIN,
    STALE_MEAN,
    STALE_SHARE,
    STALE_VALUES,
    STALE_VARIANCE,
    TINY_SIGMA,
)
from normgauge.advice.view import View
from normgauge.rules.normalizer import SEVERAL


def one_element(view: View) -> Iterator[Remark]:
    """A mean over one entry is that entry: nothing is left. Over two, only which is larger is."""
    for norm in view.norms.values():
        left = norm.size if norm.form.centred else norm.size + 1
        if left > 2 or norm.seen is not None:
            continue
        name = view.names[norm.step.index]
        outcome = "its output is the same for every input" if left == 1 else "only a sign of its input is left"
        yield Remark(
            "one element",
            name,
            f"{name} normalizes over {norm.size} {'entry' if norm.size == 1 else 'entries'}: {outcome}. "
            "Normalize over more entries (fewer groups, larger maps) or take it out.",
            {"entries": norm.size},
            depth=norm.step.index,
        )


def epsilon(view: View) -> Iterator[Remark]:
    """ε in √(σ² + ε) is there for safety; where it is the larger part, the normalizer no longer normalizes."""
    for norm in view.norms.values():
        share = float((norm.variance <= norm.eps).double().mean())
        if share < EPSILON_SHARE or (norm.size <= 2 and norm.seen is None):
            continue
        name = view.names[norm.step.index]
        sigma = float(norm.variance.median().sqrt())
        yield Remark(
            "epsilon decides",
            name,
            f"{name} divides by √(σ² + ε) with σ = {sigma:.2g} below √ε = {math.sqrt(norm.eps):.2g} in {share:.0%} of "
            "its groups: it passes small signals on as they are. Scale up the layer before it, or lower eps.",
            {"sigma": sigma, "eps": norm.eps, "share": share},
            depth=norm.step.index,
        )


def stale(view: View) -> Iterator[Remark]:
    """Stored statistics that are not those of the data."""
    for norm in view.norms.values():
        if norm.seen is None or norm.stored is None or norm.size < STALE_VALUES:
            continue
        mean, variance = norm.seen
        stored = norm.variance[0] + norm.eps
        ratio = ((variance + norm.eps) / stored).log10()
        shift = (mean - norm.stored).abs() / stored.sqrt()
        off = (ratio.abs() >= STALE_VARIANCE) | (shift >= STALE_MEAN)
        share = float(off.double().mean())
        if share < STALE_SHARE:
            continue
        name, module = view.names[norm.step.index], norm.step.module
        middle, moved = float(ratio.median()), float(shift.median())
        never = module is not None and module.num_batches_tracked is not None and int(module.num_batches_tracked) == 0
        yield Remark(
            "stale statistics",
            name,
            f"{name} has running statistics that are not those of this batch on {share:.0%} of its channels: "
            f"seen variance over stored {10**middle:.2g}, mean off by {moved:.2g} σ"
            f"{'; they were never updated' if never else ''}. Run batches through it in training mode, without "
            "gradients, before using it.",
            {"variance_ratio": 10**middle, "mean_shift": moved, "share": share},
            depth=norm.step.index,
        )


def tiny_sigma(view: View) -> Iterator[Remark]:
    """A σ far below the others: what little reaches that channel or sample is blown up."""
    for norm in view.norms.values():
        found = _starved_channel(view, norm) if norm.form.by_channel else _starved_sample(norm, view.samples)
        if found is None:
            continue
        what, below, index, sigma, gain = found
        name = view.names[norm.step.index]
        mend = "retrain or remove that channel" if what == "channel" else "see what that sample holds (blank, padding?)"
        yield Remark(
            "tiny sigma",
            name,
            f"{name} amplifies {what} {index} by γ/σ = {gain:.3g}: its σ = {sigma:.2g} is {10**below:.3g} times "
            f"smaller than usual there, so that mostly noise is passed on; {mend}, or raise eps.",
            {what: index, "sigma": sigma, "gain": gain, "below_usual": 10**below},
            Severity.LOOK,
            depth=norm.step.index,
        )


Starved = tuple[str, float, int, float, float]


def _starved_channel(view: View, norm: Norm) -> Starved | None:
    """σ in parts of what a row of the layer before lets through at most: the row's own scale cancels."""
    made = rows(view, norm.step.inputs[0])
    sigma = norm.sigma[0].cpu()
    if made is None or made[0].shape != sigma.shape or not bool((made[0] > 0).any()):
        return None
    gain = made[0] / sigma
    logs = gain[gain > 0].log10()
    worst = int(gain.argmax())
    below = float(gain[worst].log10() - logs.median())
    if below < TINY_SIGMA:
        return None
    return "channel", below, worst, float(sigma[worst]), float(_gamma(norm, worst) / sigma[worst])


def _starved_sample(norm: Norm, samples: int) -> Starved | None:
    """σ of one sample (median over its tokens or pixels: a blank border is usual) against the median over all."""
    sigma = norm.sigma.cpu()
    if norm.size <= 2 or samples < 3 or sigma.shape[0] % samples:
        return None
    sigma = sigma.reshape(samples, -1, sigma.shape[1]).median(1).values  # (samples, groups)
    below = (sigma.median(0).values / sigma).log10()
    row = int(below.amax(1).argmax())
    worst = int(below[row].argmax())
    if float(below[row, worst]) < TINY_SIGMA:
        return None
    smallest = float(sigma[row, worst])
    top = 1.0 if norm.gamma is None else float(norm.gamma.abs().max())
    return "sample", float(below[row, worst]), row, smallest, top / smallest


def _gamma(norm: Norm, channel: int) -> Tensor:
    return torch.ones(()) if norm.gamma is None else norm.gamma[channel].abs().cpu()


def dead_gain(view: View) -> Iterator[Remark]:
    """γ near 0 on nearly all channels: the output is the shift β, whatever comes in."""
    for norm in view.norms.values():
        passed = passed_on(view, norm)
        if norm.gamma is None or passed is None:
            continue
        gamma = norm.gamma.abs().cpu().flatten()
        share = float((torch.maximum(passed, gamma) <= DEAD_GAIN).double().mean())
        # γ = 0 in a branch is a usual start: the block begins as the identity
        begins = not bool(norm.gamma.any()) and not any(v is norm.step.outputs[0] for v in view.trunk)
        if share < DEAD_SHARE or begins:
            continue
        name = view.names[norm.step.index]
        yield Remark(
            "dead normalizer",
            name,
            f"{name} has |γ| near 0 (median {float(norm.gamma.abs().median()):.2g}) on {share:.0%} of its channels and "
            "passes nothing on. Set γ to 1 there and train again, with less weight decay on γ.",
            {"share": share, "gamma_median": float(norm.gamma.abs().median())},
            depth=norm.step.index,
        )


def outlier_gain(view: View) -> Iterator[Remark]:
    """Few channels whose gain is far above the rest: they decide, and a rounding there is felt everywhere."""
    for norm in view.norms.values():
        passed = passed_on(view, norm)
        if norm.gamma is None or passed is None or passed.numel() < 3 or not float(passed.median()) > 0:
            continue
        gamma = norm.gamma.abs().cpu().flatten()
        ratio = torch.minimum(passed / passed.median(), gamma / gamma.median())
        loud = int((ratio >= OUTLIER_GAIN).sum())
        if not 0 < loud <= max(1, int(OUTLIER_FEW * passed.numel())):
            continue
        channel, name = int(ratio.argmax()), view.names[norm.step.index]
        top = float(gamma[channel])
        yield Remark(
            "outlier gain",
            name,
            f"{name} has |γ| = {top:.3g} on channel {channel}, {float(ratio.max()):.3g} times the usual channel with "
            "what the next layer makes of it. Look at that channel; clip or regularize γ.",
            {"channel": channel, "gamma": top, "ratio": float(ratio.max())},
            Severity.LOOK,
            depth=norm.step.index,
        )


def passed_on(view: View, norm: Norm) -> Tensor | None:
    """|γ| of each channel times how strongly the next layers take it up; |γ| alone where that cannot be said."""
    if norm.gamma is None:
        return None
    gamma = norm.gamma.abs().cpu().flatten()
    taken = columns(view, norm.step.outputs[0], gamma.numel()) if norm.form.axis != SEVERAL else None
    return gamma if taken is None else gamma * taken
