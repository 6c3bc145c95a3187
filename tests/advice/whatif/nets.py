"""A network with every sort of normalizer, and questions about it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.advice.whatif import WhatIf


class Net(nn.Module):
    """A bit of everything: normalizers as modules and as functions, one that runs twice, one under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.bn = nn.BatchNorm1d(8)
        self.ln = nn.LayerNorm(8)
        self.again = self.ln
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.ln(torch.relu(self.bn(self.first(x))))
        h = self.again(torch.relu(h) + 1)
        return self.last(F.layer_norm(h, (8,)))


def built(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    net = Net()
    net.bn.running_var.uniform_(0.2, 3.0)
    net.bn.running_mean.normal_()
    return net.eval()


def ask(model: nn.Module, batch: Tensor, scope: str = "point", **options: object) -> WhatIf:
    return ng.what_if(model, batch, scope=scope, search=False, balance=False, **options)
