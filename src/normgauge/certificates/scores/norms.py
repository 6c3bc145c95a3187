"""Norms of the weights, one number a layer, and what the published scores make of them; the path norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from normgauge.certificates.scores.fold import model_trace
from normgauge.core.errors import InputError
from normgauge.instrument.rules.conv import conv_layer
from normgauge.instrument.spectral.conv import ConvSpec, conv_norm
from normgauge.instrument.trace.copied import copied
from normgauge.instrument.trace.step import Step

WIDTH = 1e-2  # relative width asked of a convolution's norm: a ranking needs no more
CONVOLUTIONS = {
    *("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
}
PASSED = {  # steps a path goes through
    *("Linear", "Conv1d", "Conv2d", "Conv3d", "linear", "conv1d", "conv2d", "conv3d"),
    *("ReLU", "relu", "relu_", "LeakyReLU", "leaky_relu", "Identity", "Dropout", "Dropout1d", "Dropout2d", "dropout"),
    *("Flatten", "flatten", "view", "reshape", "squeeze", "unsqueeze", "permute", "transpose", "contiguous"),
    *("MaxPool1d", "MaxPool2d", "MaxPool3d", "max_pool1d", "max_pool2d", "max_pool3d", "AdaptiveMaxPool2d"),
    *("AvgPool1d", "AvgPool2d", "AvgPool3d", "avg_pool2d", "AdaptiveAvgPool2d", "adaptive_avg_pool2d", "mean"),
    *(
        "__getitem__",
        "cat",
        "pad",
        "ConstantPad2d",
        "ZeroPad2d",
        "chunk",
        "split",
        "add",
        "iadd",
        "__add__",
        "__iadd__",
        "add_",
    ),
}


def weight_matrices(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter with two axes or more, in float64.

    Raises:
        InputError: for a network without such a parameter.
    """
    found = {name: p.detach().double().cpu() for name, p in model.named_parameters() if p.ndim >= 2}
    if not found:
        raise InputError("the network has no weight matrix")
    return found


def multiplications(say: Callable[[Tensor], Tensor], inputs: Tensor) -> float:
    """About how many multiplications a sample costs: each weight once for every place of its layer's output."""
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        say(inputs)
    return counter.get_total_flops() / 2 / len(inputs)


def weight_changes(weights: Mapping[str, Tensor], initial: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """W − W₀ of every matrix.

    Raises:
        InputError: when the two networks do not have the same matrices.
    """
    if {n: w.shape for n, w in weights.items()} != {n: w.shape for n, w in initial.items()}:
        raise InputError("the initial weights have other names or shapes than the weights; give those of this network")
    return {name: weight - initial[name] for name, weight in weights.items()}


def frobenius_squares(weights: Mapping[str, Tensor]) -> list[float]:
    """‖W‖_F² of each matrix."""
    return [float(w.square().sum()) for w in weights.values()]


def spectral_squares(weights: Mapping[str, Tensor]) -> list[float]:
    """‖W‖₂² of each as a matrix (out, rest): for a convolution not the norm of its map, but what was published."""
    return [_top(w.flatten(1)) for w in weights.values()]


def convolved_squares(model: nn.Module, inputs: Tensor, *, circular: bool) -> list[float]:
    """‖·‖₂² of each linear map and convolution as it runs, in the order it runs.

    Args:
        model: with BatchNorm folded.
        inputs: a batch, for the sizes of the images.
        circular: the published FFT formula, which wraps around and ignores strides; False is the layer as it is.

    Raises:
        InputError: when a matrix of the network is neither.
    """
    found, seen = [], set[tuple[int, torch.Size]]()
    for step in model_trace(model, inputs).steps:
        weight, spec = _map(step)
        if weight is None:
            continue
        seen.add((weight.data_ptr(), weight.shape))
        found.append(_square(weight.detach().double().cpu(), spec, circular))
    others = [name for name, p in model.named_parameters() if p.ndim >= 2 and (p.data_ptr(), p.shape) not in seen]
    if others or not found:
        raise InputError(
            f"{', '.join(others[:3]) or 'the network'}: neither a linear map nor a convolution of the input"
        )
    return found


def log_product(squares: Sequence[float]) -> float:
    """Σ log s, the logarithm of the product.

    Raises:
        InputError: when a layer is zero.
    """
    if min(squares) <= 0:
        raise InputError("a layer's weights are zero, and the logarithm of the product with them")
    return math.fsum(map(math.log, squares))


def log_sum(squares: Sequence[float], log_over: float = 0.0) -> float:
    """log(d (c Π s)^{1/d}): the published sum, of the layers after they are made equal; log_over is log c."""
    return math.log(len(squares)) + (log_product(squares) + log_over) / len(squares)


def ratio_sum(over: Sequence[float], under: Sequence[float]) -> float:
    """Σ aᵢ/bᵢ.

    Raises:
        InputError: when a layer is zero.
    """
    if min(under) <= 0:
        raise InputError("a layer's weights are zero, and nothing can be divided by their norm")
    return math.fsum(a / b for a, b in zip(over, under, strict=True))


def _map(step: Step) -> tuple[Tensor | None, ConvSpec | None]:
    if step.kind in CONVOLUTIONS and len(step.inputs) == 1:
        layer = conv_layer(step, step.inputs[0].tensor)
        return (None, None) if isinstance(layer, str) else (layer.weight, layer.spec)
    if isinstance(step.module, nn.Linear):
        return step.module.weight, None
    if step.kind == "linear" and isinstance(step.get(1, "weight"), Tensor):
        return step.get(1, "weight"), None
    return None, None


def _square(weight: Tensor, spec: ConvSpec | None, circular: bool) -> float:
    if spec is None:
        return _top(weight)
    if circular:
        return _circular(weight, spec)
    return math.exp(2 * conv_norm(weight, spec, WIDTH).log.hi)


def _circular(weight: Tensor, spec: ConvSpec) -> float:
    """The largest singular value over the frequencies of the input's size, squared (Sedghi, Gupta & Long 2019)."""
    sizes = [max(n, k) for n, k in zip(spec.input_size, weight.shape[2:], strict=True)]
    waves = torch.fft.rfftn(weight, s=sizes, dim=tuple(range(2, weight.ndim)))
    waves = waves.flatten(2).permute(2, 0, 1)  # (frequencies, out, in of a group)
    # both kinds of layer keep their groups one after the other on axis 0
    return max(_top(part) for part in waves.chunk(spec.groups, dim=1))


def _top(matrix: Tensor) -> float:
    short = matrix if matrix.shape[-2] <= matrix.shape[-1] else matrix.mH
    return max(0.0, float(torch.linalg.eigvalsh(short @ short.mH).max()))


@torch.no_grad()
def score_path_norm(model: nn.Module, inputs: Tensor) -> float:
    """Σ over paths Π w², by one forward pass of ones through the squared weights.

    Biases begin paths of their own. The mean of k numbers counts as k edges of weight √(1/k), as published; max
    pooling takes the heaviest path. Rescaling across a ReLU changes nothing.

    Holds:  for networks of linear maps, convolutions, (leaky) ReLU, pooling and sums, with BatchNorm folded first.
    Source: Neyshabur, Salakhutdinov & Srebro 2015.

    Args:
        model: with BatchNorm folded.
        inputs: a batch, for its shape.

    Returns:
        The sum over all outputs.

    Raises:
        InputError: for a network with anything else in it.
    """
    if not inputs.is_floating_point():
        raise InputError(f"the inputs are {inputs.dtype}: no path begins at a number looked up in an Embedding")
    strange = [step for step in model_trace(model, inputs[:1]).steps if not _known(step)]
    if strange:
        raise InputError(
            f"paths have no fixed weight through {strange[0].name} ({strange[0].kind}): the path norm is defined for "
            "linear maps, convolutions, ReLU, pooling and sums"
        )
    squared = copied(model).double().eval()
    for parameter in squared.parameters():
        parameter.square_()
    ones = torch.ones_like(inputs[:1], dtype=torch.float64).to(next(squared.parameters()).device)
    return float(squared(ones).sum())


def _known(step: Step) -> bool:
    return step.kind in PASSED and not step.trouble and not _fills(step)


def _fills(step: Step) -> bool:
    """Whether the step puts in numbers that are not zero and no weights."""
    value = step.get(3, "value") if step.kind == "pad" else getattr(step.module, "value", None)
    return isinstance(value, int | float) and value != 0
