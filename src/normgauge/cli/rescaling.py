"""A rescaling of a BatchNorm network that leaves its function alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import nn


def rescaled(model: nn.Module, low: float, high: float, seed: int = 0) -> nn.Module:
    """A float64 copy whose linear layers before a BatchNorm are rescaled channel by channel.

    (W_c, b_c, mean_c) → t_c (W_c, b_c, mean_c),   var_c → t_c² (var_c + ε) − ε,   log10 t_c uniform in [low, high]

    so that √(var + ε) → t √(var + ε) and the normalized value is the same.

    Holds:  in eval mode, for t_c² ≥ ε / (var_c + ε), below which the new variance would be negative; smaller
            factors are raised to twice that floor.
    """
    twin = copy.deepcopy(model).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for linear, norm in normalized_linears(twin):
            _rescale(linear, norm, low, high, generator)
    return twin


def normalized_linears(model: nn.Module) -> Iterator[tuple[nn.Linear, nn.BatchNorm1d]]:
    """The pairs of a linear layer and the BatchNorm that directly follows it inside an `nn.Sequential`."""
    for stack in model.modules():
        if isinstance(stack, nn.Sequential):
            for first, second in pairwise(stack):
                if isinstance(first, nn.Linear) and isinstance(second, nn.BatchNorm1d):
                    yield first, second


def _rescale(linear: nn.Linear, norm: nn.BatchNorm1d, low: float, high: float, generator: torch.Generator) -> None:
    mean, var = norm.running_mean, norm.running_var
    assert mean is not None and var is not None  # zoo networks keep running statistics
    drawn = torch.rand(len(var), generator=generator, dtype=torch.float64)
    variance = var + norm.eps
    t = torch.maximum(10 ** (low + (high - low) * drawn), 2 * (norm.eps / variance).sqrt())
    linear.weight.mul_(t[:, None])
    linear.bias.mul_(t)
    mean.mul_(t)
    var.copy_(t**2 * variance - norm.eps)
