"""Experiment 4: five layers with ReLU from weights that are far too small or far too large."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch

from experiments.akbar2025 import tasks
from experiments.akbar2025.descent import Descent, first_time, gradients
from experiments.akbar2025.nets import Shape, Stack, scaled
from experiments.akbar2025.tasks import correct, logistic

TRAINED, BEGUN = 0.95, 0.75  # training accuracy
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def run(settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Every scale, the head's weights scaled with the others or left alone, with and without BatchNorm.

    Args:
        settings: ``task``, ``points``, ``inputs``, ``width``, ``depth``, ``scales``, ``lr``, ``steps``, ``eps``,
            ``dtype``.
        seeds: how many.

    Returns:
        By model one row a cell (scale, head): steps to 95 % and to 75 % of the training points, −1 for never; whether
        the loss was no number at the end; accuracy and loss at the end; σ²/(σ² + ε) of the first layer at the start.
    """
    return {norm: _model(norm, settings, seeds) for norm in ("batch", "none")}


def _model(norm: str, settings: Mapping[str, Any], seeds: int) -> list[dict[str, Any]]:
    cells = list(itertools.product((False, True), settings["scales"]))
    dtype = DTYPES[settings["dtype"]]
    x, y = tasks.CLASSES[settings["task"]](range(seeds), settings["points"], settings["inputs"])
    x, y = x.to(dtype).repeat(len(cells), 1, 1), y.to(dtype).repeat(len(cells), 1, 1)
    widths = (settings["inputs"], *[settings["width"]] * (settings["depth"] - 1), 1)
    stack = Stack(Shape(widths, norm, eps=settings["eps"]), [*range(seeds)] * len(cells), dtype)
    scale = torch.tensor([s for _, s in cells for _ in range(seeds)], dtype=torch.float64)
    head = torch.tensor([h for h, _ in cells for _ in range(seeds)])
    scaled(stack, scale)
    with torch.no_grad():
        stack.tensors[f"weight{stack.depth - 1}"].mul_(torch.where(head, scale, 1.0).to(dtype).reshape(-1, 1, 1))
        first = stack.hidden(x)[0].var(1, correction=0).mean(1)
    descent = Descent(stack, "sgd", settings["lr"])
    seen = {"trained": torch.full((len(x),), -1), "begun": torch.full((len(x),), -1)}
    for step in range(settings["steps"]):
        out = stack(x)
        loss = logistic(out, y)
        right = correct(out.detach(), y)
        first_time(seen["trained"], right >= TRAINED, step)
        first_time(seen["begun"], right >= BEGUN, step)
        descent.step(gradients(loss, stack))
    end = logistic(stack(x).detach(), y)
    broken = ~torch.isfinite(end)
    columns = {
        **{name: torch.where(broken, -1, steps) for name, steps in seen.items()},
        "broken": broken.long(),
        "accuracy": right.double(),
        "loss": end.double(),
        "kept": (first / (first + settings["eps"])).double(),
    }
    return [
        {"scale": s, "head": h}
        | {name: column[k * seeds : (k + 1) * seeds].tolist() for name, column in columns.items()}
        for k, (h, s) in enumerate(cells)
    ]
