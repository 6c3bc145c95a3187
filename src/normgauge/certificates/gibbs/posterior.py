"""Gaussians over the tensors of a network, and how far one is from another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

DECADE = 10  # steps a factor of ten: a rescaling by ten moves the best step and nothing else
GRID = tuple(
    10.0 ** (j / DECADE) for j in range(-6 * DECADE, 6 * DECADE + 1)
)  # widths a prior may have, fixed in advance
SMALLEST = GRID[0]
OUTWARD = 1 + 1e-9  # sums of up to 10^8 terms in float64 are far closer than this


@dataclass(frozen=True, slots=True, eq=False)
class Gaussian:
    """Independent normal entries.

    Attributes:
        mean: by name.
        width: standard deviations, of the tensor's shape or one for all of it.
    """

    mean: Mapping[str, Tensor]
    width: Mapping[str, Tensor]

    def draw(self, generator: torch.Generator) -> dict[str, Tensor]:
        """One random set of tensors, by name."""
        return {
            n: t + self.width[n] * torch.randn(t.shape, generator=generator, dtype=t.dtype, device=t.device)
            for n, t in self.mean.items()
        }


def proportional(mean: Mapping[str, Tensor], share: float) -> Gaussian:
    """Noise of ``share`` times the root mean square of each tensor: c·w gets c times the noise of w."""
    sizes = {name: tensor.double().square().mean().sqrt() for name, tensor in mean.items()}
    return Gaussian(mean, {n: (share * sizes[n]).clamp(min=SMALLEST).to(t) for n, t in mean.items()})


def entry_divergence(away: Tensor, width: Tensor, scale: Tensor) -> Tensor:
    """KL(N(w, σ²)‖N(w₀, s²)) = ½[(σ² + (w − w₀)²)/s² − 1] + ln s − ln σ, entry by entry."""
    return ((width.square() + away.square()) / scale.square() - 1) / 2 + scale.log() - width.log()


def divergence(posterior: Gaussian, prior: Gaussian) -> float:
    """KL(Q‖P) over all entries, rounded up."""
    total = 0.0
    for name, mean in posterior.mean.items():
        away, width = _parts(posterior, prior.mean, name)
        total += float(entry_divergence(away, width, prior.width[name].double()).expand(mean.shape).sum())
    return max(0.0, total) * OUTWARD


def grid_divergence(posterior: Gaussian, centre: Mapping[str, Tensor]) -> float:
    """KL to N(w₀, s²) with the best width s of the grid for each tensor, and what the choice costs: ln|grid| for each.

    One width for all tensors would cost less to choose, and would depend on the scale of each.

    Args:
        posterior: Q.
        centre: w₀, by name; a tensor that is not there has centre 0.

    Returns:
        What the bound pays in nats, the divergence rounded up.
    """
    least = []
    for name in posterior.mean:
        away, width = _parts(posterior, centre, name)
        square = width.square().expand(away.shape)
        total, logs, count = float((square + away.square()).sum()), float(square.log().sum()), away.numel()
        costs = ((total / s**2 - count + count * math.log(s**2) - logs) / 2 for s in GRID)
        least.append(min(costs))
    return max(0.0, math.fsum(least)) * OUTWARD + len(least) * math.log(len(GRID))


def _parts(posterior: Gaussian, centre: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    mean = posterior.mean[name].detach().double()
    start = centre.get(name)
    away = mean if start is None else mean - start.detach().to(mean)
    return away, posterior.width[name].detach().double()
