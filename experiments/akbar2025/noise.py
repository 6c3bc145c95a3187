"""Noise of the gradient by batch size: of the samples, of BatchNorm's statistics, and the bias they leave.

g(B, S) is the gradient on batch B with statistics of S. Samples: E‖g(B, all) − g(all, all)‖²; statistics:
E‖g(B, B) − g(B, all)‖²; bias: ‖E g(B, B) − g(all, all)‖². All relative to ‖g(all, all)‖², at weights of experiment 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.akbar2025 import margins, tasks
from experiments.akbar2025.descent import Descent, gradients
from experiments.akbar2025.nets import Shape, Stack
from experiments.akbar2025.tasks import logistic


def run(settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Measure at the start and after some epochs.

    Args:
        settings: those of margins, and ``batches``, ``draws``, ``epochs``.
        seeds: how many.

    Returns:
        By moment and batch size: samples, statistics, bias, and the cosine of a step's gradient with the full one,
        over seeds; the samples alone for the plain network.
    """
    train, _ = margins.data(settings, seeds)
    made: dict[str, Any] = {"batches": list(settings["batches"])}
    for norm in ("batch", "none"):
        stack = Stack(Shape((settings["inputs"], settings["hidden"], 1), norm), range(seeds))
        descent = Descent(stack, "sgd", settings["lr"])
        made[norm] = {"start": [_measured(stack, train, b, settings["draws"]) for b in settings["batches"]]}
        for _ in margins.epochs(stack, descent, train, settings["batch"], settings["epochs"]):
            pass
        made[norm]["trained"] = [_measured(stack, train, b, settings["draws"]) for b in settings["batches"]]
    return made


def _flat(stack: Stack, losses: Tensor) -> Tensor:
    return torch.cat([g.flatten(1) for g in gradients(losses, stack)], dim=1)


def _measured(stack: Stack, pair: tasks.Pair, batch: int, draws: int) -> dict[str, Any]:
    x, y = pair
    at = torch.arange(len(x))[:, None]
    full = _flat(stack, logistic(stack(x), y))
    size = full.square().sum(1)
    sampled, noisy, cosine = (torch.zeros(len(x), dtype=torch.float64) for _ in range(3))
    mean = torch.zeros_like(full)
    streams = [tasks.generator(seed, f"noise {batch}") for seed in range(len(x))]
    for _ in range(draws):
        rows = torch.stack([torch.randperm(x.shape[1], generator=g)[:batch] for g in streams])
        own = _flat(stack, logistic(stack(x[at, rows]), y[at, rows]))
        shared = _flat(stack, logistic(stack(x)[at, rows], y[at, rows])) if stack.normalized(0) else own
        sampled += (shared - full).square().sum(1) / draws
        noisy += (own - shared).square().sum(1) / draws
        cosine += torch.cosine_similarity(own, full) / draws
        mean += own / draws
    # the mean of so many draws carries its own noise, which is taken off
    spread = (sampled + noisy) / draws
    bias = ((mean - full).square().sum(1) - spread).clamp(min=0)
    parts = {"samples": sampled, "statistics": noisy, "bias": bias}
    return {name: (value / size).tolist() for name, value in parts.items()} | {"cosine": cosine.tolist()}
