"""Error and gap against the number of training samples, with and without normalizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.generalization import data, nets, train
from experiments.generalization.data import Data
from experiments.generalization.place import Place
from experiments.generalization.train import Recipe


def run(settings: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Train one network for every size.

    Args:
        settings: data, net, norm, width, depth, seed, sizes, steps, epochs, recipe.
        place: device, folder, time.

    Returns:
        "sizes", one row each: the size, errors, losses and gaps.
    """
    own = data.load(settings["data"], place.device, place.folder)
    order, _ = data.split(len(own.labels), len(own.labels) - 1, settings["seed"])
    sizes = [size for size in settings["sizes"] if size < len(own.labels)] or [len(order)]
    rows = [
        # a larger sample holds the smaller ones, so that a curve over sizes is one of the same draw
        place.once(f"m{size}", lambda m=size: _row(settings, data.subset(own, order[:m])))
        for size in sizes
    ]
    return {"sizes": rows}


def epochs(count: int, batch: int, steps: int, least: int) -> int:
    """Passes through the data: ``steps`` steps, or ``least`` passes where these are more.

    >>> epochs(250, 125, 2000, 10), epochs(50_000, 125, 2000, 10)
    (1000, 10)
    """
    return max(least, steps // max(1, count // batch))


def _row(settings: Mapping[str, Any], own: Data) -> dict[str, Any]:
    count = len(own.labels)
    recipe = Recipe(
        epochs=epochs(count, settings["batch"], settings["steps"], settings["epochs"]),
        batch=settings["batch"],
        **settings["recipe"],
    )
    model = nets.build(
        settings["net"],
        settings["norm"],
        own.shape,
        width=settings["width"],
        depth=settings["depth"],
        seed=settings["seed"],
    )
    train.fit(model, own, recipe, settings["seed"])
    return {"m": count, "epochs": recipe.epochs, **train.errors(model, own)}
