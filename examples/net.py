"""A small network and a batch: what `normgauge gauge examples/net.py:build --batch examples/net.py:batch` measures.

Eight features of different scales go through a linear map with BatchNorm, one residual block with LayerNorm, and a
linear head. The documentation follows this network step by step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """A stem with BatchNorm, a pre-norm residual block, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(8, 16)
        self.bn = nn.BatchNorm1d(16)
        self.ln = nn.LayerNorm(16)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, 3) of a batch (N, 8)."""
        h = torch.relu(self.bn(self.stem(x)))
        h = h + self.down(torch.relu(self.up(self.ln(h))))
        return self.head(h)


def features(count: int, seed: int) -> Tensor:
    """Features whose scales run from 0.3 to 3."""
    scales = torch.logspace(-0.5, 0.5, 8)
    return scales * torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))


def build() -> Net:
    """The network, its BatchNorm statistics those of the data."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Net()
    model.train()
    with torch.no_grad():
        for seed in range(50):
            model(features(64, seed))
    return model.eval()


def batch() -> Tensor:
    """Sixteen samples the network has not seen."""
    return features(16, seed=1000)


def data() -> list[tuple[Tensor, Tensor]]:
    """The same samples with a class each: the largest of three sums of features."""
    x = batch()
    return [(x, torch.stack([x[:, :3].sum(1), x[:, 3:6].sum(1), x[:, 6:].sum(1)], 1).argmax(1))]


def loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy, for `normgauge curvature`."""
    return nn.functional.cross_entropy(output, target)
