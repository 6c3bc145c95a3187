"""Random convolution layers and their true norms, built from torch's own functions on the identity."""

from __future__ import annotations

import math
import random

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.instrument.spectral.conv import ConvSpec

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def true_matrix(weight: Tensor, spec: ConvSpec) -> Tensor:
    """The layer's matrix, (inputs, outputs)."""
    channels = weight.shape[0] if spec.transposed else weight.shape[1] * spec.groups
    size = channels * math.prod(spec.input_size)
    unit = torch.eye(size, dtype=torch.float64).reshape(size, channels, *spec.input_size)
    if spec.transposed:
        left = tuple(pair[0] for pair in spec.padding)
        out = TRANSPOSED[spec.axes](
            unit, weight, None, spec.stride, left, spec.output_padding, spec.groups, spec.dilation
        )
    else:
        amounts = [side for pair in reversed(spec.padding) for side in pair]
        mode = "constant" if spec.padding_mode == "zeros" else spec.padding_mode
        out = CONV[spec.axes](F.pad(unit, amounts, mode=mode), weight, None, spec.stride, 0, spec.dilation, spec.groups)
    return out.reshape(size, -1)


def true_log_norm(weight: Tensor, spec: ConvSpec) -> float:
    """log of the largest singular value of `true_matrix`."""
    norm = float(torch.linalg.matrix_norm(true_matrix(weight, spec), 2))
    return math.log(norm) if norm > 0.0 else -math.inf


def random_layer(seed: int) -> tuple[Tensor, ConvSpec]:
    """A small layer with every option drawn at random; the kernel fits and may be larger than the input."""
    rng = random.Random(seed)
    while True:
        weight, spec = _draw(rng, seed)
        if min(spec.output_size(weight)) >= 1:
            return weight, spec


def _draw(rng: random.Random, seed: int) -> tuple[Tensor, ConvSpec]:
    axes, groups = rng.choice([1, 1, 2, 2, 3]), rng.choice([1, 1, 2, 3])
    c_in, c_out = groups * rng.randint(1, 3), groups * rng.randint(1, 3)
    kernel = [rng.randint(1, 4) for _ in range(axes)]
    size = tuple(rng.randint(1, 4 if axes == 3 else 7) for _ in range(axes))
    stride = tuple(rng.randint(1, 3) for _ in range(axes))
    dilation = tuple(rng.randint(1, 2) for _ in range(axes))
    transposed = rng.random() < 0.3
    mode = "zeros" if transposed else rng.choice(["zeros", "zeros", "circular", "reflect", "replicate"])
    most = {"zeros": 3, "replicate": 3, "circular": min(size), "reflect": min(size) - 1}[mode]
    padding = tuple((rng.randint(0, min(3, most)), rng.randint(0, min(3, most))) for _ in range(axes))
    output_padding: tuple[int, ...] = ()
    if transposed:
        padding = tuple((left, left) for left, _ in padding)
        output_padding = tuple(rng.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True))
    spec = ConvSpec(size, stride, padding, dilation, groups, transposed, output_padding, mode)
    shape = (c_in, c_out // groups, *kernel) if transposed else (c_out, c_in // groups, *kernel)
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return weight, spec


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal entries, the same for the same seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def same(size: int, kernel: int = 3, axes: int = 2, stride: int = 1) -> ConvSpec:
    """Zero padding that keeps the size."""
    reach = kernel - 1
    return ConvSpec((size,) * axes, (stride,) * axes, ((reach // 2, reach - reach // 2),) * axes)
