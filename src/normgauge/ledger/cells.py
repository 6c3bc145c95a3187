"""Draws of samples into cells, and how far their frequencies are from the probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from normgauge.ledger.draw import Draw


def draw_counts(draw: Draw, p: Tensor, m: int, trials: int) -> Tensor:
    """How many of m samples fall into each cell, (trials, cells)."""
    cells = torch.multinomial(p, m * trials, replacement=True, generator=draw.generator).reshape(trials, m)
    return torch.zeros(trials, len(p), dtype=torch.float64).scatter_add_(1, cells, torch.ones_like(cells).double())


def variation(p: Tensor, counts: Tensor) -> Tensor:
    """½Σ|p_i − m_i/m| of every draw: the largest gap of a model constant on cells and chosen after the draw."""
    return (p - counts / counts.sum(1, keepdim=True)).abs().sum(1) / 2
