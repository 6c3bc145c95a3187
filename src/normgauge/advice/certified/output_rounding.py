"""How far the float64 output of a traced network may lie from the exact one, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.bound import Scope
from normgauge.core.rounding import LOOSE, TINY, dot_error, house_up, size_up
from normgauge.instrument.compose import Composition
from normgauge.instrument.rules.flow import INF, Kernel, Matrix, apply_gain
from normgauge.instrument.rules.normalizer import known_normalizer
from normgauge.instrument.session import Session
from normgauge.instrument.slopes import noise_of_output
from normgauge.instrument.spectral.dense import to_double
from normgauge.instrument.trace.step import Step, Value

BALLS = (1e-6, 1e-3, 1.0)  # relative to the input: how far rounding may lead, tried one after the other
WELL = 0.01  # of a variance: what its own rounding may be for a normalizer's error to be of first order
EXACT = frozenset({
    "shape.copy", "activation.clamp", "activation.maximum", "activation.modulus", "combine.reduce_extreme",
    "pooling.max_pool", "pooling.adaptive_max_pool", "stochastic.dropout",
})  # fmt: skip
ENTRYWISE = frozenset({"activation.activation", "combine.add", "combine.multiply", "combine.divide"})
AVERAGES = frozenset({"combine.reduce_linear", "pooling.avg_pool"})
OWN_SPREAD = ("layer", "rms", "group", "instance")


@dataclass(frozen=True, slots=True)
class OutputRounding:
    """What float64 may have done to the output.

    Attributes:
        proved: ‖computed − exact‖ at most, one entry a sample; inf where it is not enclosed.
        measured: what moves of a few units in the last place do to the whole output, four times over; no proof.
    """

    proved: Tensor
    measured: float


def output_rounding(session: Session) -> OutputRounding:
    """Enclose the rounding of the output where every step's own is known, and measure it in any case."""
    scale = 1.0 + float(torch.linalg.vector_norm(session.trace.sources[0].tensor.detach().flatten(1), dim=1).max())
    proved = torch.full((session.samples,), INF, dtype=torch.float64)
    if session.exact and not any(step.trouble for step in session.trace.steps):
        for ball in BALLS:
            if not bool(proved.isfinite().all()):
                proved = torch.minimum(proved, carried_error(session.composed(Scope("ball", ball * scale))))
    return OutputRounding(proved, noise_of_output(session))


def carried_error(parts: Composition) -> Tensor:
    """Bound ‖ĥ − h‖ for the output, ĥ the value computed and h the exact one, along the steps.

    ‖f̂(ĥ) − f(h)‖ ≤ ‖f̂(ĥ) − f(ĥ)‖ + ‖f(ĥ) − f(h)‖ ≤ own_error + gain·‖ĥ − h‖

    Holds:  while ‖ĥ − h‖ stays inside the radius that the gain was proved for, around ĥ itself, which is checked at
            every value; where it does not, or a step's own error is not known, the bound is infinite.
    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.1 and (3.5).
    """
    zero = parts.ctx.full(0.0)
    error = {source.index: zero for source in parts.trace.sources}
    for step in parts.trace.steps:
        own = own_error(step, parts)
        for out in step.outputs:
            gains = parts.transfers[out.index].gains
            came = [apply_gain(g.log, error[v.index]) for g, v in zip(gains, step.inputs, strict=True)]
            total = size_up(torch.stack([own, *came]).sum(0))
            flow = parts.flows[out.index]
            error[out.index] = torch.where(total <= torch.minimum(flow.radius, flow.row), total, INF)
    return error[parts.trace.end.index].nan_to_num(nan=INF, posinf=INF)


def own_error(step: Step, parts: Composition) -> Tensor:
    """Bound on what one step loses by rounding on its computed input, as a length, one entry a sample."""
    rule = parts.rules[step.index]
    name = "" if rule is None else rule.id
    values = [v.tensor for v in (*step.inputs, *step.outputs)]
    if any(t.dtype != torch.float64 for t in values) or (len(step.outputs) != 1 and name not in EXACT):
        return parts.ctx.full(INF)
    for names, bound in OWN_ERRORS:
        if name in names:
            return bound(step, parts) if name in EXACT else house_up(bound(step, parts)) + TINY
    return parts.ctx.full(INF)


def lengths(value: Value, parts: Composition) -> Tensor:
    """‖value‖, one entry a sample."""
    rows = parts.ctx.rows(value.tensor, parts.flows[value.index].axis)
    return torch.linalg.vector_norm(rows.flatten(1), dim=1).cpu()


def _nothing(step: Step, parts: Composition) -> Tensor:
    return parts.ctx.full(0.0)


def _entrywise(step: Step, parts: Composition) -> Tensor:
    """A few operations an entry: 36 u of all that enters and leaves, twice: a constant is at most their sum."""
    gains = parts.transfers[step.outputs[0].index].gains
    came = [apply_gain(g.log.clamp_min(0.0), lengths(v, parts)) for g, v in zip(gains, step.inputs, strict=True)]
    return 2 * LOOSE * torch.stack([*came, lengths(step.outputs[0], parts)]).sum(0)


def _average(step: Step, parts: Composition) -> Tensor:
    """γ_n ‖A‖ ‖x‖, as |A| = A for sums and means."""
    gain = parts.transfers[step.outputs[0].index].gains[0].log
    terms = step.inputs[0].tensor.numel() // parts.ctx.samples
    return dot_error(terms) * apply_gain(gain, lengths(step.inputs[0], parts))


def _dot_products(step: Step, parts: Composition) -> Tensor:
    """γ_n (‖|W|‖ ‖x‖ + ‖b‖) with ‖b‖ ≤ ‖y‖ + ‖|W|‖ ‖x‖ and ‖|W|‖ ≤ √(‖W‖₁ ‖W‖_∞), for a matrix also ‖W‖_F."""
    gains = parts.transfers[step.outputs[0].index].gains
    form = gains[0].form
    if len(gains) != 1 or not isinstance(form, Matrix | Kernel):
        return parts.ctx.full(INF)
    size = to_double(form.weight).abs()
    turned = size.transpose(0, 1)
    absolute = math.sqrt(float(size.flatten(1).sum(1).max() * turned.flatten(1).sum(1).max()))
    terms = size[0].numel()
    if isinstance(form, Matrix):
        absolute = min(absolute, float(torch.linalg.vector_norm(size)))
    elif form.spec.padding_mode != "zeros":  # others repeat entries
        return parts.ctx.full(INF)
    elif form.spec.transposed:
        terms = turned[0].numel()
    return dot_error(terms) * (2 * absolute * lengths(step.inputs[0], parts) + lengths(step.outputs[0], parts))


def _normalizer(step: Step, parts: Composition) -> Tensor:
    """With stored statistics a few operations on |a|(|x| + |μ|) + |β|; with its own 16 γ_n κ² √N max|γ|.

    κ² = mean x²/(σ² + ε) ≥ 1 is what centring and the variance may lose: ‖d̂ − d‖ ≤ γ_n‖x‖ and |σ̂² − σ²| ≤ 4γ_n mean x².
    """
    norm = known_normalizer(step, parts.ctx.dtype)
    data, out = step.inputs[0].tensor.detach(), lengths(step.outputs[0], parts)
    gain = parts.transfers[step.outputs[0].index].gains[0].log
    each = data.numel() // parts.ctx.samples
    if norm.stored is not None:
        mean = math.sqrt(each) * float(to_double(norm.stored[0]).abs().max())
        return 2 * LOOSE * (2 * apply_gain(gain, lengths(step.inputs[0], parts) + mean) + out)
    if norm.kind not in OWN_SPREAD or norm.where != "inside":
        return parts.ctx.full(INF)
    groups = norm.grouped(data)
    spread = (groups.var(2, unbiased=False) if norm.centred else groups.square().mean(2)) + norm.eps
    ratio = max(1.0, float((groups.square().mean(2) / spread).max()))
    lost = 16 * dot_error(groups.shape[2]) * ratio
    if not lost <= WELL:
        return parts.ctx.full(INF)
    top = 1.0 if norm.gamma is None else float(to_double(norm.gamma).abs().max())
    return (lost + LOOSE) * math.sqrt(each) * top + 2 * LOOSE * out


OWN_ERRORS: tuple[tuple[frozenset[str], Callable[[Step, Composition], Tensor]], ...] = (
    (EXACT, _nothing),
    (ENTRYWISE, _entrywise),
    (AVERAGES, _average),
    (frozenset({"affine.linear", "projection.matmul", "projection.add_product", "conv.convolution"}), _dot_products),
    (
        frozenset({
            "norm_batch.batch_norm", "norm_layer.layer_norm", "norm_layer.rms_norm", "norm_layer.group_norm",
            "norm_layer.instance_norm",
        }),
        _normalizer,
    ),
)  # fmt: skip
