"""Certificates of networks with and without normalizers: every row of `ng.certify` side by side."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import normgauge as ng
from experiments.generalization import data, nets, train
from experiments.generalization.data import Data
from experiments.generalization.disagreement import cut
from experiments.generalization.place import Place
from experiments.generalization.train import Recipe


def run(settings: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Train a network on the raw training images and certify it.

    Half of the test images are the hold-out, the other half come without labels. No augmentation: D is the sample.

    Args:
        settings: data, net, norm, width, depth, seed, delta, epochs, recipe; limit cuts the data for a quick look.
        place: device, folder, time.

    Returns:
        "errors" of the network on all test images, "certificate" as `ng.certify` gives it and "device", where.

    Raises:
        RuntimeError: where the CPU cannot do it either.
    """
    own = cut(data.load(settings["data"], place.device, place.folder), settings.get("limit"))
    model = nets.build(
        settings["net"],
        settings["norm"],
        own.shape,
        width=settings["width"],
        depth=settings["depth"],
        seed=settings["seed"],
    )
    initial = copy.deepcopy(model.state_dict())
    train.fit(model, own, Recipe(**settings["recipe"]), settings["seed"])
    told = train.errors(model, own)
    model = model.to(memory_format=torch.contiguous_format)
    try:
        made, device = certified(model, own, initial, settings), place.device
    except RuntimeError as error:  # a row that cannot do without the CPU must not cost the table
        if place.device == "cpu":
            raise
        print(f"certified on the CPU: {str(error).splitlines()[0]}", flush=True)
        made, device = certified(model.cpu(), own, initial, settings), "cpu"
    return {"errors": told, "certificate": made.to_json(), "device": device}


def certified(model: nn.Module, own: Data, initial: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Any:
    """The certificate; samples are on the CPU and go to the network's device batch by batch."""
    images, labels = own.real(own.test).cpu(), own.test_labels.cpu()
    half = len(labels) // 2
    return ng.certify(
        model,
        (own.real(own.train).cpu(), own.labels.cpu()),
        holdout=(images[:half], labels[:half]),
        unlabeled=images[half:],
        delta=settings["delta"],
        epochs=settings["epochs"],
        seed=settings["seed"],
        initial=initial,
    )
