"""Gaussians over the tensors of a network, and how far one is from another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

DECADE = 10  # steps a factor of ten: a rescaling by ten moves the best step and nothing else
STEPS = range(-6 * DECADE, 6 * DECADE + 1)
GRID = tuple(10.0 ** (j / DECADE) for j in STEPS)  # widths a prior may have, fixed in advance
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
        """One set of tensors."""
        return {name: mean + self.width[name] * _normal(mean, generator) for name, mean in self.mean.items()}


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=like.device)


def proportional(mean: Mapping[str, Tensor], share: float) -> Gaussian:
    """Noise of ``share`` times the root mean square of each tensor: c·w gets c times the noise of w."""
    width = {n: (share * _rms(t)).clamp(min=SMALLEST).to(t) for n, t in mean.items()}
    return Gaussian(mean, width)


def _rms(tensor: Tensor) -> Tensor:
    return tensor.double().square().mean().sqrt()


def divergence(posterior: Gaussian, prior: Gaussian) -> float:
    """KL(Q‖P) = Σ ½[(σ² + (w − w₀)²)/s² − 1 + ln(s²/σ²)] over all entries, rounded up."""
    total = 0.0
    for name, mean in posterior.mean.items():
        away, width = _parts(posterior, prior.mean, name)
        scale = prior.width[name].double()
        entries = ((width.square() + away.square()) / scale.square() - 1) / 2 + scale.log() - width.log()
        total += float(entries.expand(mean.shape).sum())
    return max(0.0, total) * OUTWARD


@dataclass(frozen=True, slots=True)
class Distance:
    """How far a posterior is from the best prior of the grid.

    Attributes:
        divergence: KL to the prior chosen.
        choice: what choosing it costs, ln of 1 over its weight.
    """

    divergence: float
    choice: float

    @property
    def total(self) -> float:
        """What the bound pays."""
        return self.divergence + self.choice


def distance(posterior: Gaussian, centre: Mapping[str, Tensor]) -> Distance:
    """KL to N(w₀, s²) with the best width s of the grid for each tensor, and what the choice costs: ln|grid| for each.

    One width for all tensors would cost less to choose, and would depend on the scale of each.

    Args:
        posterior: Q.
        centre: w₀, by name; a tensor that is not there has centre 0.

    Returns:
        Both in nats, the divergence rounded up.
    """
    spread = [_spread(posterior, centre, name) for name in posterior.mean]
    total = math.fsum(min(_at(one, scale) for scale in GRID) for one in spread)
    return Distance(max(0.0, total) * OUTWARD, len(spread) * math.log(len(GRID)))


def _spread(posterior: Gaussian, centre: Mapping[str, Tensor], name: str) -> tuple[float, float, int]:
    """Σ(σ² + (w − w₀)²), Σ ln σ² and the number of entries of one tensor."""
    away, width = _parts(posterior, centre, name)
    square = width.square().expand(away.shape)
    return float((square + away.square()).sum()), float(square.log().sum()), away.numel()


def _at(spread: tuple[float, float, int], scale: float) -> float:
    total, logs, count = spread
    return (total / scale**2 - count + count * math.log(scale**2) - logs) / 2


def _parts(posterior: Gaussian, centre: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    mean = posterior.mean[name].detach().double()
    start = centre.get(name)
    away = mean if start is None else mean - start.detach().to(mean)
    return away, posterior.width[name].detach().double()
