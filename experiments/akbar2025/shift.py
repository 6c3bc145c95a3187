"""Inputs that change scale or mean after training: accuracy with running statistics, with those of the batch, plain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from experiments.akbar2025 import margins
from experiments.akbar2025.descent import Descent
from experiments.akbar2025.nets import Shape, Stack
from experiments.akbar2025.tasks import correct

MODELS = {"batch, running": "batch", "batch, own": "batch", "layer": "layer", "none": "none", "no biases": "none"}


def run(settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Train as in experiment 3, test on c x and on x + d u with a random unit vector u a seed.

    Args:
        settings: those of margins, and ``factors``, ``offsets``.
        seeds: how many.

    Returns:
        Test accuracy over seeds at each factor and each offset, by model.
    """
    train, (x, y) = margins.data(settings, seeds)
    draws = torch.Generator().manual_seed(7)
    away = torch.nn.functional.normalize(torch.randn(seeds, 1, x.shape[2], generator=draws, dtype=x.dtype), dim=2)
    made: dict[str, Any] = {"factors": list(settings["factors"]), "offsets": list(settings["offsets"])}
    for name, norm in MODELS.items():
        # without biases f(c x) = c f(x): no factor changes a sign
        shape = Shape((settings["inputs"], settings["hidden"], 1), norm, biases=name != "no biases")
        stack = Stack(shape, range(seeds))
        descent = Descent(stack, settings["rule"], settings["lr"])
        for _ in margins.epochs(stack, descent, train, settings["batch"], settings["epochs"]):
            pass
        stack.train(name == "batch, own")
        with torch.no_grad():
            made[name] = {
                "factor": [correct(stack(c * x), y).tolist() for c in settings["factors"]],
                "offset": [correct(stack(x + d * away), y).tolist() for d in settings["offsets"]],
            }
    return made
