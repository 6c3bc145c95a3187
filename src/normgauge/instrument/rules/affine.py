"""Dense linear maps: a matrix along the last axis, fixed on one side."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.interval import LogInterval
from normgauge.core.rounding import house_up
from normgauge.instrument.rules.flow import (
    CHANCE,
    INF,
    Context,
    Flow,
    Gain,
    Matrix,
    SamplesMixed,
    Transfer,
    endless,
    log_vector,
)
from normgauge.instrument.rules.registry import Family
from normgauge.instrument.rules.worked import (
    at_sample,
    equal,
    largest_term,
    number,
    result,
    shape_words,
    within,
    worst_sample,
)
from normgauge.instrument.spectral.dense import dense_norm, to_double
from normgauge.instrument.trace.step import Step, Value

rules = Family("affine")


def matrix_transfer(weight: Tensor, bias: Tensor | None, flow: Flow, ctx: Context) -> Transfer:
    """The transfer of rows ↦ rows·weightᵀ + bias."""
    norm: LogInterval = ctx.once(("dense", id(weight)), weight, lambda: ctx.accepted(dense_norm(weight, chance=CHANCE)))
    real = not weight.is_complex()
    gain = Gain(ctx.full(norm.hi), norm.lo, Matrix(weight) if real else None)
    stretch = math.exp(norm.hi) if norm.hi < 700 else INF
    shift = 0.0 if bias is None else float(torch.linalg.vector_norm(to_double(bias)))
    return Transfer(
        (gain,),
        row=stretch * flow.row,
        norm=stretch * flow.norm + house_up(shift),
        weight=weight if real else None,
        spectral=norm if real else None,
        worked=within(f"‖W‖₂, W {shape_words(weight.shape)}", norm),
    )


@rules.add(nn.Linear, F.linear, claim="T.L5", complex=True)
def linear(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Linear map of the last axis.

    y = W x + b,  ‖J‖ = ‖W‖₂ (the largest singular value)

    Holds:  everywhere, exactly; the bias does not matter.
    Source: definition of the spectral norm.

    Raises:
        SamplesMixed: when the samples lie on the last axis.
    """
    weight, bias = step.option(1, "weight"), step.option(2, "bias")
    if isinstance(weight, Value) or isinstance(bias, Value) or not isinstance(step.get(0, "input"), Value):
        return ctx.unknown(incoming, "a weight that depends on the input")
    ctx.keep_apart(incoming[0], step.inputs[0].tensor, (-1,), step.kind)
    if weight.ndim == 1:
        weight = weight[None]
    return matrix_transfer(weight, bias, incoming[0], ctx)


@rules.add(nn.Bilinear, F.bilinear, claim="X.bilinear")
def bilinear(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Bilinear map of two branches.

    y_k = aᵀ W_k b + c_k,  L ≤ ‖W‖·(sup‖b‖·L_a + sup‖a‖·L_b),  ‖W‖ ≤ the smaller norm of its two unfoldings

    Holds:  where both branches are bounded (rows of length sup‖·‖); not Lipschitz otherwise.
    Source: product rule; ‖W(·, b)‖ ≤ ‖W_(1)‖‖b‖.

    Raises:
        SamplesMixed: when the samples lie on the last axis, or on different axes of the two branches.
    """
    weight = step.option(2, "weight")
    first, second = step.get(0, "input1"), step.get(1, "input2")
    for value, flow in zip(step.inputs, incoming, strict=True):
        ctx.keep_apart(flow, value.tensor, (-1,), step.kind)
    if ctx.samples > 1 and len({flow.axis for flow in incoming}) > 1:
        raise SamplesMixed("branches whose samples lie on different axes")
    # contraction with b leaves a map of a: ‖Σ_j W_kij b_j‖ ≤ ‖W unfolded as (k·i) × j‖‖b‖, and the same for a
    by_second = dense_norm(weight.reshape(-1, weight.shape[2])).log.hi
    by_first = dense_norm(weight.transpose(1, 2).reshape(-1, weight.shape[1])).log.hi
    log_w = min(by_first, by_second)

    def length(operand: Any, flow: Flow | None) -> Tensor:
        if flow is not None:
            return flow.norm
        return ctx.full(float(torch.linalg.vector_norm(operand.double(), dim=-1).max()))

    flows = iter(incoming)
    a, b = ((operand, next(flows) if isinstance(operand, Value) else None) for operand in (first, second))
    pairs = (("sup‖b‖", a, b), ("sup‖a‖", b, a))
    lengths = {name: length(*other) for name, own, other in pairs if own[1] is not None}
    gains = tuple(Gain(log_vector(size) + log_w) for size in lengths.values())
    logs = [g.log for g in gains]
    put_in = largest_term(number(float(size[worst_sample(*logs)])) for size in lengths.values())
    text = f"{at_sample(*logs)}‖W‖·{largest_term(lengths)} = {result(log_w, 6)}·{put_in}"
    found = Transfer(gains, weight=weight, worked=equal(text, *logs))
    return endless(found, "a product of two branches for which no bound is known in this scope", proved=False)
