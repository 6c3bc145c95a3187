"""Operator norms of linear maps as they run, by a few Lanczos steps from where the last ones ended.

They end below the norm: these numbers are estimates, good to about a percent, and are labelled so. Proved enclosures
come from the full readings.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from experiments.than2025.layers import Matrix

FIRST, AGAIN = 20, 12  # steps from a new vector, and from one kept from the last epoch
FRESH = 0.1  # of the first vector, mixed in
ROUNDING = 1e-5  # of a vector, in float32


class Power:
    """Largest singular values of one network's linear maps, with and without a factor on each output channel.

    The largest singular value of A = diag(s) W on the span of v, AᵀAv, (AᵀA)²v, ...; the vector that attains it is kept
    for the next call. Weights are divided by their largest
    entry first: decay can shrink a layer until the squares of its entries underflow. A little of the first vector is
    mixed in each time, since the channel a kept vector has settled on may have died.
    """

    def __init__(self, seed: int = 0) -> None:
        self.vectors: dict[tuple[str, bool], torch.Tensor] = {}
        self.first: dict[tuple[str, bool], torch.Tensor] = {}
        self.seed = seed

    @torch.no_grad()
    def norm(self, matrix: Matrix, scale: torch.Tensor | None = None) -> torch.Tensor:
        """An estimate from below of ‖diag(scale) W‖, a scalar on the device of the weight; nan for weights that are."""
        key = (matrix.name, scale is not None)
        weight, size = _by_largest(matrix.module.weight)
        factor, more = _by_largest(torch.ones((), device=weight.device) if scale is None else scale)
        if scale is not None and weight.ndim == 4:
            factor = factor.view(1, -1, 1, 1)
        v, rounds = self._start(key, matrix, weight.device)
        basis, images = v.new_empty(0, v.numel()), []
        for _ in range(rounds):
            basis = torch.cat([basis, v.view(1, -1)])
            u = apply(matrix.module, weight, v) * factor
            images.append(u.flatten())
            v = _beyond(basis, adjoint(matrix.module, weight, u * factor, (1, *matrix.shape)))
        gram = _gram(torch.stack(images))
        if not gram.isfinite().all():
            return torch.full((), torch.nan).to(weight)
        squares, ways = torch.linalg.eigh(gram)
        self.vectors[key] = (ways[:, -1].to(basis) @ basis).view(1, *matrix.shape)
        return squares[-1].clamp_min(0).sqrt().to(weight) * size * more

    def _start(self, key: tuple[str, bool], matrix: Matrix, device: torch.device) -> tuple[torch.Tensor, int]:
        """A unit vector to begin with, and for how many rounds."""
        if key in self.vectors:
            return _unit(self.vectors[key] + FRESH * self.first[key]), AGAIN
        draw = torch.Generator().manual_seed(self.seed)
        self.first[key] = _unit(torch.randn(1, *matrix.shape, generator=draw).to(device))
        return self.first[key], FIRST


def _unit(v: torch.Tensor) -> torch.Tensor:
    return v / v.norm().clamp_min(torch.finfo(v.dtype).tiny)


def _beyond(basis: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The direction of v orthogonal to the rows of a basis; zero where only rounding is left of it."""
    rest = v.flatten()
    for _ in range(2):  # once leaves rounding that grows
        rest = rest - (basis @ rest) @ basis
    return _unit(torch.where(rest.norm() > ROUNDING * v.norm(), rest, 0)).view_as(v)


def _gram(rows: torch.Tensor) -> torch.Tensor:
    """Products of rows, on the CPU, where a small matrix is taken apart faster."""
    return (rows.double() @ rows.double().T).cpu()


def _by_largest(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Values over the largest of them, and that."""
    largest = values.detach().abs().max()
    return values.detach() / largest.clamp_min(torch.finfo(values.dtype).tiny), largest


def apply(module: nn.Linear | nn.Conv2d, weight: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """W v for a module with another weight, without the bias."""
    if isinstance(module, nn.Linear):
        return F.linear(v, weight)
    return F.conv2d(v, weight, None, module.stride, module.padding, module.dilation, module.groups)


def adjoint(
    module: nn.Linear | nn.Conv2d, weight: torch.Tensor, u: torch.Tensor, shape: tuple[int, ...]
) -> torch.Tensor:
    """Wᵀ u for an input of the given shape."""
    if isinstance(module, nn.Linear):
        return u @ weight
    return torch.nn.grad.conv2d_input(
        list(shape), weight, u, module.stride, module.padding, module.dilation, module.groups
    )
