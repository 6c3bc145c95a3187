"""What a partition into cells costs: the slack terms of local-Lipschitz bounds, for a loss in [0, 1].

m samples fall into N cells, m_i into cell i, |T| cells are met. With probability 1 − δ, for every model at once,
F(P) ≤ F(D) + Σ(m_i/m)λ_iL_i + τ with any one of these τ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from normgauge.ledger.draw import Draw


def tau_published(met: float, cells: float, m: float, delta: float) -> float:
    """(√2+1)√(|T|ln(2N/δ)/m) + 2|T|ln(2N/δ)/m, as printed."""
    share = met * math.log(2 * cells / delta) / m
    return (math.sqrt(2) + 1) * math.sqrt(share) + 2 * share


def tau_rademacher(counts: Sequence[int], delta: float) -> float:
    """(1/m) Σ E|S_{m_i}| + 3√(ln(2/δ)/(2m)): free of N."""
    m = sum(counts)
    return sum(mean_walk(k) for k in counts) / m + 3 * math.sqrt(math.log(2 / delta) / (2 * m))


def tau_variation(cells: float, m: float, delta: float) -> float:
    """½√((N−1)/m) + √(ln(1/δ)/(2m)): the total variation between P and D on the cells."""
    return math.sqrt((cells - 1) / m) / 2 + math.sqrt(math.log(1 / delta) / (2 * m))


def tau_chernoff(counts: Sequence[int], cells: float, delta: float) -> float:
    """Σ √(2 m_i ln(N/δ))/m."""
    return sum(math.sqrt(2 * k * math.log(cells / delta)) for k in counts) / sum(counts)


def mean_walk(k: int) -> float:
    """E|S_k| of k signs: k·binom(k−1, ⌊(k−1)/2⌋)/2^(k−1).

    >>> [mean_walk(k) for k in range(5)]
    [0.0, 1.0, 1.0, 1.5, 1.5]
    """
    if k == 0:
        return 0.0
    half = (k - 1) // 2
    if k < 60:
        return k * math.comb(k - 1, half) / 2 ** (k - 1)
    log_binomial = math.lgamma(k) - math.lgamma(half + 1) - math.lgamma(k - half)
    return k * math.exp(log_binomial - (k - 1) * math.log(2))


def draw_counts(draw: Draw, p: Tensor, m: int, trials: int) -> Tensor:
    """How many of m samples fall into each cell, (trials, cells)."""
    cells = torch.multinomial(p, m * trials, replacement=True, generator=draw.generator).reshape(trials, m)
    return torch.zeros(trials, len(p), dtype=torch.float64).scatter_add_(1, cells, torch.ones_like(cells).double())


def variation(p: Tensor, counts: Tensor) -> Tensor:
    """½Σ|p_i − m_i/m| of every draw: the largest gap of a model constant on cells and chosen after the draw."""
    return (p - counts / counts.sum(1, keepdim=True)).abs().sum(1) / 2
