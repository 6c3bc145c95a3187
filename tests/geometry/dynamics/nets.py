"""Small normalized networks in float64, with their scale-free groups written down by hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.geometry.dynamics import ScaleFree

EXACT = 1e-30
"""An ε that is lost in rounding; torch does not take 0."""


def batch_norm_net(eps: float = EXACT, seed: int = 0) -> tuple[nn.Sequential, list[ScaleFree]]:
    """8 → 12 → 10 → 4 with two BatchNorms, scale-free to rounding unless eps says otherwise."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(8, 12, bias=False), nn.BatchNorm1d(12, eps=eps), nn.Tanh(),
        nn.Linear(12, 10, bias=False), nn.BatchNorm1d(10, eps=eps), nn.Tanh(), nn.Linear(10, 4),
    ).double()  # fmt: skip
    for layer in (net[1], net[4]):
        nn.init.uniform_(layer.weight, 0.5, 1.5)
    return net, [ScaleFree(("0.weight",), 12), ScaleFree(("3.weight",), 10)]


def data(count: int = 32, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator, dtype=torch.float64)
    return x, torch.randint(4, (count,), generator=generator)


def backward(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The loss; fresh gradients are on the parameters."""
    net.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    return loss.detach()
