"""Accuracy on the training points under weight noise: raw, scale-free, and raw in another gauge."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.akbar2025 import tasks
from experiments.akbar2025.nets import Stack
from experiments.akbar2025.tasks import correct

LEVELS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 1.6)
GAUGES = (1.0, 0.1, 10.0)
KEPT = 0.95  # accuracy that counts as retained


def noises(stack: Stack, pair: tasks.Pair, draws: int) -> dict[str, Any]:
    """Mean accuracy over draws at each level, one list a seed, and the level at which it falls below 95 %.

    raw: N(0, s²) on every parameter;   free: N(0, s² ‖w_l‖²/n_l) on parameter tensor l, which no rescaling moves
    x0.1, x10: raw noise on the same function with the weights before the normalizers times 0.1 and 10

    Args:
        stack: in eval mode; as before at the end.
        pair: inputs and labels.
        draws: of the noise.

    Returns:
        Accuracies and tolerances by kind.
    """
    state = {name: value.clone() for name, value in stack.state_dict().items()}
    made: dict[str, Any] = {"levels": LEVELS}
    for kind in ("raw", "free", *(f"x{g:g}" for g in GAUGES[1:] if stack.normalized(0))):
        if kind.startswith("x"):
            regauge(stack, float(kind[1:]))
        at = _curve(stack, pair, draws, free=kind == "free")
        made[kind] = {"accuracy": at.mT.tolist(), "tolerance": [tolerance(row.tolist()) for row in at.mT]}
        stack.load_state_dict(state)
    return made


def regauge(stack: Stack, factor: float) -> None:
    """Multiply the weights before BatchNorm and its statistics: the same function in eval mode, up to rounding."""
    with torch.no_grad():
        for k in range(stack.depth - 1):
            stack.tensors[f"weight{k}"].mul_(factor)
            stack.get_buffer(f"mean{k}").mul_(factor)
            var = stack.get_buffer(f"var{k}")
            var.copy_((var + stack.shape.eps) * factor**2 - stack.shape.eps)


def _curve(stack: Stack, pair: tasks.Pair, draws: int, *, free: bool) -> Tensor:
    """Accuracies (levels, networks); the same draws at every level."""
    base = [p.detach().clone() for p in stack.parameters()]
    sizes = [p.flatten(1).norm(dim=1).reshape(-1, 1, 1) / p[0].numel() ** 0.5 if free else 1.0 for p in base]
    total = torch.zeros(len(LEVELS), stack.count, dtype=torch.float64)
    with torch.no_grad():
        for draw in range(draws):
            drawn = tasks.generator(draw, "weight noise")
            noise = [torch.randn(p.shape, generator=drawn, dtype=p.dtype) * s for p, s in zip(base, sizes, strict=True)]
            for k, level in enumerate(LEVELS):
                for p, b, n in zip(stack.parameters(), base, noise, strict=True):
                    p.copy_(b + level * n)
                total[k] += correct(stack(pair[0]), pair[1])
    return total / draws


def tolerance(accuracy: list[float]) -> float:
    """The level where accuracy first falls below 95 %, along a line between levels; the last level if it does not."""
    if accuracy[0] < KEPT:
        return 0.0
    for k in range(1, len(LEVELS)):
        if accuracy[k] < KEPT:
            part = (accuracy[k - 1] - KEPT) / (accuracy[k - 1] - accuracy[k])
            return LEVELS[k - 1] + part * (LEVELS[k] - LEVELS[k - 1])
    return LEVELS[-1]
