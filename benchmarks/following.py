"""Networks that do not train on digits, and what becomes of them when the advice is followed; used by advice.py."""

from __future__ import annotations

import copy
import random
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

import normgauge as ng
from normgauge.advice import insert_norm
from normgauge.lab.training import model_accuracy, train
from normgauge.lab.zoo import digits, mlp

# depth of a plain ReLU MLP of width 64, and its weights: torch's own, or He's times a factor
FAILING = {
    "vanishing, default weights": (26, None),
    "vanishing, He times 0.4": (20, 0.4),
    "exploding, He times 2.5": (20, 2.5),
    "exploding, He times 2": (24, 2.0),
}
EPOCHS, LR = 20, 1e-3


@dataclass(frozen=True)
class Followed:
    """Accuracies after the same training, by what was inserted."""

    start: str
    seed: int
    kind: str
    places: tuple[str, ...]
    none: float
    advised: float
    one_elsewhere: float
    same_number_elsewhere: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def failing(start: str, seed: int) -> nn.Module:
    """A network that stays near chance."""
    depth, factor = FAILING[start]
    torch.manual_seed(seed)
    model = mlp((64, *[64] * depth, 10))
    for module in model.modules():
        if factor is not None and isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)
            with torch.no_grad():
                module.weight.mul_(factor)
    return model


def trained_accuracy(model: nn.Module, seed: int, epochs: int = EPOCHS) -> float:
    """Accuracy on the test digits after training a copy."""
    twin = copy.deepcopy(model)
    torch.set_flush_denormal(True)  # faded gradients are denormal, and a hundred times slower
    try:
        train(twin, digits("train"), epochs=epochs, batch_size=64, lr=LR, seed=seed)
    finally:
        torch.set_flush_denormal(False)
    return model_accuracy(twin, digits("test"))


def follow(start: str, seed: int, epochs: int = EPOCHS) -> Followed:
    """Train as it is, as advised, and with normalizers at random other places."""
    model = failing(start, seed)
    (remark,) = ng.advise(model, digits("train", limit=64).inputs, facts=False).problems
    assert remark.fix is not None
    fix = remark.fix
    others = [name for name in (f"layers.{k}.linear" for k in range(len(model.layers))) if name not in fix.places]
    draw = random.Random(seed)
    many = draw.sample(others, min(len(fix.places), len(others)))
    return Followed(
        start,
        seed,
        remark.kind,
        fix.places,
        none=trained_accuracy(model, seed, epochs),
        advised=trained_accuracy(insert_norm(model, fix.places, fix.kind), seed, epochs),
        one_elsewhere=trained_accuracy(insert_norm(model, draw.choice(others), fix.kind), seed, epochs),
        same_number_elsewhere=trained_accuracy(insert_norm(model, many, fix.kind), seed, epochs),
    )
