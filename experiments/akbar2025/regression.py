"""Experiment 2: three hidden layers of ten, full-batch descent on a regression: loss, gradients, Hessian at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.akbar2025 import tasks
from experiments.akbar2025.descent import Descent, first_time, gradients, norms, schedule
from experiments.akbar2025.nets import Shape, Stack
from experiments.akbar2025.spectrum import described, diagonal, hessians, top
from normgauge.geometry.hessian import dense_hessian

LEVELS = (0.3, 0.1, 0.03, 0.01, 0.001)  # of the loss, shares of that of the best constant
LOOKS = 90
SPIKE = 10  # a spike: the gradient norm is so many times its median over 21 steps around


def run(settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Train with and without BatchNorm from the same weights, on the same data.

    Args:
        settings: ``task``, ``points``, ``inputs``, ``hidden``, ``activation``, ``loss``, ``lr``, ``steps``, ``eps``.
        seeds: how many.

    Returns:
        By model: curves, steps to each level, what the loss and the gradient did on the way, the spectrum at the end.
    """
    return {"levels": LEVELS, **{norm: _trained(norm, settings, seeds) for norm in ("batch", "none")}}


def build(settings: Mapping[str, Any], norm: str, seeds: range) -> Stack:
    """The networks of experiment 2."""
    widths = (settings["inputs"], *settings["hidden"], 1)
    return Stack(Shape(widths, norm, settings["activation"], settings["eps"]), seeds)


def _trained(norm: str, settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    x, y = tasks.REGRESSIONS[settings["task"]](range(seeds), settings["points"], settings["inputs"])
    loss = tasks.objective(settings["loss"])
    stack = build(settings, norm, range(seeds))
    descent = Descent(stack, "sgd", settings["lr"])
    still = loss(torch.zeros_like(y), y)  # of the best constant: y has mean 0
    seen = {level: torch.full((seeds,), -1) for level in LEVELS}
    losses, slopes = [], []
    for step in range(settings["steps"] + 1):
        now = loss(stack(x), y)
        grads = gradients(now, stack)
        losses.append(now.detach())
        slopes.append(norms(grads))
        for level, steps in seen.items():
            first_time(steps, now.detach() <= level * still, step)
        if step < settings["steps"]:
            descent.step(grads)
    curve, slope = torch.stack(losses, dim=1), torch.stack(slopes, dim=1)
    looks = schedule(settings["steps"], LOOKS)
    return {
        "steps": looks,
        "loss": curve[:, looks].tolist(),
        "gradient": slope[:, looks].tolist(),
        "reached": {str(level): steps.tolist() for level, steps in seen.items()},
        "loss100": curve[:, min(100, settings["steps"])].tolist(),
        "still": still.tolist(),
        **_course(curve, slope),
        "spectrum": [_spectrum(stack, k, x[k], y[k], settings["loss"]) for k in range(seeds)],
        "scale_free": top(hessians(stack, lambda s: loss(s(x), y)), diagonal(stack)),
    }


def _course(curve: Tensor, slope: Tensor) -> dict[str, Any]:
    """How the loss and the gradient norm went: rises of the loss, spikes of the gradient, their range."""
    windows = slope.unfold(1, min(21, slope.shape[1]), 1)
    middle = windows.median(dim=2).values
    spikes = (windows.amax(dim=2) / middle).nan_to_num(torch.inf)
    return {
        "rises": (curve.diff(dim=1) > 0).double().mean(1).tolist(),
        "worst_rise": (curve[:, 1:] / curve[:, :-1]).amax(1).tolist(),
        "gradient_range": (slope.amax(1) / slope.median(1).values).tolist(),
        "gradient_first": slope[:, 0].tolist(),
        "gradient_peak": slope.amax(1).tolist(),
        "peak_step": slope.argmax(1).tolist(),
        "spike": spikes.amax(1).tolist(),
        "spikes": (spikes > SPIKE).double().sum(1).tolist(),
    }


def _spectrum(stack: Stack, index: int, x: Tensor, y: Tensor, loss: str) -> dict[str, Any] | None:
    """The whole spectrum of one network at the end of training; None where it diverged."""
    if not all(torch.isfinite(p[index]).all() for p in stack.parameters()):
        return None

    def mean(output: Tensor, target: Tensor) -> Tensor:
        return tasks.RESIDUALS[loss](output - target).mean()

    hessian = dense_hessian(stack.one(index), mean, [(x, y)], mode="train")
    return described(torch.linalg.eigvalsh(hessian))
