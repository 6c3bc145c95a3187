"""Operator norms of linear maps as they run, by power iteration from where the last one ended.

A power iteration ends below the norm: these numbers are estimates, good to about a percent, and are labelled so. Proved
enclosures come from the full readings.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from experiments.than2025.layers import Matrix

FIRST, AGAIN = 40, 12  # iterations for a new vector, and for one kept from the last epoch


class Power:
    """Largest singular values of one network's linear maps, with and without a factor on each output channel.

    ‖diag(s) W‖ by v ← Wᵀ diag(s)² W v / ‖·‖; the vectors are kept between calls.
    """

    def __init__(self, seed: int = 0) -> None:
        self.vectors: dict[tuple[str, bool], torch.Tensor] = {}
        self.seed = seed

    @torch.no_grad()
    def norm(self, matrix: Matrix, scale: torch.Tensor | None = None) -> torch.Tensor:
        """An estimate from below of ‖diag(scale) W‖, a scalar on the device of the weight."""
        key = (matrix.name, scale is not None)
        weight = matrix.module.weight
        if key not in self.vectors:
            draw = torch.Generator().manual_seed(self.seed)
            self.vectors[key] = torch.randn(1, *matrix.shape, generator=draw).to(weight.device)
            rounds = FIRST
        else:
            rounds = AGAIN
        v = self.vectors[key]
        v = v / v.norm()
        size = v.new_zeros(())
        for _ in range(rounds):
            u = apply(matrix.module, v)
            if scale is not None:
                u = u * (scale if u.ndim == 2 else scale.view(1, -1, 1, 1))
            size = u.norm()
            if scale is not None:
                u = u * (scale if u.ndim == 2 else scale.view(1, -1, 1, 1))
            v = adjoint(matrix.module, u, (1, *matrix.shape))
            v = v / v.norm().clamp_min(torch.finfo(v.dtype).tiny)
        self.vectors[key] = v
        return size


def apply(module: nn.Linear | nn.Conv2d, v: torch.Tensor) -> torch.Tensor:
    """W v, without the bias."""
    if isinstance(module, nn.Linear):
        return F.linear(v, module.weight)
    return F.conv2d(v, module.weight, None, module.stride, module.padding, module.dilation, module.groups)


def adjoint(module: nn.Linear | nn.Conv2d, u: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Wᵀ u for an input of the given shape."""
    if isinstance(module, nn.Linear):
        return u @ module.weight
    return torch.nn.grad.conv2d_input(
        list(shape), module.weight, u, module.stride, module.padding, module.dilation, module.groups
    )
