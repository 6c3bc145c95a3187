"""Small networks, data and the benchmark whose functions the tests share."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@cache
def benchmark() -> ModuleType:
    """benchmarks/curvature.py as a module."""
    place = Path(__file__).parents[3] / "benchmarks" / "curvature.py"
    spec = importlib.util.spec_from_file_location("curvature_benchmark", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def data(samples: int = 40, inputs: int = 6, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Inputs and the class of each."""
    x = torch.randn(samples, inputs, generator=torch.Generator().manual_seed(1))
    return x, x[:, :classes].argmax(1)


def net(norm: nn.Module | None = None, hidden: int = 8) -> nn.Module:
    """Inputs of 6, a normalizer, three classes."""
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(hidden) if norm is None else norm
    return nn.Sequential(nn.Linear(6, hidden), middle, nn.Tanh(), nn.Linear(hidden, 3))


def fitted(model: nn.Module, steps: int = 60, lr: float = 0.3) -> nn.Module:
    """Trained a little, so that eigenvalues stand out."""
    x, y = data()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model.train()(x), y).backward()
        optimizer.step()
    return model
