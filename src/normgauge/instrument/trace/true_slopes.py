"""Activations whose backward pass in float64 is not the derivative of their forward pass, differentiated rightly.

torch rounds 1/α of CELU and the ⅙ of Hardsigmoid to float32 on the way back: slopes are off by up to 6·10⁻⁸ of
themselves, which a network that cancels turns into anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


def celu_rightly(x: Tensor, alpha: float) -> Tensor:
    """CELU with torch's own values.

    φ'(x) = 1 for x > 0, exp(x/α) elsewhere

    Holds:  for every α; differentiable as often as wanted.
    Source: derivative of α(exp(x/α) − 1).
    """
    curved = alpha * (x.clamp(max=0.0) / alpha).exp()
    return torch.where(x > 0, x, F.celu(x.detach(), alpha) + (curved - curved.detach()))


def hardsigmoid_rightly(x: Tensor) -> Tensor:
    """Hardsigmoid with torch's own values.

    φ'(x) = ⅙ for |x| < 3, 0 elsewhere

    Holds:  everywhere; on the kinks the slope is torch's, 0.
    Source: derivative of min(max(x + 3, 0), 6)/6.
    """
    return F.hardtanh(x + 3.0, 0.0, 6.0) / 6.0


Asked = tuple[Tensor, tuple[float, ...], bool]  # what is given, the options, and whether it is written over


def _celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Asked:
    return input, (alpha,), inplace


def _celu_written(input: Tensor, alpha: float = 1.0) -> Asked:
    return input, (alpha,), True


def _hardsigmoid(input: Tensor, inplace: bool = False) -> Asked:
    return input, (), inplace


def _hardsigmoid_written(input: Tensor) -> Asked:
    return input, (), True


SLIPS: dict[Any, tuple[Callable[..., Asked], Callable[..., Tensor]]] = {
    F.celu: (_celu, celu_rightly),
    torch.celu: (_celu, celu_rightly),
    torch.celu_: (_celu_written, celu_rightly),
    F.hardsigmoid: (_hardsigmoid, hardsigmoid_rightly),
    torch._C._nn.hardsigmoid: (_hardsigmoid, hardsigmoid_rightly),
    torch._C._nn.hardsigmoid_: (_hardsigmoid_written, hardsigmoid_rightly),
}


class TrueSlopes(TorchFunctionMode):
    """Inside, what is differentiated in float64 has the derivative of its forward pass."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in SLIPS or "out" in kwargs:  # which autograd does not follow anyway
            return func(*args, **kwargs)
        asked, rightly = SLIPS[func]
        x, options, inplace = asked(*args, **kwargs)
        if x.dtype != torch.float64 or not x.requires_grad:
            return func(*args, **kwargs)
        out = rightly(x.clone() if inplace else x, *options)
        return x.copy_(out) if inplace else out
