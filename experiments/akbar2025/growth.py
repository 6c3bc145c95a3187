"""How ‖w‖ grows: gradient descent at several learning rates over the same time, against gradient flow.

A scale-free gradient is at right angles to its weight vector, so ‖w'‖² = ‖w‖² + η²‖∇‖² in a step, and over a time
T = steps · η the growth is Σ η²‖∇‖² ≈ η ∫‖∇‖² dt: it falls with η, and the flow keeps ‖w‖.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.akbar2025 import tasks
from experiments.akbar2025.descent import gradients
from experiments.akbar2025.nets import Shape, Stack


def run(settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Descend and flow with normalizers.

    Args:
        settings: ``norm``, ``eps``, ``task``, ``points``, ``inputs``, ``hidden``, ``activation``, ``time``, ``lrs``,
            ``flow`` (step of the Runge-Kutta flow).
        seeds: how many.

    Returns:
        For each learning rate, and for the flow: growth of Σ‖w‖² over all scale-free vectors relative to the start,
        Σ η²‖∇‖² relative to the same and how far they are apart, the largest growth of one vector, the loss at the end.
    """
    x, y = tasks.REGRESSIONS[settings["task"]](range(seeds), settings["points"], settings["inputs"])
    loss = tasks.objective("mse")

    def slopes(stack: Stack) -> tuple[Tensor, ...]:
        return gradients(loss(stack(x), y), stack)

    rows = []
    for lr in (*settings["lrs"], 0.0):
        widths = (settings["inputs"], *settings["hidden"], 1)
        stack = Stack(Shape(widths, settings["norm"], settings["activation"], settings["eps"]), range(seeds))
        before = stack.rows().detach().square()
        pushed = torch.zeros(seeds, dtype=torch.float64)
        for _ in range(round(settings["time"] / (lr or settings["flow"]))):
            if lr:
                grads = slopes(stack)
                pushed += lr**2 * _pushes(stack, grads)
                _move(stack, grads, -lr)
            else:
                _flow(stack, slopes, settings["flow"])
        after = stack.rows().detach().square()
        rows.append(
            {
                "lr": lr,
                "growth": ((after.sum(1) - before.sum(1)) / before.sum(1)).tolist(),
                "pushed": (pushed / before.sum(1)).tolist(),
                "gap": ((after.sum(1) - before.sum(1) - pushed) / before.sum(1)).abs().tolist(),
                "largest": ((after / before).sqrt() - 1).abs().amax(1).tolist(),
                "loss": loss(stack(x), y).detach().tolist(),
            }
        )
    return {"rows": rows}


def _pushes(stack: Stack, grads: Sequence[Tensor]) -> Tensor:
    """Σ‖∇‖² over the weights before normalizers."""
    named = zip(stack.tensors.keys(), grads, strict=True)
    free = [g for name, g in named if name.startswith("weight") and stack.normalized(int(name[6:]))]
    return torch.stack([g.flatten(1).square().sum(1) for g in free]).sum(0)


def _move(stack: Stack, directions: Sequence[Tensor], by: float) -> None:
    with torch.no_grad():
        for p, d in zip(stack.parameters(), directions, strict=True):
            p.add_(d, alpha=by)


def _flow(stack: Stack, slopes: Any, h: float) -> None:
    """One Runge-Kutta step of the gradient flow: four gradients, error of the fifth order."""
    first = slopes(stack)
    _move(stack, first, -h / 2)
    second = slopes(stack)
    _move(stack, [b - a for a, b in zip(first, second, strict=True)], -h / 2)
    third = slopes(stack)
    _move(stack, [c - b / 2 for b, c in zip(second, third, strict=True)], -h)
    fourth = slopes(stack)
    four = zip(first, second, third, fourth, strict=True)
    _move(stack, [(a + 2 * b - 4 * c + d) / 6 for a, b, c, d in four], -h)
