"""Proved local constants of ReLU perceptrons that use which units are off all over a ball.

The gauge's own constant of a ball tightens normalizers only: without LayerNorm it is the global one. Here, for one
centre x₀ and radius r, the carried radius ρ_k bounds ‖h_k(x) − h_k(x₀)‖ over the ball. A unit i of layer k moves by at
most ‖w_i‖ρ_{k−1}; where its value at x₀ is below minus that it is off all over the ball, and its row, and its column in
the next layer, fall away:

    L ≤ Π_k ‖W_k[on_k, on_{k−1}]‖₂,   ρ_k = ‖W_k[on_k, on_{k−1}]‖₂·ρ_{k−1}

Holds:  perceptrons with ReLU and BatchNorm in eval mode or no normalizer, in exact arithmetic (norms in double
        precision, not rounded outwards).
Source: ours; the recursion of THEORY section 6 without the coordinates that stay 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

Layer = tuple[Tensor, Tensor]  # weight (out, in) and bias (out,), normalizer folded in


def folded(model: nn.Module) -> list[Layer] | None:
    """The linear maps of a perceptron with its BatchNorm layers folded in; None where that cannot be done."""
    layers: list[Layer] = []
    for module in model.modules():
        if isinstance(module, nn.Linear):
            layers.append((module.weight.detach().double(), module.bias.detach().double()))
        elif isinstance(module, nn.BatchNorm1d) and layers:
            gain = module.weight.detach().double() / torch.sqrt(_stored(module.running_var) + module.eps)
            weight, bias = layers[-1]
            layers[-1] = (
                gain[:, None] * weight,
                gain * (bias - _stored(module.running_mean)) + module.bias.detach().double(),
            )
        elif not isinstance(module, nn.ReLU) and not any(module.children()):
            return None
    return layers


def _stored(statistic: Tensor | None) -> Tensor:
    if statistic is None:
        raise ValueError("BatchNorm without running statistics has no eval mode")
    return statistic.double()


def bound(layers: list[Layer], centre: Tensor, radius: float) -> float:
    """The decimal log of the Lipschitz constant over the ball, proved."""
    value, moved, log = centre.flatten().double(), radius, 0.0
    alive = torch.ones_like(value, dtype=torch.bool)  # coordinates that may move
    for k, (weight, bias) in enumerate(layers):
        before = weight @ value + bias
        last = k == len(layers) - 1
        own = weight[:, alive]
        # a unit is off all over the ball where even its largest value is negative
        kept = torch.ones_like(before, dtype=torch.bool) if last else before + own.norm(dim=1) * moved >= 0
        norm = float(torch.linalg.matrix_norm(own[kept], ord=2)) if bool(kept.any()) else 0.0
        if norm == 0.0:
            return -math.inf
        log, moved, alive = log + math.log10(norm), moved * norm, kept
        value = before if last else before.relu()
    return log


def largest(model: nn.Module, centres: Tensor, radius: float) -> float | None:
    """The largest constant over the balls around some inputs, decimal log; None for other networks."""
    layers = folded(model)
    return None if layers is None else max(bound(layers, centre, radius) for centre in centres)
