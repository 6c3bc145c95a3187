"""Small networks and data whose scores are known or compared."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.certificates.case import Case
from normgauge.certificates.facts.sample import DataSample, model_outputs
from normgauge.certificates.scores import score_rows
from normgauge.core.certificate import Row


def two_layers() -> nn.Sequential:
    """relu(diag(3, 1) x) times diag(2, 5), no biases."""
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.diag(torch.tensor([3.0, 1.0])))
        net[2].weight.copy_(torch.diag(torch.tensor([2.0, 5.0])))
    return net.eval()


def sample(count: int = 60, seed: int = 0) -> DataSample:
    """Points of the plane in the positive quadrant, the larger coordinate is the class."""
    x = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) + 0.1
    return DataSample(x, (x[:, 1] > x[:, 0]).long())


def images(count: int = 80, seed: int = 0) -> DataSample:
    """6x6 images in three classes: where their brightest third is."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    x = torch.randn(count, 1, 6, 6, generator=generator)
    for k in range(3):
        x[labels == k, :, 2 * k : 2 * k + 2] += 1.5
    return DataSample(x, labels)


def conv_net(norm: str | None = "batch") -> nn.Sequential:
    """Two convolutions and a linear map."""
    torch.manual_seed(3)
    kinds: dict[str | None, Any] = {"batch": nn.BatchNorm2d(4), "group": nn.GroupNorm(2, 4), None: nn.Identity()}
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        kinds[norm],
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, stride=2, padding=1),
        copy.deepcopy(kinds[norm]),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(36, 3),
    )


def trained(net: nn.Module, data: DataSample, steps: int = 60) -> nn.Module:
    """A few steps on all samples."""
    assert data.inputs is not None and data.labels is not None
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net.train()
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(data.inputs), data.labels).backward()
        optimizer.step()
    return net.eval()


def case(net: nn.Module, data: DataSample, **more: Any) -> Case:
    """The case of a network and its data."""
    return Case(net, data, model_outputs(net, data), **more)


def scored(net: nn.Module, data: DataSample, *, more: dict[str, Any] | None = None, **facts: Any) -> dict[str, Row]:
    """All rows by key without the prefix."""
    return {row.key.removeprefix("score."): row for row in score_rows(case(net, data, **more or {}), **facts)}


def rescaled(net: nn.Sequential, factors: Tensor) -> nn.Sequential:
    """The same function with the units between the first and the last linear map rescaled."""
    twin = copy.deepcopy(net)
    first, last = twin[0], twin[2]
    assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
    with torch.no_grad():
        first.weight.mul_(factors[:, None])
        if first.bias is not None:
            first.bias.mul_(factors)
        last.weight.div_(factors[None, :])
    return twin
