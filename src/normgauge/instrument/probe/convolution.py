"""Convolutions whose backward pass is one more convolution, so that a second one costs no more than the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

FORWARD = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


class Convolved(torch.autograd.Function):
    """A convolution with a fixed weight: Jᵀ is the transposed convolution, which torch differentiates as it is.

    Torch's own second derivative of a convolution always computes the weight's part too, group by group: 1,800 calls
    for the depthwise layers of a small ConvNeXt, where one a layer is needed.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        numbers: tuple[list[int], list[int], list[int]],
        groups: int,
    ) -> Tensor:
        """The convolution itself; ``numbers`` are stride, padding and dilation, one for each axis."""
        stride, padding, dilation = numbers
        axes = len(stride)
        ctx.save_for_backward(weight)
        ctx.numbers, ctx.groups, ctx.size = numbers, groups, x.shape[-axes:]
        function = next(function for function, count in FORWARD.items() if count == axes)
        return function(x, weight, bias, stride, padding, dilation, groups)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The transposed convolution of the gradient; none for weight and bias, which stay as they are."""
        (grad,) = grads
        (weight,) = ctx.saved_tensors
        stride, padding, dilation = ctx.numbers
        axes = len(stride)
        sizes = zip(ctx.size, grad.shape[-axes:], weight.shape[-axes:], stride, padding, dilation, strict=True)
        rest = [size - ((out - 1) * s - 2 * p + d * (k - 1) + 1) for size, out, k, s, p, d in sizes]
        pulled = TRANSPOSED[axes](grad, weight, None, stride, padding, rest, ctx.groups, dilation)
        return pulled, None, None, None, None


class TwiceConvolved(TorchFunctionMode):
    """Inside, convolutions with a weight that depends on nothing are `Convolved`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in FORWARD and (given := _plain(FORWARD[func], *args, **kwargs)) is not None:
            return Convolved.apply(*given)
        return func(*args, **kwargs)


def _plain(
    axes: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> tuple[Any, ...] | None:
    """The arguments of `Convolved`; None for a convolution that is better left to torch."""
    fixed = weight.is_leaf and (bias is None or bias.is_leaf)
    if isinstance(padding, str) or not fixed or not input.requires_grad or weight.is_complex():
        return None
    numbers = tuple(
        [value] * axes if isinstance(value, int) else _each(value, axes) for value in (stride, padding, dilation)
    )
    return input, weight, bias, numbers, groups


def _each(values: Sequence[int], axes: int) -> list[int]:
    return list(values) * (axes if len(values) == 1 else 1)
