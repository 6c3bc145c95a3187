"""Units with a kink: their exact slopes, and which way a point must move for the steep ones to switch on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.overrides import TorchFunctionMode

from normgauge.core.rounding import TINY_SINGLE

WIDTH = 0.3  # of the bump around a kink, as a part of the root mean square of a sample's units in a layer

Unit = tuple[Tensor, float, bool]  # what a unit is given, its slope below 0, and whether it is written over


def _plain(input: Tensor, inplace: bool = False) -> Unit:
    return input, 0.0, inplace


def _written(input: Tensor) -> Unit:
    return input, 0.0, True


def _leaky(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Unit:
    return input, negative_slope, inplace


KINKED: dict[Any, Callable[..., Unit]] = {
    F.relu: _plain,
    torch.relu: _plain,
    Tensor.relu: _plain,
    torch.relu_: _written,
    Tensor.relu_: _written,
    F.leaky_relu: _leaky,
}


def _sloped(grad: Tensor, z: Tensor, low: float) -> Tensor:
    return torch.where(z > 0, grad, low * grad if low else 0.0)


class Kinked(torch.autograd.Function):
    """z where it is positive, a z elsewhere: value and slope are torch's own, and the slope is `KinkedSlope`."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, low: float) -> Tensor:
        """The function itself; ``low`` is a."""
        ctx.save_for_backward(z)
        ctx.low = low
        return _sloped(z, z, low)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradient times the slope, 1 or a."""
        return KinkedSlope.apply(grads[0], *ctx.saved_tensors, ctx.low), None


class KinkedSlope(torch.autograd.Function):
    """g · slope(z), with a bump around the kink in place of the derivative that the slope does not have.

    ∂ log‖J(x)ᵀu‖ / ∂x = Σ_i c_i δ(z_i) ∇z_i, c_i what switching unit i on adds; with w in place of δ it points to where
    units that make the network steeper switch on and the others off:  w(z) = (1 − a) / (2b (1 + |z|/b)²), ∫ w = 1 − a.

    Holds:  products with J and Jᵀ are exact; only the gradient in x is that of a network with smoother slopes.
    Source: F. Zenke & S. Ganguli, "SuperSpike", Neural Computation 30, 2018, for the shape of the bump.
    """

    @staticmethod
    def forward(ctx: Any, grad: Tensor, z: Tensor, low: float) -> Tensor:
        """The product."""
        ctx.save_for_backward(grad, z)
        ctx.low = low
        return _sloped(grad, z, low)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """In g exactly; in z as if the slope rose around the kink."""
        grad, z = ctx.saved_tensors
        width = WIDTH * z.square().mean(tuple(range(1, z.ndim)), keepdim=True).sqrt().clamp(min=TINY_SINGLE)
        bump = (1 - ctx.low) / (2 * width * (1 + z.abs() / width).square())
        return _sloped(grads[0], z, ctx.low), grads[0] * grad * bump, None


class TwiceKinked(TorchFunctionMode):
    """Inside, units with a kink at 0 are `Kinked`.

    Attributes:
        inputs: what each of them was given, in the order in which they ran.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in KINKED:
            return func(*args, **kwargs)
        z, low, inplace = KINKED[func](*args, **kwargs)
        if not z.requires_grad or is_functorch_wrapped_tensor(z):
            return func(*args, **kwargs)
        self.inputs.append(z.clone() if inplace else z)
        out = Kinked.apply(self.inputs[-1], low)
        return z.copy_(out) if inplace else out
