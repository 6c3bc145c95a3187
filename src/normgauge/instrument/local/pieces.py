"""The linear maps of a network's steps, applied to many tangents at once, and what rounding adds to each.

A tangent is a direction in which a value moves. Tangents of a value of shape s are a tensor (count, *s).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.rounding import dot_error, house_up
from normgauge.core.user_code import one_line
from normgauge.instrument.local.windows import windowed_convolution
from normgauge.instrument.rules.normalizer import of_step
from normgauge.instrument.trace.again import run_step
from normgauge.instrument.trace.step import Step, Value

Push = Callable[[Sequence[Tensor]], Tensor]
ADJOINT = 1e-9  # a part: what two inner products may differ by
CHUNK = 2**24  # entries pushed through a step at once
POSITIVE = ("combine.add", "combine.reduce_linear", "shape.copy", "pooling.avg_pool", "stochastic.dropout")
CONSTANT_FACTOR = ("combine.multiply", "combine.divide", "projection.matmul", "projection.einsum")
"""Linear where all operands but one are constant."""

CONVOLUTIONS = {
    name: getattr(F, name)
    for name in ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
}


class NotCarried(Exception):
    """Why a Jacobian is not followed here, in words without the step's name; the bounds by rules still hold."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One step of the network as a linear map A of the tangents of its inputs.

    Attributes:
        step: where it comes from.
        inputs: indices of the values it reads.
        push: applies A.
        gains: ‖A‖ for each input, from above.
        slip: ‖fl(A v) − A v‖ ≤ slip·‖v‖, all inputs together, also for the transposed map.
        blur: how far the step's value, computed from the values it read, is from the exact one: an ℓ2 length.
        faint: norm of what open units whose tangents vanish up to rounding may add to the output's tangents.
    """

    step: Step
    inputs: tuple[int, ...]
    push: Push
    gains: tuple[float, ...]
    slip: float
    blur: float
    faint: float = 0.0

    @property
    def output(self) -> int:
        """Index of the value it makes."""
        return self.step.outputs[0].index


def linear_piece(step: Step, rule: str, gains: tuple[float, ...], native: torch.dtype) -> Piece | None:
    """The map of a step that is affine in what it reads; None for any other step."""
    if step.trouble or step.writes or step.random is not None or len(step.outputs) != 1:
        return None
    if not all(v.tensor.dtype == torch.float64 for v in (*step.inputs, *step.outputs)):
        return None
    made = _weighted(step, rule) or _scaled(step, rule, native) or _plain(step, rule, gains)
    if made is None:
        return None
    push, size, terms, offset = made
    reach = sum(float(torch.linalg.vector_norm(v.tensor)) for v in step.inputs)
    relative = dot_error(terms)
    blur = relative * (size * reach + 2 * offset)
    return Piece(step, tuple(v.index for v in step.inputs), push, gains, house_up(relative * size), house_up(blur))


def _weighted(step: Step, rule: str) -> tuple[Push, float, int, float] | None:
    """Push, ‖|A|‖, terms of a sum, and the length of what is added, for dense maps and convolutions."""
    if rule not in ("affine.linear", "conv.convolution") or len(step.inputs) != 1:
        return None
    weight, bias = step.option(1, "weight"), step.option(2, "bias")
    if not isinstance(weight, Tensor) or isinstance(bias, Value) or weight.dtype != torch.float64:
        return None
    weight = weight.detach()
    copies = step.outputs[0].tensor.numel() / (1 if bias is None else bias.numel())
    offset = 0.0 if bias is None else float(bias.detach().norm()) * math.sqrt(copies)
    if rule == "affine.linear":
        table = weight.abs().reshape(-1, weight.shape[-1])
        size = math.sqrt(float(table.sum(0).max()) * float(table.sum(1).max()))
        return (lambda v: F.linear(v[0], weight)), size, max(table.shape), offset
    call, options = _convolution(step)
    table = weight.abs().flatten(2).sum(2)
    by_group = table.reshape(options["groups"], -1, table.shape[1]).sum(1)
    size = math.sqrt(float(table.sum(1).max()) * float(by_group.max()))
    terms = weight.numel() // min(weight.shape[0], weight.shape[1]) if weight.numel() else 1
    windowed = _windowed(call, weight, options)
    apply = windowed or (lambda x: call(x, weight, None, **options))
    return (lambda v: _by_image(v[0], apply, whole=windowed is not None)), size, terms, offset


def _windowed(
    call: Callable[..., Tensor], weight: Tensor, options: dict[str, Any]
) -> Callable[[Tensor], Tensor] | None:
    """The convolution of images over windows; None for another one, or padding that torch works out."""
    if call is not F.conv2d or isinstance(options["padding"], str):
        return None
    pairs = {key: _pair(options[key]) for key in ("stride", "padding", "dilation")}

    def apply(x: Tensor) -> Tensor:
        if x.requires_grad:  # windows are of what is known, not of what is asked
            return call(x, weight, None, **options)
        return windowed_convolution(x, weight, groups=options["groups"], **pairs)

    return apply


def _pair(setting: int | Sequence[int]) -> Sequence[int]:
    pair = (setting,) if isinstance(setting, int) else tuple(setting)
    return pair * 2 if len(pair) == 1 else pair


def _convolution(step: Step) -> tuple[Callable[..., Tensor], dict[str, Any]]:
    """Torch's function for a convolution, and its settings.

    Raises:
        NotCarried: for padding other than zeros, and for settings that torch derives from the input.
    """
    name = step.kind if step.module is None else f"conv{'_transpose' * ('Transpose' in step.kind)}{step.kind[-2:]}"
    module, transposed = step.module, "transpose" in name
    if module is not None and module.padding_mode != "zeros":
        raise NotCarried("a convolution that pads with something else than zeros")
    if transposed and (module is None or step.args[1:] or step.kwargs):
        raise NotCarried("a transposed convolution called as a function")
    if transposed:
        names = ("stride", "padding", "output_padding", "groups", "dilation")
        options = {key: getattr(module, key) for key in names}
    else:
        defaults = {"stride": (3, 1), "padding": (4, 0), "dilation": (5, 1), "groups": (6, 1)}
        options = {key: step.option(place, key, value) for key, (place, value) in defaults.items()}
    return CONVOLUTIONS[name], options


def _by_image(tangents: Tensor, apply: Callable[[Tensor], Tensor], whole: bool = False) -> Tensor:
    """Apply a layer to every tangent of every image: (count, images, channels, …), in chunks or as a whole."""
    flat = tangents.flatten(0, 1) if tangents.ndim > 2 else tangents
    size = max(1, CHUNK // max(1, flat[0].numel()))
    out = apply(flat) if whole or len(flat) <= size else torch.cat([apply(part) for part in flat.split(size)])
    return out.reshape(*tangents.shape[:2], *out.shape[1:]) if tangents.ndim > 2 else out


def _scaled(step: Step, rule: str, native: torch.dtype) -> tuple[Push, float, int, float] | None:
    """The same for a normalizer with stored statistics, which scales every channel."""
    if rule not in ("norm_batch.batch_norm", "norm_layer.instance_norm", "recognise.written_out_norm"):
        return None
    norm = of_step(step, native)
    if norm is None or norm.stored is None:
        return None
    data = step.inputs[0].tensor
    scale, offset = norm.affine()
    factor = norm.spread_out(scale.to(data), data.ndim)
    shift = float(offset.norm()) * math.sqrt(data.numel() / offset.numel())
    mean = float(norm.stored[0].detach().double().norm()) * math.sqrt(data.numel() / offset.numel())
    largest = float(scale.abs().max())
    return (lambda v: v[0] * factor), largest, 8, shift + 2 * largest * mean


def _plain(step: Step, rule: str, gains: tuple[float, ...]) -> tuple[Push, float, int, float] | None:
    """The same for sums, copies, averages and products with a constant: run as they are, less what they give for 0.

    A sum runs without its constants, beside which a small tangent would be lost. In all others each entry is either one
    of the tangents' or a constant, so that what is taken off leaves the rest as it is.

    Raises:
        NotCarried: where autograd or vmap does not follow the step.
    """
    if rule not in POSITIVE and not (rule in CONSTANT_FACTOR and len(step.inputs) == 1):
        return None
    if rule == "combine.divide" and not isinstance(step.args[0], Value):
        return None
    if rule == "stochastic.dropout" and step.module is not None and step.module.training:
        return None
    places = {v.index: k for k, v in enumerate(step.inputs)}

    with torch.no_grad():
        nothing = run_step(step, lambda value: torch.zeros_like(value.tensor))[0]
    still = rule == "combine.add" or not bool(nothing.any())
    moving = _without_constants(step) if rule == "combine.add" else step

    def run(tangents: Sequence[Tensor]) -> Tensor:
        return run_step(moving, lambda value: tangents[places[value.index]])[0]

    def push(tangents: Sequence[Tensor]) -> Tensor:
        moved = torch.func.vmap(run)(list(tangents))
        return moved if still else moved - nothing

    try:
        _check_adjoint(step, push)
    except RuntimeError as error:  # what vmap does not run
        raise NotCarried(one_line(error)) from error
    numel = max(v.tensor.numel() for v in step.inputs)
    total = sum(gains)
    if rule == "shape.copy":
        return push, total, 1, float(nothing.norm())
    wide = 1.0 if rule in POSITIVE else math.sqrt(step.outputs[0].tensor.numel())
    terms = 2 if rule in ("combine.add", "combine.multiply", "combine.divide") else numel
    return push, total * wide, terms, float(nothing.norm())


def _without_constants(step: Step) -> Step:
    """A sum with zeros for the operands that are constants."""

    def cleared(operand: Any) -> Any:
        if isinstance(operand, Value):
            return operand
        return torch.zeros_like(operand) if isinstance(operand, Tensor) else 0.0

    args = (*(cleared(operand) for operand in step.args[:2]), *step.args[2:])
    return replace(step, args=args, kwargs={k: cleared(v) if k == "other" else v for k, v in step.kwargs.items()})


def _check_adjoint(step: Step, push: Push) -> None:
    """Check that autograd follows a step: ⟨A v, u⟩ = ⟨v, Aᵀu⟩ for random v and u, unless a branch is detached.

    Raises:
        NotCarried: where it does not.
    """
    generator = torch.Generator().manual_seed(3)
    shapes = {v.index: v.tensor.shape for v in step.inputs}
    with torch.enable_grad():
        given = {
            index: torch.randn(1, *shape, generator=generator, dtype=torch.float64).requires_grad_(True)
            for index, shape in shapes.items()
        }
        out = push([given[v.index] for v in step.inputs])
        other = torch.randn(out.shape, generator=generator, dtype=torch.float64)
        height = (out * other).sum()
    if not height.requires_grad:
        raise NotCarried("autograd does not follow it")
    pulled = torch.autograd.grad(height, list(given.values()), allow_unused=True)
    back = sum(float((p * v).detach().sum()) for p, v in zip(pulled, given.values(), strict=True) if p is not None)
    size = float(out.detach().norm()) * float(other.norm())
    if abs(back - float(height.detach())) > ADJOINT * size:
        raise NotCarried("autograd does not follow all of it")
