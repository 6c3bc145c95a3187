"""A small training with a monitor, for the sinks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import normgauge as ng


def trained(folder: Any, sinks: list[Any], steps: int = 4, last_loss: float | None = None) -> str:
    """Train and give the run file; ``last_loss`` replaces the loss of the last step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ng.Monitor(model, folder, every=1, sinks=sinks) as monitor:
        for number in range(steps):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 4)).square().mean()
            loss.backward()
            optimizer.step()
            monitor.step(loss=last_loss if number == steps - 1 and last_loss is not None else loss, lr=0.1)
    return monitor.path
