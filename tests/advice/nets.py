"""A small network that several tests of the advice look at."""

from __future__ import annotations

import torch
from torch import nn

from normgauge.lab.zoo import mlp


def net(norm: str | None, depth: int = 3, width: int = 16) -> nn.Module:
    """Eight inputs, some hidden layers with He weights, four outputs; in eval mode."""
    torch.manual_seed(1)
    model = mlp((8, *[width] * depth, 4), norm=norm, groups=4)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return model.eval()
