"""Gradients at initialization against depth: the factor a layer of BatchNorm multiplies them by.

Wide layers and large batches: an activation φ of a normalized input multiplies the squared gradient by
E φ'(z)² / Var φ(z) on the way back, z normal: 1 for the identity, π/(π − 1) = 1.467 for ReLU, 1.18 for tanh.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.akbar2025 import tasks
from experiments.akbar2025.nets import ACTIVATIONS, Shape, Stack

MARGIN = 3  # layers at either end that are left out of the fit


def run(settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """‖∂L/∂h_k‖ of every layer for a loss with a random slope at the output, and the factor per layer.

    Args:
        settings: ``norm``, ``activation``, ``width``, ``depth``, ``batch``.
        seeds: how many.

    Returns:
        Decimal logs of the norms over the layers, first layer first, relative to the last hidden one; the factor a
        layer by a straight line through them; the factor predicted for wide layers and large batches.
    """
    curves, factors = [], []
    widths = (settings["width"],) * (settings["depth"] + 1)
    for seed in range(seeds):  # one at a time: these networks are wide
        stack = Stack(Shape(widths, settings["norm"], settings["activation"]), [seed])
        draws = tasks.generator(seed, "depth")
        x = torch.randn(1, settings["batch"], settings["width"], generator=draws, dtype=torch.float64)
        hidden = stack.hidden(x)
        out = torch.randn(hidden[-1].shape, generator=draws, dtype=torch.float64)
        grads = torch.autograd.grad((hidden[-1] * out).sum(), hidden[:-1])
        logs = torch.stack([g.norm().log10() for g in grads])
        curves.append((logs - logs[-1]).tolist())
        factors.append(10 ** -_line(logs[MARGIN:-MARGIN]))
    predicted = predict(settings["activation"]) if settings["norm"] == "batch" else None
    return {"curves": curves, "factor": factors, "predicted": predicted}


def _line(values: Tensor) -> float:
    """The slope of the straight line of least squares through equally spaced values."""
    at = torch.arange(len(values), dtype=values.dtype)
    at = at - at.mean()
    return float((at * values).sum() / at.square().sum())


def predict(activation: str) -> float:
    """√(E φ'² / Var φ) under a normal distribution, by the trapezoidal rule on [−10, 10]."""
    z = torch.linspace(-10, 10, 200_001, dtype=torch.float64).requires_grad_()
    weight = torch.exp(-(z.detach() ** 2) / 2) / math.sqrt(2 * math.pi)
    value = ACTIVATIONS[activation][0](z)
    (slope,) = torch.autograd.grad(value.sum(), z)
    mean, second, slopes = (torch.trapezoid(f * weight, z).item() for f in (value, value**2, slope**2))
    return math.sqrt(slopes / (second - mean**2))
