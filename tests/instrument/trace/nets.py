"""Networks around a function, their batch, and slopes of the model itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import normgauge as ng


class Net(nn.Module):
    """A network around a function of its parts."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Any:
        return self.function(x, *self.parts)


def batch(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(3, 4, dtype=dtype, generator=torch.Generator().manual_seed(0))


def slope(model: nn.Module, at: Tensor, along: Tensor, h: float = 1e-6) -> float:
    """A central difference of the model itself."""
    step = h * along / along.norm()
    with torch.no_grad():
        rise = (model(at + step) - model(at - step)).double().norm()
    return float(rise / ((at + step) - (at - step)).double().norm())


def sound(reading: ng.Reading, steep: float) -> bool:
    """Whether nothing finite was promised below a slope the network has, but for another path that was admitted."""
    return reading.log_upper >= math.log(steep) - 1e-4 or (reading.path_dependent and str(reading.scope) != "global")


def linear() -> Any:
    torch.manual_seed(0)
    return nn.Linear(4, 4).double()


class Lambda(nn.Module):
    """A module around a function of x and two linear layers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 4).double(), nn.Linear(4, 4).double()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


def true_norm(model: nn.Module, x: Tensor) -> float:
    jacobian = torch.autograd.functional.jacobian(model, x).reshape(-1, x.numel())
    return float(torch.linalg.matrix_norm(jacobian, 2))
