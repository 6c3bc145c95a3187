"""What the tests of several networks share."""

from __future__ import annotations

import torch
from torch import nn

IMAGE_NORMS = ("batch", "layer", "group", "instance", "rms", None)


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def train_steps(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, steps: int = 3) -> None:
    """A few steps change every parameter that has a gradient and leave all of them finite."""
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        logits = model(inputs)
        nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten()).backward()
        optimizer.step()
    changed = [bool((now != old).any()) for now, old in zip(model.parameters(), before, strict=True)]
    assert sum(changed) > 0.5 * len(changed)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
