"""Checks: normalizers with a constant of choice."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from normgauge.control.bounded_norms import bounded
from normgauge.theory.claim import Found, below, equals
from normgauge.theory.draw import Draw
from normgauge.theory.jacobians import jacobian, spectral_norm


def alone(norm: nn.Module) -> Callable[[Tensor], Tensor]:
    """A normalizer as a map of one vector."""
    return lambda v: norm(v[None])[0]


def bounded_norms(draw: Draw) -> Found:
    n = 2 * draw.integer(2, 6)
    constant, floor, near = (10 ** draw.numbers(1, low, low + 2.5)[0] for low in (-1.0, -2.0, -2.5))
    for standard in (nn.LayerNorm(n), nn.RMSNorm(n), nn.GroupNorm(2, n)):
        name = type(standard).__name__
        made = bounded(standard.double(), constant, floor)
        with torch.no_grad():
            made.get_parameter("weight").copy_(draw.normal(n).exp())
        x = near * draw.normal(n)
        found = spectral_norm(jacobian(alone(made), x))
        yield below(f"{name}: slope against L", found, predicted=constant)
    flat = bounded(nn.LayerNorm(n).double(), constant, floor)
    with torch.no_grad():
        flat.get_parameter("weight").fill_(2 * constant * floor)
    met = spectral_norm(jacobian(alone(flat), torch.full((n,), near).double()))
    yield equals("equal gains at a constant input", met, predicted=constant)
