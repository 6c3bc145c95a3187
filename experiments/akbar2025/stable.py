"""The largest stable learning rate with and without BatchNorm, by bisection, and what each learning rate reaches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.akbar2025 import tasks
from experiments.akbar2025.descent import Descent, gradients
from experiments.akbar2025.nets import Shape, Stack, scaled

LOW, HIGH = 1e-3, 1e3  # where the bisection begins
TAIL = 10  # last steps whose loss is averaged


def run(settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Bisect in the logarithm, one learning rate a seed, and scan a grid of learning rates.

    Args:
        settings: ``task``, ``points``, ``inputs``, ``hidden``, ``activation``, ``rule``, ``steps``, ``rounds``,
            ``grid``, ``scale`` (of the hidden weights), ``worst`` (stable: the loss never exceeds so many times its
            first value, and ends below it).
        seeds: how many.

    Returns:
        By model: the largest stable learning rate of each seed; over the grid the loss reached and whether it was
        stable; the best learning rate of the grid and its loss.
    """
    made: dict[str, Any] = {"grid": list(settings["grid"])}
    for norm in ("batch", "none"):
        low = torch.full((seeds,), LOW, dtype=torch.float64).log()
        high = torch.full((seeds,), HIGH, dtype=torch.float64).log()
        for _ in range(settings["rounds"]):
            middle = (low + high) / 2
            fine, _ = _attempt(norm, settings, [*range(seeds)], middle.exp())
            low, high = torch.where(fine, middle, low), torch.where(fine, high, middle)
        made[norm] = {"largest": low.exp().tolist(), **_scan(norm, settings, seeds)}
    return made


def _scan(norm: str, settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    grid = settings["grid"]
    lr = torch.tensor([value for value in grid for _ in range(seeds)], dtype=torch.float64)
    fine, end = _attempt(norm, settings, [*range(seeds)] * len(grid), lr)
    fine, end = fine.reshape(len(grid), seeds), end.reshape(len(grid), seeds)
    end = torch.where(fine, end, torch.inf)
    return {
        "stable": fine.mT.long().tolist(),
        "reached": end.mT.tolist(),
        "best": end.amin(0).tolist(),
        "best_lr": [grid[k] for k in end.argmin(0)],
    }


def _attempt(norm: str, settings: Mapping[str, Any], seeds: list[int], lr: Tensor) -> tuple[Tensor, Tensor]:
    """Train; whether it was stable, and the mean loss of the last steps."""
    x, y = tasks.REGRESSIONS[settings["task"]](range(max(seeds) + 1), settings["points"], settings["inputs"])
    x, y = x[seeds], y[seeds]
    loss = tasks.objective("mse")
    stack = Stack(Shape((settings["inputs"], *settings["hidden"], 1), norm, settings["activation"]), seeds)
    scaled(stack, settings["scale"])
    descent = Descent(stack, settings["rule"], lr)
    losses = []
    for _ in range(settings["steps"]):
        now = loss(stack(x), y)
        losses.append(now.detach())
        descent.step(gradients(now, stack))
    curve = torch.stack(losses, dim=1)
    end = curve[:, -TAIL:].mean(1)
    fine = torch.isfinite(curve).all(1) & (curve.amax(1) <= settings["worst"] * curve[:, 0]) & (end < curve[:, 0])
    return fine, end
