"""Normalizers that do not do their work: constant, dead, starved, out of date, or with one channel far too loud."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from normgauge.advice.chains import channel_uptake, weight_row_norms
from normgauge.advice.norms import MeasuredNorm
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
from normgauge.advice.view import TraceView
from normgauge.instrument.rules.normalizer import SEVERAL
from normgauge.instrument.unreached import unreached_rows


def of_normalizers(view: TraceView) -> Iterator[Remark]:
    """The remarks of every check on every normalizer."""
    found = (check(view, norm) for check in CHECKS for norm in view.norms.values())
    return (remark for remark in found if remark is not None)


def one_element(view: TraceView, norm: MeasuredNorm) -> Remark | None:
    """Normalizing over one entry returns a constant, and over two entries only says which one is larger."""
    left = norm.size if norm.form.centred else norm.size + 1
    if left > 2 or norm.seen is not None:
        return None
    outcome = "its output is the same for every input" if left == 1 else "only a sign of its input is left"
    return view.remark(
        norm.step,
        "one element",
        f"normalizes over {norm.size} {'entry' if norm.size == 1 else 'entries'}: {outcome}. "
        "Normalize over more entries (fewer groups, larger maps) or take it out.",
        {"entries": norm.size},
    )


def epsilon(view: TraceView, norm: MeasuredNorm) -> Remark | None:
    """ε in √(σ² + ε) is there for safety; where it is the larger part, the normalizer no longer normalizes."""
    eps = norm.form.least
    variance = norm.variance
    if float((variance <= eps).double().mean()) >= EPSILON_SHARE:  # then it is worth asking which rows matter
        dead = unreached_rows(view.session).get(norm.step.index)
        variance = variance if dead is None else variance[~dead.flatten().to(variance.device)]
    share = float((variance <= eps).double().mean())
    if share < EPSILON_SHARE or (norm.size <= 2 and norm.seen is None):
        return None
    sigma = float(variance.median().sqrt())
    return view.remark(
        norm.step,
        "epsilon decides",
        f"divides by √(σ² + ε) with σ = {sigma:.2g} below √ε = {math.sqrt(eps):.2g} in {share:.0%} of "
        "its groups: it passes small signals on as they are. Scale up the layer before it, or lower eps.",
        {"sigma": sigma, "eps": eps, "share": share},
    )


def stale(view: TraceView, norm: MeasuredNorm) -> Remark | None:
    """Running statistics that differ from those of the batch."""
    if norm.seen is None or norm.form.stored is None or norm.size < STALE_VALUES:
        return None
    mean, variance = norm.seen
    stored = norm.variance[0] + norm.form.least
    ratio = ((variance + norm.form.least) / stored).log10()
    shift = (mean - norm.form.stored[0].detach().double()).abs() / stored.sqrt()
    off = (ratio.abs() >= STALE_VARIANCE) | (shift >= STALE_MEAN)
    share = float(off.double().mean())
    if share < STALE_SHARE:
        return None
    middle, moved = float(ratio.median()), float(shift.median())
    return view.remark(
        norm.step,
        "stale statistics",
        f"has running statistics that are not those of this batch on {share:.0%} of its channels: "
        f"seen variance over stored {10**middle:.2g}, mean off by {moved:.2g} σ"
        f"{'; they were never updated' if count_of(norm.step.module) == 0 else ''}. Run batches through it in training "
        "mode, without gradients, before using it.",
        {"variance_ratio": 10**middle, "mean_shift": moved, "share": share},
    )


def count_of(module: nn.Module | None) -> int | None:
    """How often a module's running statistics were updated; None where it does not count that."""
    count = getattr(module, "num_batches_tracked", None)
    return None if count is None else int(count)


def tiny_sigma(view: TraceView, norm: MeasuredNorm) -> Remark | None:
    """A σ far below the others: mostly noise of that channel or sample is amplified."""
    found = _starved_channel(view, norm) if norm.form.by_channel else _starved_sample(norm, view.samples)
    if found is None:
        return None
    what, below, index, sigma, gain = found
    mend = "retrain or remove that channel" if what == "channel" else "see what that sample holds (blank, padding?)"
    return view.remark(
        norm.step,
        "tiny sigma",
        f"amplifies {what} {index} by γ/σ = {gain:.3g}: its σ = {sigma:.2g} is {10**below:.3g} times "
        f"smaller than usual there, so that mostly noise is passed on; {mend}, or raise eps.",
        {what: index, "sigma": sigma, "gain": gain, "below_usual": 10**below},
        Severity.LOOK,
    )


Starved = tuple[str, float, int, float, float]


def _starved_channel(view: TraceView, norm: MeasuredNorm) -> Starved | None:
    """The channel whose σ is smallest relative to the norm of the row before it, whose own scale cancels."""
    made = weight_row_norms(view, norm.step.inputs[0])
    sigma = norm.sigma[0]
    if made is None or made[0].shape != sigma.shape or not bool((made[0] > 0).any()):
        return None
    gain = made[0] / sigma
    logs = gain[gain > 0].log10()
    worst = int(gain.argmax())
    below = float(gain[worst].log10() - logs.median())
    if below < TINY_SIGMA:
        return None
    top = 1.0 if norm.gamma is None else float(norm.gamma[worst])
    return "channel", below, worst, float(sigma[worst]), top / float(sigma[worst])


def _starved_sample(norm: MeasuredNorm, samples: int) -> Starved | None:
    """σ of one sample (median over its tokens or pixels: a blank border is usual) against the median over all."""
    sigma = norm.sigma
    if norm.size <= 2 or samples < 3 or sigma.shape[0] % samples:
        return None
    sigma = sigma.reshape(samples, -1, sigma.shape[1]).median(1).values  # (samples, groups)
    below = (sigma.median(0).values / sigma).log10()
    row = int(below.amax(1).argmax())
    worst = int(below[row].argmax())
    if float(below[row, worst]) < TINY_SIGMA:
        return None
    smallest = float(sigma[row, worst])
    top = 1.0 if norm.gamma is None else float(norm.gamma.max())
    return "sample", float(below[row, worst]), row, smallest, top / smallest


def dead_gain(view: TraceView, norm: MeasuredNorm) -> Remark | None:
    """γ near 0 on nearly all channels: the output is the shift β, whatever comes in."""
    gamma = norm.gamma
    if gamma is None:
        return None
    share = float((torch.maximum(passed_on(view, norm, gamma), gamma) <= DEAD_GAIN).double().mean())
    # γ = 0 in a branch is a usual start: the block begins as the identity
    begins = not bool(gamma.any()) and not any(v is norm.step.outputs[0] for v in view.trunk)
    if share < DEAD_SHARE or begins:
        return None
    middle = float(gamma.median())
    return view.remark(
        norm.step,
        "dead normalizer",
        f"has |γ| near 0 (median {middle:.2g}) on {share:.0%} of its channels and "
        "passes nothing on. Set γ to 1 there and train again, with less weight decay on γ.",
        {"share": share, "gamma_median": middle},
    )


def outlier_gain(view: TraceView, norm: MeasuredNorm) -> Remark | None:
    """Few channels whose gain is far above the rest: they decide, and a rounding there is felt everywhere."""
    gamma = norm.gamma
    passed = None if gamma is None else passed_on(view, norm, gamma)
    if gamma is None or passed is None or passed.numel() < 3 or not float(passed.median()) > 0:
        return None
    ratio = torch.minimum(passed / passed.median(), gamma / gamma.median())
    loud = int((ratio >= OUTLIER_GAIN).sum())
    if not 0 < loud <= max(1, int(OUTLIER_FEW * passed.numel())):
        return None
    channel, most = int(ratio.argmax()), float(ratio.max())
    top = float(gamma[channel])
    return view.remark(
        norm.step,
        "outlier gain",
        f"has |γ| = {top:.3g} on channel {channel}, {most:.3g} times the usual channel with "
        "what the next layer makes of it. Look at that channel; clip or regularize γ.",
        {"channel": channel, "gamma": top, "ratio": most},
        Severity.LOOK,
    )


def passed_on(view: TraceView, norm: MeasuredNorm, gamma: Tensor) -> Tensor:
    """|γ| of each channel times how strongly the next layers take it up; |γ| alone where that cannot be said."""
    taken = channel_uptake(view, norm.step.outputs[0], gamma.numel()) if norm.form.axis != SEVERAL else None
    return gamma if taken is None else gamma * taken


CHECKS: tuple[Callable[[TraceView, MeasuredNorm], Remark | None], ...] = (
    one_element,
    dead_gain,
    epsilon,
    stale,
    tiny_sigma,
    outlier_gain,
)
