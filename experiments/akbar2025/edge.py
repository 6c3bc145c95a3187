"""Edge of stability: where the largest curvature settles, with and without BatchNorm, for three optimizers.

gradient descent: η λ_max(H) → 2;   momentum β: η λ_max(H) → 2 (1 + β);   Adam: η λ_max(P^-½ H P^-½) → 2 (1 + β)/(1 − β)

The last is Cohen et al., arXiv 2207.14484; P = diag(√v̂ + 1e-8). Beside it λ_max(D H D), D = ‖w_l‖ of each tensor,
which no rescaling of the weights moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.akbar2025 import tasks
from experiments.akbar2025.descent import BETA, Descent, gradients
from experiments.akbar2025.nets import Shape, Stack
from experiments.akbar2025.spectrum import diagonal, hessians, top

LIMITS = {"sgd": 2.0, "momentum": 2 * (1 + BETA), "adam": 2 * (1 + BETA) / (1 - BETA)}


def run(settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Train full-batch and take the Hessian of every network now and then.

    Args:
        settings: ``norm``, ``rule``, ``lr``, ``task``, ``points``, ``inputs``, ``hidden``, ``activation``, ``steps``,
            ``every``.
        seeds: how many.

    Returns:
        Steps, and a list over seeds at each of them: the loss, η λ_max of the Hessian, of the preconditioned one, the
        scale-free one; and the optimizer's limit.
    """
    x, y = tasks.REGRESSIONS[settings["task"]](range(seeds), settings["points"], settings["inputs"])
    loss = tasks.objective("mse")
    widths = (settings["inputs"], *settings["hidden"], 1)
    stack = Stack(Shape(widths, settings["norm"], settings["activation"]), range(seeds))
    descent = Descent(stack, settings["rule"], settings["lr"])
    made: dict[str, Any] = {"limit": LIMITS[settings["rule"]], "steps": [], "loss": []}
    made |= {"sharpness": [], "preconditioned": [], "scale_free": []}
    for step in range(settings["steps"] + 1):
        now = loss(stack(x), y)
        if step % settings["every"] == 0:
            made["steps"].append(step)
            made["loss"].append(now.detach().tolist())
            for key, values in _look(stack, descent, lambda s: loss(s(x), y)).items():
                made[key].append([settings["lr"] * value for value in values])
        descent.step(gradients(now, stack))
    # the scale-free sharpness is a number of the network: it has no learning rate in it
    made["scale_free"] = [[value / settings["lr"] for value in row] for row in made["scale_free"]]
    return made


def _look(stack: Stack, descent: Descent, losses: Any) -> dict[str, list[float]]:
    hessian = hessians(stack, losses)
    plain = top(hessian)
    adam = descent.rule == "adam" and descent.steps > 0
    scales: list[Tensor] = [descent.scales(k) for k in range(len(descent.params))] if adam else []
    return {
        "sharpness": plain,
        "preconditioned": top(hessian, torch.rsqrt(diagonal(stack, scales))) if adam else plain,
        "scale_free": top(hessian, diagonal(stack)),
    }
