"""Small networks that several checks share."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import norm

EPS = 1e-5


@dataclass(frozen=True, slots=True)
class BatchNormNet:
    """ReLU layers, each with BatchNorm in eval mode, and a linear head.

    Attributes:
        weights: (out, in), one a layer.
        means, variances: running statistics.
        gains, shifts: γ and β.
        head: (classes, width).
    """

    weights: tuple[Tensor, ...]
    means: tuple[Tensor, ...]
    variances: tuple[Tensor, ...]
    gains: tuple[Tensor, ...]
    shifts: tuple[Tensor, ...]
    head: Tensor

    @classmethod
    def drawn(cls, draw: Draw, depth: int, width: int, samples: int = 64) -> BatchNormNet:
        """A random network whose running statistics are those of standard normal data."""
        h = draw.normal(samples, width)
        parts: list[tuple[Tensor, ...]] = []
        for _ in range(depth):
            w = draw.normal(width, width) / math.sqrt(width) * draw.uniform(1, low=0.5, high=3.0)
            y = h @ w.T
            part = (w, y.mean(0), y.var(0), draw.uniform(width, low=0.5, high=1.5), 0.1 * draw.normal(width))
            h = torch.relu((y - part[1]) / (part[2] + EPS).sqrt() * part[3] + part[4])
            parts.append(part)
        weights, means, variances, gains, shifts = zip(*parts, strict=True)
        return cls(weights, means, variances, gains, shifts, draw.normal(3, width))

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs for rows of x, or for one vector."""
        for w, mean, gain, shift, sigma in zip(
            self.weights, self.means, self.gains, self.shifts, self.sigmas, strict=True
        ):
            x = torch.relu((x @ w.T - mean) / sigma * gain + shift)
        return x @ self.head.T

    @property
    def sigmas(self) -> tuple[Tensor, ...]:
        """√(variance + ε) of every layer."""
        return tuple((v + EPS).sqrt() for v in self.variances)

    @property
    def log_weights(self) -> float:
        """log10 of P_w, the head left out: it is before no normalizer."""
        return sum(math.log10(norm(w)) for w in self.weights)

    @property
    def log_reduction(self) -> float:
        """log10 of Π 1/σ_k, σ_k² the mean variance over channels."""
        return -sum(math.log10(float((v + EPS).mean())) / 2 for v in self.variances)

    @property
    def log_euclidean(self) -> float:
        """log10 of Π ‖γ_k/σ_k‖₂."""
        return sum(math.log10(float((g / s).norm())) for g, s in zip(self.gains, self.sigmas, strict=True))

    @property
    def log_folded(self) -> float:
        """log10 of Π ‖diag(γ/σ)W‖, with the head."""
        folded = [(g / s)[:, None] * w for g, s, w in zip(self.gains, self.sigmas, self.weights, strict=True)]
        return sum(math.log10(norm(w)) for w in (*folded, self.head))

    def rescaled(self, scales: list[Tensor]) -> BatchNormNet:
        """The same function: W, mean and √(var+ε) of every channel times its scale."""
        together = list(zip(self.weights, self.means, self.variances, scales, strict=True))
        return dataclasses.replace(
            self,
            weights=tuple(t[:, None] * w for w, _, _, t in together),
            means=tuple(t * mean for _, mean, _, t in together),
            variances=tuple(t**2 * (v + EPS) - EPS for _, _, v, t in together),
        )
