"""The networks of the sweep: every point of a grid, those of the first seed first."""

from __future__ import annotations

import itertools
import random
from dataclasses import asdict, dataclass
from typing import Any

GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "mlp": {
        "norm": ("none", "batch", "layer"),
        "depth": (2, 4),
        "width": (96, 256),
        "lr": (0.02, 0.05),
        "batch": (32, 128),
        "decay": (0.0, 1e-3),
    },
    "cnn": {
        "norm": ("none", "batch", "layer", "group"),
        "depth": (2, 3),
        "width": (8, 16),
        "lr": (0.02, 0.05),
        "batch": (32, 128),
        "decay": (0.0, 1e-3),
    },
}
VARIED = ("norm", "depth", "width", "lr", "batch", "decay", "seed")  # the hyperparameters of a kind


@dataclass(frozen=True, slots=True)
class Net:
    """One network: what it is and how it is trained.

    Attributes:
        kind: "mlp" or "cnn".
        norm: "none", "batch", "layer", and "group" for "cnn".
        depth: hidden layers, or convolutions.
        width: units of a hidden layer, or channels of the first convolution; twice that in the others.
        lr: learning rate of SGD with momentum at the first step.
        batch: samples a step.
        decay: weight decay.
        seed: of the weights and of the order of the samples.
        data: "fashion_mnist" or "cifar10".
    """

    kind: str
    norm: str
    depth: int
    width: int
    lr: float
    batch: int
    decay: float
    seed: int
    data: str = "fashion_mnist"

    @property
    def key(self) -> str:
        """All settings joined to one key."""
        return "-".join(str(value) for value in asdict(self).values())


def plan(data: str = "fashion_mnist", seeds: int = 2) -> list[Net]:
    """All networks; within a seed in a random order that is always the same, so that a part is a fair part."""
    made = []
    for seed in range(seeds):
        layer = [
            Net(kind, **dict(zip(grid, values, strict=True)), seed=seed, data=data)
            for kind, grid in GRIDS.items()
            for values in itertools.product(*grid.values())
        ]
        random.Random(seed).shuffle(layer)
        made += layer
    return made
