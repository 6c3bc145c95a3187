"""Matrices of one shape, followed together: a recurrent layer has one for every gate and moment, each of them tiny."""

from __future__ import annotations

import torch
from torch import Tensor

from normgauge.core.rounding import TINY, TINY_SINGLE
from normgauge.instrument.balance.steer import BLOCK, FIRST_ROUNDS, singular_shares

Pairs = tuple[Tensor, Tensor, Tensor]
"""log of each norm (maps,), and the mass on each channel of the outputs and of the inputs, (maps, channels)."""


class SteeringStack:
    """What `frobenius_pair` and `SteeringPairs` say of one matrix, for several at once.

    Args:
        weights: (maps, outputs, inputs), float64.
    """

    def __init__(self, weights: Tensor) -> None:
        size = weights.abs().amax((1, 2)).clamp_min(TINY)
        self.squares, self.log_size = weights.square(), size.log()
        self.single = (weights / size[:, None, None]).float()
        self.block: Tensor | None = None

    def frobenius(self, log_out: Tensor, log_in: Tensor) -> Pairs:
        """log ‖D_out W D_in⁻¹‖_F and its slopes in log D_out and −log D_in."""
        most, least = log_out.amax(1, keepdim=True), log_in.amin(1, keepdim=True)
        first, second = (2 * (log_out - most)).exp(), (2 * (least - log_in)).exp()
        rows = torch.einsum("mij,mj->mi", self.squares, second) * first
        total = rows.sum(1, keepdim=True).clamp_min(TINY)
        columns = torch.einsum("mij,mi->mj", self.squares, first) * second
        return (total.log() / 2 + most - least)[:, 0], rows / total, columns / total

    def top(self, log_out: Tensor, log_in: Tensor) -> Pairs:
        """The top singular values of D_out W D_in⁻¹ and the masses of their vectors; blocks are kept between calls."""
        most, least = log_out.amax(1, keepdim=True), log_in.amin(1, keepdim=True)
        after, before = ((log_out - most).exp().float()[:, None], (least - log_in).exp().float()[:, None])
        block, rounds = self.block, 1
        if block is None:
            shape = (min(BLOCK, self.single.shape[2]), self.single.shape[2])
            start = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
            block, rounds = start.expand(len(self.single), *shape), FIRST_ROUNDS
        for _ in range(rounds):
            basis = torch.linalg.qr(block.mT)[0].mT
            image = after * ((before * basis) @ self.single.mT)
            block = before * ((after * image) @ self.single)
        self.block = block
        squares, turn = torch.linalg.eigh(image @ image.mT)
        share = singular_shares(squares.clamp_min(0).sqrt())
        masses = [(turn.mT @ rows).square() for rows in (image, basis)]
        left, right = (
            torch.einsum("mk,mkc->mc", share, mass / mass.sum(2, keepdim=True).clamp_min(TINY_SINGLE)).double()
            for mass in masses
        )
        log_sigma = squares[:, -1].double().clamp_min(TINY).log() / 2 + self.log_size
        return log_sigma + (most - least)[:, 0], left, right
