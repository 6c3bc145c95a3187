"""Evaluate the composed bound for given channel weights, and choose the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from normgauge.core.rounding import SQUARED
from normgauge.instrument.balance.descend import descend_weights, is_worth_proving
from normgauge.instrument.balance.objective import Objective
from normgauge.instrument.balance.ties import ChannelWeights, Ties, log_scale, tie_weights
from normgauge.instrument.balance.weighted import Weighting, weighted_slopes
from normgauge.instrument.compose import Composition
from normgauge.instrument.rules.flow import Diagonal, Kernel, NormalizerMap


@dataclass(frozen=True, slots=True)
class Balanced:
    """A proved bound for one choice of weights.

    Attributes:
        log_upper: one entry a sample.
        gains: weighted log gain of each (value, input position), largest over the samples.
        gauges: the gauges used, in words.
        weights: (axis, log weights) by value index; a value not listed has weights 1.
        table: weighted log gain of each (value, input position), one entry a sample: what ``log_upper`` is made of
            (for the balanced bound, together with the folded one's: it is the smaller of the two, sample by sample).
        theta: the free log weights that ``table`` was proved with; None where it was proved with none.
    """

    log_upper: Tensor
    gains: dict[tuple[int, int], float] = field(default_factory=dict)
    gauges: tuple[str, ...] = ()
    weights: dict[int, tuple[int, Tensor]] = field(default_factory=dict)
    table: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    theta: Tensor | None = None

    @property
    def total(self) -> float:
        """The largest log bound over the samples."""
        return float(self.log_upper.max())


def both_bounds(parts: Composition, given: Tensor | None = None) -> tuple[Balanced, Balanced]:
    """Return the folded and the balanced bound; where the second is proved anyway, the first is rough if that pays.

    It pays where the rules' own norms are rough. The second is never above the first. With ``given`` free log weights
    it is proved for them, and none are looked for.
    """
    forms = [g.form for transfer in parts.transfers.values() for g in transfer.gains]
    rough = any(isinstance(form, Kernel) and form.rough for form in forms)
    ties = tie_weights(parts)
    folded = folded_bound(parts, ties, rough=rough)
    best = balanced_bound(parts, folded, given, ties)
    if rough and best.table is folded.table:  # nothing else was proved
        folded = folded_bound(parts, ties)
        best = replace(folded, gauges=best.gauges)
    return folded, best


def folded_bound(parts: Composition, ties: Ties | None = None, *, rough: bool = False) -> Balanced:
    """Return the bound with linear maps folded into the normalizers beside them; nothing is optimised."""
    plain = plain_bound(parts)
    if not math.isfinite(plain.total):
        return plain
    weighting = Weighting(parts, ties or tie_weights(parts), rough)
    folded = _certified(weighting, fold_weights(weighting))
    return folded if folded.total <= plain.total else plain


def balanced_bound(
    parts: Composition, folded: Balanced, given: Tensor | None = None, ties: Ties | None = None
) -> Balanced:
    """Return the smallest bound found over the channel weights, proved; never above the folded one."""
    if not math.isfinite(folded.total):
        return folded
    weighting = Weighting(parts, ties or tie_weights(parts))
    fitting = given is not None and len(given) == weighting.free  # others are of another graph, or another version
    theta = given if fitting else _chosen(weighting, folded)
    if theta is None or not is_moderate(theta):
        return replace(folded, gauges=tuple(sorted(weighting.ties.named)))
    found = _certified(weighting, theta)
    if bool(found.log_upper.isnan().any()):  # 0·∞ somewhere: nothing is proved
        return folded
    best = found if found.total < folded.total else folded
    lowest = torch.minimum(found.log_upper, folded.log_upper)
    return Balanced(lowest, best.gains, found.gauges, best.weights, found.table, theta)


def _chosen(weighting: Weighting, folded: Balanced) -> Tensor | None:
    """The free log weights that a descent finds; None where they do not promise enough for a proof."""
    objective = Objective(weighting)
    theta = descend_weights(objective, fold_weights(weighting))
    return theta if is_worth_proving(objective, theta, folded.log_upper) else None


def is_moderate(theta: Tensor) -> bool:
    """Whether no weight is so large or small that products with it could leave float64, where a norm might vanish."""
    return theta.numel() == 0 or bool(theta.abs().max() <= math.log(SQUARED[1]))


def plain_bound(parts: Composition) -> Balanced:
    """Return the bound as the rules' gains compose, without any weights."""
    table = {
        (out.index, k): g.log
        for step in parts.trace.steps
        for out in step.outputs
        for k, g in enumerate(parts.transfers[out.index].gains)
    }
    return Balanced(parts.log_upper, {key: float(log.max()) for key, log in table.items()}, table=table)


def _certified(weighting: Weighting, theta: Tensor) -> Balanced:
    """Prove the bound for the weights ``theta``."""
    gains = weighting.gains(theta)
    largest = {key: float(g.max()) for key, g in gains.items()}
    logs = weighting.log_weights(theta)
    weights = {index: (channels.axis, logs[index]) for index, channels in weighting.ties.values.items()}
    return Balanced(
        weighted_slopes(weighting.parts, gains), largest, tuple(sorted(weighting.ties.named)), weights, gains
    )


def fold_weights(weighting: Weighting) -> Tensor:
    """Return the weights that fold normalizers: 1 after one with fixed scales, 1/γ after LayerNorm and the like."""
    theta = torch.zeros(weighting.free, dtype=torch.float64)
    chosen = torch.zeros(weighting.free, dtype=torch.bool)
    for step in weighting.parts.trace.steps:
        for out in step.outputs:
            channels = weighting.ties.values.get(out.index)
            forms = [g.form for g in weighting.parts.transfers[out.index].gains]
            if channels is None or len(forms) != 1:
                continue
            form: Any = forms[0]
            if isinstance(form, Diagonal) and form.scale is not None and form.scale.numel() > 1:
                _aim(weighting, channels, torch.zeros_like(channels.offset), theta, chosen)
            elif isinstance(form, NormalizerMap) and form.gamma is not None and bool((form.gamma > 0).any()):
                _aim(weighting, channels, -log_scale(form.gamma), theta, chosen)
                weighting.ties.named.add("gains of normalizers folded into the linear map behind them")
    return theta


def _aim(weighting: Weighting, channels: ChannelWeights, goal: Tensor, theta: Tensor, chosen: Tensor) -> None:
    """Set the free weights under ``channels`` so that its log weights equal ``goal``, where they are not chosen yet."""
    slot, shift = weighting.slots(channels)
    for s, value in zip(slot.tolist(), (goal - shift).tolist(), strict=True):
        if s >= 0 and not chosen[s]:
            theta[s], chosen[s] = value, True
