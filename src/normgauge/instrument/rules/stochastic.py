"""The dropout family: the identity in eval mode, a random diagonal in train mode."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from normgauge.core.rounding import HOUSE, size_up
from normgauge.instrument.rules.flow import INF, Context, Diagonal, Flow, Gain, Transfer
from normgauge.instrument.rules.registry import Family
from normgauge.instrument.rules.worked import equal, number
from normgauge.instrument.trace.step import Step

rules = Family("stochastic")

EVERY = "the bound holds for every mask that can be drawn"
MASK = "this layer's gain holds for every mask; ranges of what lies behind it for the mask drawn in this run"
SELU_ALPHA = 1.7580993408473766  # torch's own constant: a dropped entry becomes −SELU_ALPHA before rescaling


def drop_probability(step: Step) -> float:
    """The probability in force: 0 in eval mode."""
    module: Any = step.module
    if module is not None:
        return float(module.p) if module.training else 0.0
    default = "alpha" not in step.kind  # F.alpha_dropout is off unless told, F.dropout on
    training = step.get(2, "training", step.kwargs.get("train", default))
    return float(step.get(1, "p", 0.5)) if training else 0.0


def without_chance(p: float, flow: Flow, ctx: Context) -> Transfer | None:
    """The transfer where nothing or everything is dropped; None where chance decides.

    p = 0 is the identity, p = 1 gives 0.
    """
    zero = ctx.full(0.0)
    if p == 1:
        gain = Gain(ctx.full(-INF), form=Diagonal())
        worked = equal("p = 1, everything is dropped", gain.log)
        return Transfer((gain,), radius=zero, row=zero, norm=zero, low=zero, high=zero, worked=worked)
    if p:
        return None
    gain = Gain(zero, 0.0, Diagonal())
    worked = equal("nothing is dropped: the identity", gain.log)
    return Transfer((gain,), row=flow.row, norm=flow.norm, low=flow.low, high=flow.high, neutral=True, worked=worked)


def mask_note(ctx: Context) -> str:
    """For which masks a bound holds: around a point, layers behind this one are measured at the output of one mask."""
    return EVERY if ctx.scope.kind == "global" else MASK


@rules.add(
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, F.dropout, F.dropout1d, F.dropout2d, F.dropout3d,
    torch.dropout, torch.dropout_, torch.feature_dropout, torch.feature_dropout_,
    claim="X.dropout",
)  # fmt: skip
def dropout(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Dropout of entries or of channels.

    eval: J = I;  train: J = diag(mask)/(1−p),  ‖J‖ ≤ 1/(1−p), and 0 for p = 1

    Holds:  everywhere, for every mask; attained as soon as one entry is kept. Local bounds of the layers behind it
        are anchored at the output of the mask drawn.
    Source: a mask has entries 0 and 1.
    """
    flow, p = incoming[0], drop_probability(step)
    if (sure := without_chance(p, flow, ctx)) is not None:
        return sure
    gain, up = Gain(ctx.log(1 / (1 - p)), form=Diagonal()), size_up(1 / (1 - p))
    low, high = (up * flow.low).clamp_max(0.0), (up * flow.high).clamp_min(0.0)
    worked = equal(f"1/(1−p) = 1/(1 − {number(p)})", gain.log)
    note = mask_note(ctx)
    return Transfer((gain,), row=up * flow.row, norm=up * flow.norm, low=low, high=high, note=note, worked=worked)


@rules.add(
    nn.AlphaDropout, nn.FeatureAlphaDropout, F.alpha_dropout, F.feature_alpha_dropout,
    torch.alpha_dropout, torch.alpha_dropout_, torch.feature_alpha_dropout, torch.feature_alpha_dropout_,
    claim="X.dropout",
)  # fmt: skip
def alpha_dropout(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Alpha dropout: dropped entries become −α, then an affine map restores mean and variance.

    eval: J = I;  train: J = a·diag(mask),  a = 1/√((1−p)(1 + p·α²)), α = 1.7580993

    Holds:  everywhere, for every mask; attained as soon as one entry is kept. 0 for p = 1.
    Source: Klambauer et al. 2017; torch's implementation.
    """
    flow, p = incoming[0], drop_probability(step)
    if (sure := without_chance(p, flow, ctx)) is not None:
        return sure
    a = 1 / math.sqrt((SELU_ALPHA**2 * p + 1) * (1 - p))
    kept, dropped = SELU_ALPHA * a * p, -SELU_ALPHA * a * (1 - p)
    slack = HOUSE * (1 + a * flow.peak)
    low, high = (a * flow.low + kept).clamp_max(dropped) - slack, (a * flow.high + kept).clamp_min(dropped) + slack
    gain = Gain(ctx.log(a), form=Diagonal())
    put_in = f"1/√((1 − {number(p)})·(1 + {number(p)}·{number(SELU_ALPHA)}²))"
    return Transfer(
        (gain,),
        row=size_up(a) * flow.row,
        low=low,
        high=high,
        note=mask_note(ctx),
        worked=equal(f"1/√((1−p)(1 + p·α²)) = {put_in}", gain.log),
    )
