"""BatchNorm with dropout, momentum and Adam: accuracy, speed, and what becomes of orthogonal updates and of σ."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.akbar2025 import margins
from experiments.akbar2025.descent import Descent, first_time, gradients
from experiments.akbar2025.nets import Shape, Stack
from experiments.akbar2025.tasks import Pair, correct, logistic


def run(settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Train two hidden layers with every pairing of optimizer and dropout, with and without BatchNorm.

    Args:
        settings: those of margins, with ``lrs`` by optimizer, ``drops``, ``widths``.
        seeds: how many.

    Returns:
        One row a cell with lists over seeds: epochs to 95 % and to all training points in eval mode, accuracies at
        the end, and with BatchNorm the largest |cos| of an update with its weight vector (each epoch ends with a step
        on all training points, which is looked at), the growth of ‖w‖, and the variance before the second normalizer
        in eval mode over its running variance.
    """
    train, test = margins.data(settings, seeds)
    rows = []
    for norm, (rule, lr), drop in itertools.product(("batch", "none"), settings["lrs"].items(), settings["drops"]):
        widths = (settings["inputs"], *settings["widths"], 1)
        stack = Stack(Shape(widths, norm, dropout=drop), range(seeds))
        rows.append({"norm": norm, "rule": rule, "drop": drop} | _cell(stack, rule, lr, train, test, settings))
    return {"rows": rows}


def _cell(stack: Stack, rule: str, lr: float, train: Pair, test: Pair, settings: Mapping[str, Any]) -> dict[str, Any]:
    descent = Descent(stack, rule, lr)
    seen = {level: torch.full((stack.count,), -1) for level in (0.95, 1.0)}
    start, turned = _rows(stack), torch.zeros(stack.count, dtype=torch.float64)
    for epoch in margins.epochs(stack, descent, train, settings["batch"], settings["epochs"]):
        with torch.no_grad():
            right = correct(stack.eval()(train[0]), train[1])
            stack.train()
        for level, epochs in seen.items():
            first_time(epochs, right >= level, epoch)
        if stack.normalized(0):
            before = _rows(stack)
            descent.step(gradients(logistic(stack(train[0]), train[1]), stack))
            cosines = torch.cosine_similarity(_rows(stack) - before, before, dim=2)
            turned = torch.maximum(turned, cosines.abs().amax(1))
    with torch.no_grad():
        stack.eval()
        hidden = stack.hidden(train[0])
        made: dict[str, Any] = {
            "train": correct(hidden[-1], train[1]).tolist(),
            "test": correct(stack(test[0]), test[1]).tolist(),
            "test_loss": logistic(stack(test[0]), test[1]).tolist(),
            "to95": seen[0.95].tolist(),
            "to100": seen[1.0].tolist(),
        }
    if stack.normalized(0):
        made["radial"] = turned.tolist()
        made["growth"] = (_rows(stack).norm(dim=2) / start.norm(dim=2)).mean(1).tolist()
        made["variance"] = (hidden[1].var(1) / stack.get_buffer("var1")[:, 0]).mean(1).tolist()
    return made


def _rows(stack: Stack) -> Tensor:
    """The weight vectors of the first layer, (networks, units, inputs)."""
    return stack.tensors["weight0"].detach().clone()
