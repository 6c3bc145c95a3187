"""Small normalizers and networks that checks are run on: float64, frozen, drawn afresh."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.lab.zoo import mlp
from normgauge.theory.draw import Draw
from normgauge.theory.jacobians import jacobian_slope, spectral_norm

EPS = 1e-5
Map = Callable[[Tensor], Tensor]
plain_net, batch_net, layer_net, group_net = (
    partial(mlp, (8, 16, 16, 3), norm=norm) for norm in (None, "batch", "layer", "group")
)
samples = partial(torch.randn, 16, 8)  # for these: the networks that a claim names to show its number on
eye, ones = partial(torch.eye, dtype=torch.float64), partial(torch.ones, dtype=torch.float64)


def layer_norm(x: Tensor, eps: float) -> Tensor:
    """LayerNorm of one vector as torch computes it."""
    return F.layer_norm(x, x.shape, eps=eps)


def batch_norm(draw: Draw, channels: int) -> nn.BatchNorm1d:
    """BatchNorm without gains in eval mode, with random running statistics."""
    module = nn.BatchNorm1d(channels, eps=draw.decade(-5, -1), affine=False).double().eval()
    module.running_mean = draw.normal(channels)
    module.running_var = draw.normal(channels).exp()
    return module


def running_statistics(module: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    """The running mean and variance of a BatchNorm."""
    return module.get_buffer("running_mean"), module.get_buffer("running_var")


def norm_product(weights: Sequence[Tensor]) -> float:
    """P_w, the product of the spectral norms."""
    return math.prod(spectral_norm(weight) for weight in weights)


def random_matrices(draw: Draw, depth: int, low: int = 2, high: int = 7) -> list[Tensor]:
    """Random weights of a chain of layers with random widths, low <= width < high."""
    widths = [draw.integer(low, high) for _ in range(depth + 1)]
    return [draw.normal(widths[k + 1], widths[k]) / widths[k] ** 0.5 for k in range(depth)]


@dataclass(frozen=True, slots=True)
class Frozen:
    """Layers with BatchNorms in eval mode.

    Attributes:
        weights: (out, in), one a layer.
        means, variances: running statistics.
        eps: of all of them.
    """

    weights: tuple[Tensor, ...]
    means: tuple[Tensor, ...]
    variances: tuple[Tensor, ...]
    eps: float

    @property
    def sigmas(self) -> list[Tensor]:
        """√(variance + ε) of every layer."""
        return [(var + self.eps).sqrt() for var in self.variances]

    def rescaled(self, scales: Sequence[Tensor | float]) -> Self:
        """The same function: W, mean and √(var+ε) of every channel times its scale, or its layer's; exact, with ε."""
        rows = [torch.as_tensor(scale, dtype=torch.float64).reshape(-1) for scale in scales]
        together = list(zip(self.weights, self.means, self.variances, rows, strict=True))
        return dataclasses.replace(
            self,
            weights=tuple(t[:, None] * w for w, _, _, t in together),
            means=tuple(t * mean for _, mean, _, t in together),
            variances=tuple(t**2 * (v + self.eps) - self.eps for _, _, v, t in together),
        )


@dataclass(frozen=True, slots=True)
class Stack(Frozen):
    """h_k = ReLU((W_k h_{k−1} − mean_k)/√(var_k + ε)): a network with frozen BatchNorms, called on one vector."""

    def __call__(self, x: Tensor) -> Tensor:
        """The output at ``x``."""
        return self.entering(len(self.weights), x)

    def normalized(self, k: int, y: Tensor) -> Tensor:
        """ReLU(BatchNorm(y)) of layer k, counted from 0."""
        return F.batch_norm(y[None], self.means[k], self.variances[k], eps=self.eps)[0].relu()

    def entering(self, k: int, x: Tensor, first: int = 0) -> Tensor:
        """What W_k is multiplied with, where W_first is multiplied with x."""
        for j in range(first, k):
            x = self.normalized(j, self.weights[j] @ x)
        return x

    def after(self, k: int) -> Map:
        """The map from W_k h to the output."""
        return lambda y: self.entering(len(self.weights), self.normalized(k, y), first=k + 1)

    @property
    def inverses(self) -> list[Tensor]:
        """1/√(var_k + ε) of every layer."""
        return [1 / sigma for sigma in self.sigmas]

    @property
    def folded(self) -> list[Tensor]:
        """diag(1/σ_k) W_k of every layer."""
        return [s[:, None] * w for s, w in zip(self.inverses, self.weights, strict=True)]


def frozen_stack(draw: Draw, depth: int, on: bool = False) -> Stack:
    """A random Stack; with ``on`` every ReLU is on for inputs no longer than ten, so that it is affine there."""
    weights = random_matrices(draw, depth)
    means = [draw.normal(len(w)) for w in weights]
    variances = [draw.normal(len(w)).exp() for w in weights]
    stack = Stack(tuple(weights), tuple(means), tuple(variances), draw.decade(-5, -2))
    return switched_on(stack, 10.0) if on else stack


def switched_on(stack: Stack, reach: float) -> Stack:
    """The same with means so low that every ReLU is on while the input is no longer than ``reach``."""
    middle, means = torch.zeros(stack.weights[0].shape[1]).double(), []
    for weight, mean, sigma in zip(stack.weights, stack.means, stack.sigmas, strict=True):
        reach *= spectral_norm(weight)
        means.append(weight @ middle - reach - mean.abs())
        middle, reach = (weight @ middle - means[-1]) / sigma, reach / float(sigma.min())
    return dataclasses.replace(stack, means=tuple(means))


def live_stack(draw: Draw, depth: int, points: int = 1) -> tuple[Stack, Tensor, float]:
    """A random Stack, random points and the largest slope at them, which is not 0.

    Where all ReLUs of a layer are off everything is 0, by whatever formula: such a stack is drawn again.
    """
    while True:
        stack = frozen_stack(draw, depth)
        x = draw.normal(points, stack.weights[0].shape[1])
        if slope := max(jacobian_slope(stack, row) for row in x):
            return stack, x, slope


def equal_channels(draw: Draw, depth: int, channels: int, same: bool = False) -> tuple[Stack, float]:
    """A stack of scaled identities with one σ a layer (one for all with ``same``), every ReLU on; and its slope."""
    gains = [draw.decade(-1, 1) for _ in range(depth)]
    variances = [draw.decade(-1, 1) for _ in range(depth)]
    flat = ones(channels)
    stack = Stack(
        tuple(g * eye(channels) for g in gains),
        (-1e4 * flat,) * depth,
        tuple((variances[0] if same else v) * flat for v in variances),
        draw.decade(-5, -2),
    )
    return stack, jacobian_slope(stack, flat)


@dataclass(frozen=True, slots=True)
class BatchNormNet(Frozen):
    """ReLU layers, each with BatchNorm in eval mode, and a linear head.

    Attributes:
        gains, shifts: γ and β.
        head: (classes, width).
    """

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
        return cls(weights, means, variances, EPS, gains, shifts, draw.normal(3, width))

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs for rows of x, or for one vector."""
        for w, mean, gain, shift, sigma in zip(
            self.weights, self.means, self.gains, self.shifts, self.sigmas, strict=True
        ):
            x = torch.relu((x @ w.T - mean) / sigma * gain + shift)
        return x @ self.head.T

    @property
    def log_weights(self) -> float:
        """log10 of P_w, the head left out: it is before no normalizer."""
        return sum(math.log10(spectral_norm(w)) for w in self.weights)

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
        return sum(math.log10(spectral_norm(w)) for w in (*folded, self.head))
