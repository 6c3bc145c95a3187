"""Steps of a trace that are affine, as linear maps with their adjoints and what float64 loses in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.rounding import UNIT, dot_error, house_up
from normgauge.instrument.rules.combine import broadcast_copies
from normgauge.instrument.rules.flow import Kernel, Matrix, Transfer
from normgauge.instrument.rules.normalizer import known_normalizer
from normgauge.instrument.rules.shape import copy_labels, most_copies, rerun_step
from normgauge.instrument.rules.stochastic import drop_probability
from normgauge.instrument.spectral.conv_operator import apply_adjoint, apply_conv, conv_rounding
from normgauge.instrument.spectral.dense import to_double
from normgauge.instrument.trace.step import Step, Value

Push = Callable[[list[Tensor]], list[Tensor]]
Pull = Callable[[list[Tensor]], list[Tensor]]
FEW = 16 * UNIT
"""Relative error of a few operations on an entry."""


@dataclass(frozen=True, slots=True)
class LinearStep:
    """An affine step without its constant part.

    Attributes:
        step: where it was recorded.
        push: outputs from inputs.
        pull: the adjoint, inputs' cotangents from outputs'.
        errors: for each input, ‖fl(A x) − A x‖ ≤ error·‖x‖ in float64, for A and for its adjoint.
        work: multiplications of all samples.
    """

    step: Step
    push: Push
    pull: Pull
    errors: tuple[float, ...]
    work: float = 0.0


def linear_step(step: Step, transfer: Transfer, rule: str, dtype: torch.dtype) -> LinearStep | None:
    """The linear part of a step in a precision; None for a step that is not affine, or not known to be."""
    make = MAKERS.get(rule)
    return None if make is None else make(step, transfer, dtype)


def _gain(transfer: Transfer, position: int) -> float:
    return math.exp(float(transfer.gains[position].log.max()))


def _one(function: Callable[[Tensor], Tensor]) -> Push:
    return lambda tensors: [function(tensors[0])]


def _matrix(step: Step, transfer: Transfer, dtype: torch.dtype) -> LinearStep | None:
    form = transfer.gains[0].form
    if len(step.inputs) != 1 or not isinstance(form, Matrix) or step.option(1, "weight").ndim != 2:
        return None
    weight = to_double(form.weight).to(dtype)
    error = dot_error(max(weight.shape)) * house_up(float(weight.double().norm()))
    work = float(step.outputs[0].tensor.numel() * weight.shape[1])
    return LinearStep(step, _one(lambda x: F.linear(x, weight)), _one(lambda y: y @ weight), (error,), work)


def _convolution(step: Step, transfer: Transfer, dtype: torch.dtype) -> LinearStep | None:
    form = transfer.gains[0].form
    if len(step.inputs) != 1 or not isinstance(form, Kernel):
        return None
    weight, spec = to_double(form.weight).to(dtype), form.spec
    before, after = (v[0].tensor.shape for v in (step.inputs, step.outputs))

    def push(x: Tensor) -> Tensor:
        return apply_conv(weight, x.reshape(-1, *before[-1 - spec.axes :]), spec).reshape(after)

    def pull(y: Tensor) -> Tensor:
        return apply_adjoint(weight, y.reshape(-1, *after[-1 - spec.axes :]), spec).reshape(before)

    work = float(max(before.numel(), after.numel()) // max(form.channels()) * weight.numel())
    return LinearStep(step, _one(push), _one(pull), (house_up(conv_rounding(weight, spec)),), work)


def _stored_normalizer(step: Step, transfer: Transfer, dtype: torch.dtype) -> LinearStep | None:
    norm = known_normalizer(step, torch.float64)
    if norm.stored is None or len(step.inputs) != 1:
        return None
    scale = norm.spread_out(norm.affine()[0].to(dtype), step.inputs[0].tensor.ndim)
    multiply = _one(lambda x: x * scale)
    return LinearStep(step, multiply, multiply, (FEW * _gain(transfer, 0),))


def _sum(step: Step, transfer: Transfer, dtype: torch.dtype) -> LinearStep | None:
    """Sum or difference of values and constants; constants drop out."""
    operands = (step.args[0], step.get(1, "other"))
    alpha = float(step.kwargs.get("alpha", 1))
    factors = [alpha, 1.0] if step.kind == "rsub" else [1.0, alpha]
    if "sub" in step.kind:
        factors[0 if step.kind in ("__rsub__", "rsub") else 1] *= -1.0
    scales = [f for f, operand in zip(factors, operands, strict=True) if isinstance(operand, Value)]
    shape = step.outputs[0].tensor.shape
    shapes = [value.tensor.shape for value in step.inputs]

    def push(xs: list[Tensor]) -> list[Tensor]:
        first, *rest = (x if scale == 1.0 else scale * x for x, scale in zip(xs, scales, strict=True))
        for x in rest:
            first = first + x
        return [first if first.shape == shape else first.expand(shape)]

    def pull(ys: list[Tensor]) -> list[Tensor]:
        return [
            (ys[0] if scale == 1.0 else scale * ys[0]).sum_to_size(s) for s, scale in zip(shapes, scales, strict=True)
        ]

    copies = [broadcast_copies(s, shape) for s in shapes]
    errors = tuple((dot_error(n) + FEW) * _gain(transfer, k) for k, n in enumerate(copies))
    return LinearStep(step, push, pull, errors)


def _pulled(push: Push, shapes: Sequence[torch.Size], dtype: torch.dtype) -> Pull:
    """The adjoint of a linear map by reverse mode."""

    def pull(ys: list[Tensor]) -> list[Tensor]:
        leaves = [torch.zeros(shape, dtype=dtype, device=ys[0].device, requires_grad=True) for shape in shapes]
        with torch.enable_grad():
            height = torch.stack([(out * y).sum() for out, y in zip(push(leaves), ys, strict=True)]).sum()
        found = torch.autograd.grad(height, leaves, allow_unused=True)
        return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]

    return pull


def _copied(step: Step, transfer: Transfer, dtype: torch.dtype) -> LinearStep | None:
    """Copies of entries, whichever: the step itself with zeros for its constants."""
    positions = [out.position for out in step.outputs]

    def push(xs: list[Tensor]) -> list[Tensor]:
        results = rerun_step(step, xs)
        return [results[p if len(results) > 1 else 0].to(dtype) for p in positions]

    copies = max(most_copies(label) for labels in copy_labels(step) for label in labels)
    error = dot_error(max(copies, 1)) * math.sqrt(copies * len(positions))
    pull = _pulled(push, [value.tensor.shape for value in step.inputs], dtype)
    return LinearStep(step, push, pull, (error,) * len(step.inputs))


def _average(step: Step, transfer: Transfer, dtype: torch.dtype) -> LinearStep | None:
    """Means, sums and average pooling: no entry of the matrix is negative, so that |A| = A."""
    if len(step.inputs) != 1 or step.inputs[0].tensor.is_complex():
        return None
    shapes = [v[0].tensor.shape for v in (step.inputs, step.outputs)]
    terms = max(math.prod(shape) for shape in shapes) if len(shapes[0]) < 3 else max(map(_places, shapes))

    def push(xs: list[Tensor]) -> list[Tensor]:
        return [rerun_step(step, xs)[0].to(dtype)]

    pull = _pulled(push, [shapes[0]], dtype)
    return LinearStep(step, push, pull, ((dot_error(terms) + FEW) * _gain(transfer, 0),))


def _places(shape: torch.Size) -> int:
    """Most entries of a tensor that one entry may be averaged over, or spread to: all but the samples."""
    return math.prod(shape[1:])


def _scaled(step: Step, transfer: Transfer, dtype: torch.dtype) -> LinearStep | None:
    """A value times a constant, or over one."""
    first, second = step.args[0], step.get(1, "other")
    turned = step.kind in ("__rtruediv__", "__rdiv__")
    numerator, other = (second, first) if turned else (first, second)
    if len(step.inputs) != 1 or ("div" in step.kind and not isinstance(numerator, Value)):
        return None
    constant = other if isinstance(numerator, Value) else numerator
    if isinstance(constant, complex) or (isinstance(constant, Tensor) and constant.is_complex()):
        return None
    scale = torch.as_tensor(constant, dtype=torch.float64, device=step.inputs[0].tensor.device)
    scale = (1 / scale if "div" in step.kind else scale).to(dtype)
    shapes = [v[0].tensor.shape for v in (step.inputs, step.outputs)]
    error = (dot_error(broadcast_copies(*shapes)) + FEW) * _gain(transfer, 0)
    push = _one(lambda x: (x * scale).expand(shapes[1]))
    return LinearStep(step, push, _one(lambda y: (y * scale).sum_to_size(shapes[0])), (error,))


def _negated(step: Step, transfer: Transfer, dtype: torch.dtype) -> LinearStep | None:
    if "neg" not in step.kind:
        return None
    return LinearStep(step, _one(torch.neg), _one(torch.neg), (0.0,))


def _kept(step: Step, transfer: Transfer, dtype: torch.dtype) -> LinearStep | None:
    """Dropout that is off."""
    same = _one(lambda x: x)
    return None if drop_probability(step) else LinearStep(step, same, same, (0.0,))


MAKERS: dict[str, Callable[[Step, Transfer, torch.dtype], LinearStep | None]] = {
    "affine.linear": _matrix,
    "conv.convolution": _convolution,
    "norm_batch.batch_norm": _stored_normalizer,
    "combine.add": _sum,
    "combine.multiply": _scaled,
    "combine.divide": _scaled,
    "combine.reduce_linear": _average,
    "pooling.avg_pool": _average,
    "shape.copy": _copied,
    "activation.modulus": _negated,
    "stochastic.dropout": _kept,
    "stochastic.alpha_dropout": _kept,
}
