"""Convolutions and transposed convolutions, as the linear maps they are at the traced input size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.rounding import TINY_SINGLE, house_up, log_root
from normgauge.instrument.rules.flow import INF, Context, Flow, Gain, Kernel, SamplesMixed, Transfer
from normgauge.instrument.rules.registry import Family
from normgauge.instrument.rules.worked import shape_words, within
from normgauge.instrument.spectral.circulant import ROUGHLY
from normgauge.instrument.spectral.conv import ConvSpec, apply_conv, conv_norm
from normgauge.instrument.spectral.conv_operator import per_axis
from normgauge.instrument.spectral.dense import to_double
from normgauge.instrument.spectral.enclosure import Enclosure
from normgauge.instrument.trace.step import Step, Value

rules = Family("conv")

BY = {
    "dense": "its dense matrix",
    "pointwise": "its matrix at a pixel",
    "twisted circulant": "a twisted circulant",
    ROUGHLY: "a twisted circulant, to a hundredth",
    "zero": "its zeros",
}  # methods of `spectral` in words, where they need others
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class ConvLayer(NamedTuple):
    """A convolution as called: everything but the input."""

    weight: Tensor
    bias: Tensor | None
    spec: ConvSpec


def padding_pairs(padding: Any, weight: Tensor, dilation: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """(left, right) per axis; 'same' puts the odd pixel on the right, as torch does."""
    axes = weight.ndim - 2
    if padding == "valid":
        return ((0, 0),) * axes
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        return tuple((t // 2, t - t // 2) for t in totals)
    return tuple((p, p) for p in per_axis(padding, axes))


def conv_layer(step: Step, data: Tensor) -> ConvLayer | str:
    """Weight, bias and layout of a convolution step, or why it is not a plain convolution."""
    module: Any = step.module
    transposed = isinstance(module, TRANSPOSED) or (module is None and "transpose" in step.kind)
    weight, bias, groups = step.option(1, "weight"), step.option(2, "bias"), step.option(6, "groups", 1)
    mode: Any = "zeros" if module is None else module.padding_mode
    if isinstance(weight, Value) or isinstance(bias, Value) or len(step.inputs) != 1:
        return "a kernel that depends on the input"
    axes = weight.ndim - 2
    stride = per_axis(step.option(3, "stride", 1), axes)
    dilation = per_axis(step.option(7 if transposed else 5, "dilation", 1), axes)
    pairs = padding_pairs(step.option(4, "padding", 0), weight, dilation)
    size = tuple(data.shape[-axes:])
    extra: tuple[int, ...] = ()
    if transposed:  # whatever output_size or output_padding said, the output shows
        out = step.outputs[0].tensor.shape[-axes:]
        plain = ConvSpec(size, stride, pairs, dilation, groups, True).output_size(weight)
        extra = tuple(o - p for o, p in zip(out, plain, strict=True))
    spec = ConvSpec(size, stride, pairs, dilation, groups, transposed, extra, mode)
    return ConvLayer(weight, bias, spec)


def layout(layer: ConvLayer) -> str:
    """Kernel, input size and every option that is not torch's default, in words."""
    spec = layer.spec
    words = [f"K {shape_words(layer.weight.shape)} on {shape_words(spec.input_size)}", f"stride {_brief(spec.stride)}"]
    words.append(f"padding {_brief([left if left == right else (left, right) for left, right in spec.padding])}")
    extras = (("dilation", _brief(spec.dilation), "1"), ("groups", str(spec.groups), "1"))
    words += [f"{name} {value}" for name, value, usual in extras if value != usual]
    words += ["transposed"] * spec.transposed + [spec.padding_mode] * (spec.padding_mode != "zeros")
    return ", ".join(words)


def _brief(values: Sequence[Any]) -> str:
    return str(values[0]) if len(set(values)) == 1 else "×".join(str(v) for v in values)


def computes(layer: ConvLayer, step: Step) -> bool:
    """Whether the layer, by its weight and layout alone, gives what the step gave on its first image.

    A subclass may keep ``forward`` and change what it calls, as weight standardization does: its weight says nothing.
    """
    axes = layer.spec.axes
    image, wanted = (v[0].tensor.detach().double() for v in (step.inputs, step.outputs))
    image, wanted = image.reshape(-1, *image.shape[-1 - axes :])[:1], wanted.reshape(-1, *wanted.shape[-1 - axes :])[:1]
    with torch.no_grad():
        got = apply_conv(layer.weight.detach().double(), image, layer.spec)
        if layer.bias is not None:
            got = got + layer.bias.detach().double().reshape(-1, *(1,) * axes)
    if got.shape != wanted.shape:
        return False
    return torch.allclose(got, wanted, rtol=0.0, atol=1e-4 * float(wanted.abs().max()) + TINY_SINGLE, equal_nan=True)


def log_windows(weight: Tensor, spec: ConvSpec) -> float:
    """½ log of the most kernel positions that meet one input pixel: ‖unfold(h)‖ ≤ √count·‖h‖."""
    windows = 1
    outputs = spec.output_size(weight)
    for axis, size in enumerate(spec.input_size):
        taps = torch.arange(weight.shape[axis + 2]) * spec.dilation[axis]
        stride, (left, right) = spec.stride[axis], spec.padding[axis]
        if spec.transposed:
            place = torch.arange(size)[:, None] * stride + taps - left
            count = ((place >= 0) & (place < outputs[axis])).sum(1)
        else:
            line = torch.arange(1, size + 1, dtype=torch.float64).reshape(1, 1, size)
            padded = F.pad(line, (left, right), mode="constant" if spec.padding_mode == "zeros" else spec.padding_mode)
            place = torch.arange(outputs[axis])[:, None] * stride + taps
            count = torch.bincount(padded.flatten().long()[place].flatten(), minlength=size + 1)[1:]
        windows *= max(int(count.max()), 1)
    return log_root(windows)


def conv_range(layer: ConvLayer, flow: Flow) -> tuple[Tensor, Tensor]:
    """Range of the output: bias ± (Σ|K| into a channel)·sup|x|; padding copies entries or puts zeros."""
    size = to_double(layer.weight).abs()
    if layer.spec.transposed:
        size = size.reshape(layer.spec.groups, -1, *size.shape[1:]).transpose(1, 2).flatten(0, 1)
    sums = size.flatten(1).sum(1).cpu()
    shift = torch.zeros_like(sums) if layer.bias is None else layer.bias.detach().double().cpu()
    span = house_up(sums * flow.peak[:, None]).nan_to_num(nan=INF, posinf=INF)
    return (shift - span).amin(1), (shift + span).amax(1)


@rules.add(
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
    torch.conv1d, torch.conv2d, torch.conv3d, torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d,
    claim="X.conv.zeropad",
)  # fmt: skip
def convolution(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Convolution or transposed convolution: any stride, padding, padding mode, dilation and groups.

    y = K * x + b,  ‖J‖ = operator norm at this input size, enclosed: twisted circulants with N ≥ n + 2p from above (the
    dense matrix for small layers), power iteration from below; the norm of the reshaped kernel is only a lower bound

    Holds:  everywhere, for inputs of the traced size; the bias does not matter.
    Source: a crop of circular convolutions (`instrument.spectral.symbol`); Sedghi, Gupta & Long, arXiv 1805.10408.

    Raises:
        SamplesMixed: when samples lie on an axis the layer mixes.
    """
    data = step.inputs[0].tensor
    layer = conv_layer(step, data)
    if isinstance(layer, str):
        return ctx.unknown(incoming, layer)
    channel = data.ndim - 1 - layer.spec.axes
    if ctx.samples > 1 and (channel == 0 or incoming[0].axis % data.ndim != 0):
        raise SamplesMixed(f"{step.kind} over the samples' axis")
    if not computes(layer, step):
        return ctx.unknown(incoming, f"{step.kind} does not compute the convolution by its weight")
    weight, spec = layer.weight, layer.spec
    found: Enclosure = ctx.once(("conv", id(weight), spec), weight, lambda: conv_norm(weight, spec, ctx.width))
    norm = found.log
    low, high = conv_range(layer, incoming[0])
    gain = Gain(ctx.full(norm.hi), norm.lo, Kernel(weight, spec, channel, found.method == ROUGHLY))
    return Transfer(
        (gain,),
        low=low,
        high=high,
        weight=weight,
        spectral=norm,
        input_gain=log_windows(weight, spec),
        worked=within(f"‖K‖, {layout(layer)}, by {BY.get(found.method, found.method)}", norm),
    )
