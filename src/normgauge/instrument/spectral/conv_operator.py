"""A convolution as the linear map it is at one input size, with its exact adjoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import grad as conv_grad

from normgauge.core.errors import InputError
from normgauge.core.rounding import UNIT

PaddingMode = Literal["zeros", "circular", "reflect", "replicate"]
_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_INPUT_GRAD = {1: conv_grad.conv1d_input, 2: conv_grad.conv2d_input, 3: conv_grad.conv3d_input}


@dataclass(frozen=True, slots=True)
class ConvSpec:
    """Everything but the weight that fixes a convolution layer's linear map.

    Attributes:
        input_size: spatial size of the layer's input, one entry per axis.
        stride: one entry per axis; () means 1 everywhere.
        padding: (left, right) per axis; () means none. For a transposed layer, torch's `padding`.
        dilation: one entry per axis; () means 1 everywhere.
        groups: channel groups, as in torch.
        transposed: True for ConvTranspose; its weight is (c_in, c_out/groups, *kernel).
        output_padding: ConvTranspose only; () means 0.
        padding_mode: torch's names.
    """

    input_size: tuple[int, ...]
    stride: tuple[int, ...] = ()
    padding: tuple[tuple[int, int], ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    transposed: bool = False
    output_padding: tuple[int, ...] = ()
    padding_mode: PaddingMode = "zeros"

    def __post_init__(self) -> None:
        axes = len(self.input_size)
        if axes not in (1, 2, 3):
            raise InputError(f"expected 1 to 3 spatial axes, got input_size={self.input_size}")
        fill = {"stride": 1, "padding": (0, 0), "dilation": 1, "output_padding": 0}
        for name, default in fill.items():
            given = getattr(self, name) or (default,) * axes
            if len(given) != axes:
                raise InputError(f"expected {axes} entries in {name}, one per spatial axis, got {given}")
            object.__setattr__(self, name, tuple(given))
        if self.transposed and self.padding_mode != "zeros":
            raise InputError(f"expected padding_mode='zeros' for a transposed layer, got {self.padding_mode!r}")

    @property
    def axes(self) -> int:
        """Number of spatial axes."""
        return len(self.input_size)

    @property
    def around(self) -> tuple[int, ...] | None:
        """The zeros on either side of each axis where torch's own padding puts them; None for any other padding."""
        even = self.padding_mode == "zeros" and all(left == right >= 0 for left, right in self.padding)
        return tuple(left for left, _ in self.padding) if even else None

    def output_size(self, weight: Tensor) -> tuple[int, ...]:
        """Spatial size of the layer's output."""
        reach = self.reach(weight)
        if self.transposed:
            return tuple(
                (n - 1) * s - sum(p) + e + o + 1
                for n, s, p, e, o in zip(
                    self.input_size, self.stride, self.padding, reach, self.output_padding, strict=True
                )
            )
        return tuple(
            (n + sum(p) - e - 1) // s + 1
            for n, s, p, e in zip(self.input_size, self.stride, self.padding, reach, strict=True)
        )

    def reach(self, weight: Tensor) -> tuple[int, ...]:
        """Distance between a kernel's first and last tap, dilation·(k − 1), per axis."""
        return tuple(d * (k - 1) for d, k in zip(self.dilation, weight.shape[2:], strict=True))

    def input_shape(self, weight: Tensor) -> tuple[int, ...]:
        """(channels, *spatial) of one input."""
        channels = weight.shape[0] if self.transposed else weight.shape[1] * self.groups
        return (channels, *self.input_size)

    def output_shape(self, weight: Tensor) -> tuple[int, ...]:
        """(channels, *spatial) of one output."""
        channels = weight.shape[1] * self.groups if self.transposed else weight.shape[0]
        return (channels, *self.output_size(weight))

    def adjoint(self, weight: Tensor) -> ConvSpec:
        """The ordinary convolution whose adjoint this transposed layer is: it runs on this layer's output size."""
        return replace(
            self,
            input_size=self.output_size(weight),
            transposed=False,
            output_padding=(),
        )


def per_axis(value: Any, axes: int) -> tuple[Any, ...]:
    """One entry per spatial axis, from torch's single number or sequence."""
    items = tuple(value) if isinstance(value, Sequence) else (value,)
    return items * axes if len(items) == 1 else items


def check_weight(weight: Tensor, spec: ConvSpec) -> None:
    """Refuses what cannot run.

    Raises:
        InputError: the weight does not fit ``spec``, or the input is too small for the kernel.
    """
    if weight.dim() != spec.axes + 2:
        raise InputError(
            f"expected a weight of {spec.axes + 2} axes for input_size={spec.input_size}, got {tuple(weight.shape)}"
        )
    if weight.shape[0] % spec.groups:
        raise InputError(f"expected channels divisible by groups={spec.groups}, got a weight {tuple(weight.shape)}")
    if min(spec.output_size(weight)) < 1:
        raise InputError(
            f"the kernel {tuple(weight.shape[2:])} with dilation {spec.dilation} does not fit into the input "
            f"{spec.input_size} with padding {spec.padding}"
        )


def _pad(x: Tensor, spec: ConvSpec) -> Tensor:
    amounts = [side for pair in reversed(spec.padding) for side in pair]
    if not any(amounts):
        return x
    return F.pad(x, amounts, mode="constant" if spec.padding_mode == "zeros" else spec.padding_mode)


def _pad_adjoint(y: Tensor, spec: ConvSpec) -> Tensor:
    if spec.padding_mode == "zeros":
        for axis, ((left, _), size) in enumerate(zip(spec.padding, spec.input_size, strict=True)):
            y = y.narrow(axis + 2, left, size)
        return y
    probe = torch.zeros(*y.shape[:2], *spec.input_size, dtype=y.dtype, device=y.device, requires_grad=True)
    with torch.enable_grad():
        (pulled,) = torch.autograd.grad(_pad(probe, spec), probe, y)
    return pulled


def plain_sums(x: Tensor) -> AbstractContextManager[None]:
    """Inside, convolutions in float64 are sums of products, as `conv_rounding` says; cuDNN may take Fourier transforms.

    In other precisions nothing is proved, and whatever is fastest will do.
    """
    return torch.backends.cudnn.flags(enabled=False) if x.dtype == torch.float64 and x.is_cuda else nullcontext()


def _conv(weight: Tensor, x: Tensor, spec: ConvSpec, size: tuple[int, ...]) -> Tensor:
    around = spec.around
    padded = _pad(x, spec) if around is None else x
    with plain_sums(x):
        y = _CONV[spec.axes](padded, weight, None, spec.stride, around or 0, spec.dilation, spec.groups)
    # A transposed layer whose output padding reaches a whole stride is the adjoint of only the first outputs.
    for axis, wanted in enumerate(size):
        y = y.narrow(axis + 2, 0, wanted)
    return y


def _conv_adjoint(weight: Tensor, y: Tensor, spec: ConvSpec) -> Tensor:
    missing = [full - got for full, got in zip(spec.output_size(weight), y.shape[2:], strict=True)]
    if any(missing):
        y = F.pad(y, [side for more in reversed(missing) for side in (0, more)])
    around = spec.around
    size = (
        spec.input_size
        if around is not None
        else [n + sum(p) for n, p in zip(spec.input_size, spec.padding, strict=True)]
    )
    shape = torch.Size((y.shape[0], weight.shape[1] * spec.groups, *size))
    with plain_sums(y):
        x = _INPUT_GRAD[spec.axes](shape, weight, y.contiguous(), spec.stride, around or 0, spec.dilation, spec.groups)
    return x if around is not None else _pad_adjoint(x, spec)


def apply_conv(weight: Tensor, x: Tensor, spec: ConvSpec) -> Tensor:
    """The layer without its bias, on a batch (batch, c_in, *input_size); differentiable in weight and x."""
    if spec.transposed:
        return _conv_adjoint(weight, x, spec.adjoint(weight))
    return _conv(weight, x, spec, spec.output_size(weight))


def apply_adjoint(weight: Tensor, y: Tensor, spec: ConvSpec) -> Tensor:
    """The transpose of `apply_conv`, on a batch (batch, c_out, *output_size): ⟨apply(x), y⟩ = ⟨x, apply_adjoint(y)⟩."""
    if spec.transposed:
        return _conv(weight, y, spec.adjoint(weight), spec.input_size)
    return _conv_adjoint(weight, y, spec)


def padding_constant(spec: ConvSpec) -> float:
    """Norm of the padding alone: √(most copies of one pixel), the product over the axes of the count per axis.

    The map copies pixels, so PᵀP is diagonal with the number of copies of each pixel; zeros copy nothing.
    """
    if spec.padding_mode == "zeros":
        return 1.0
    copies = 1
    for size, (left, right) in zip(spec.input_size, spec.padding, strict=True):
        line = torch.arange(size, dtype=torch.float64).reshape(1, 1, size)
        padded = F.pad(line, (left, right), mode=spec.padding_mode)
        copies *= int(padded.long().flatten().bincount().max())
    return math.sqrt(copies) * (1.0 + 2 * UNIT)


def conv_rounding(weight: Tensor, spec: ConvSpec) -> float:
    """Bound of ‖fl(A x) − A x‖ / ‖x‖ in float64, for A and for Aᵀ.

    Every entry is a sum of L = channels·taps products (then of padding copies), so the error is below γ_L |A||x|;
    ‖|A|‖ ≤ padding · Σ_t ‖K_t‖_F ≤ padding · √taps · ‖K‖_F.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., (3.5).
    """
    taps = math.prod(weight.shape[2:])
    padding = padding_constant(spec)
    terms = max(weight.shape[:2]) * taps + padding**2 + 16
    return 2 * UNIT * terms * padding * math.sqrt(taps) * float(weight.detach().double().norm())
