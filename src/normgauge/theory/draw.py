"""Fresh random instances for the checks: float64, reproducible from a seed and the claim's id."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

from normgauge.core.claim import Drawn

DELTA = 0.1  # the share of draws in which a bound may fail
TOLD = 50  # draws that are written down, and numbers of each


class Draw:
    """A source of random tensors; every claim has a stream of its own, so no check changes the instances of another."""

    def __init__(self, seed: int, name: str) -> None:
        self.generator = torch.Generator().manual_seed(seed * 1_000_003 + zlib.crc32(name.encode()))
        self.drawn: list[Drawn] = []

    def _noted(self, kind: str, values: Tensor) -> Tensor:
        if len(self.drawn) < TOLD:
            told = values.flatten().tolist() if values.numel() <= TOLD else ()
            self.drawn.append(Drawn(kind, tuple(values.shape), tuple(told)))
        return values

    def normal(self, *shape: int) -> Tensor:
        """A tensor of standard normal numbers."""
        return self._noted("normal", torch.randn(*shape, generator=self.generator, dtype=torch.float64))

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """A tensor of numbers, spread evenly between ``low`` and ``high``."""
        even = torch.rand(*shape, generator=self.generator, dtype=torch.float64)
        return self._noted("uniform", low + (high - low) * even)

    def number(self, low: float = 0.0, high: float = 1.0) -> float:
        """One number, spread evenly between ``low`` and ``high``."""
        return float(self.uniform(1, low=low, high=high))

    def numbers(self, count: int, low: float = 0.5, high: float = 3.0) -> list[float]:
        """A list of numbers, spread evenly between ``low`` and ``high``."""
        return list(self.uniform(count, low=low, high=high).tolist())

    def decade(self, low: float, high: float) -> float:
        """A number spread evenly over the decades from 10^low to 10^high."""
        return 10 ** self.number(low, high)

    def integer(self, low: int, high: int) -> int:
        """One whole number with low <= number < high."""
        return int(self._noted("integer", torch.randint(low, high, (), generator=self.generator)))

    def orthogonal(self, n: int) -> Tensor:
        """A random n x n orthogonal matrix."""
        q, r = torch.linalg.qr(self.normal(n, n))
        return q * r.diagonal().sign()


def draw_counts(draw: Draw, p: Tensor, m: int, trials: int) -> Tensor:
    """How many of m samples fall into each cell, (trials, cells)."""
    cells = torch.multinomial(p, m * trials, replacement=True, generator=draw.generator).reshape(trials, m)
    return torch.zeros(trials, len(p), dtype=torch.float64).scatter_add_(1, cells, torch.ones_like(cells).double())


def variation(p: Tensor, counts: Tensor) -> Tensor:
    """½Σ|p_i − m_i/m| of every draw: the largest gap of a model constant on cells and chosen after the draw."""
    return (p - counts / counts.sum(1, keepdim=True)).abs().sum(1) / 2
