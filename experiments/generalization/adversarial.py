"""Lipschitz constants of networks trained on attacked images (projected gradient, ℓ₂) against those trained plainly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.generalization import data, local, nets, train
from experiments.generalization.data import Data
from experiments.generalization.place import Place
from experiments.generalization.train import Perturb, Recipe

TINY = 1e-12


def run(settings: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Train a network for every size of attack, 0 for none, and measure it.

    Args:
        settings: data, samples, net, norm, width, depth, seed, sizes, steps, test_size, radii, points, recipe.
        place: device, folder, time.

    Returns:
        "nets", one row each; "neighbour", the median distance of a training image to the nearest other one.
    """
    everything = data.load(settings["data"], place.device, place.folder)
    chosen, _ = data.split(len(everything.labels), settings["samples"], settings["seed"])
    own = data.subset(everything, chosen)
    unit = place.once("neighbour", lambda: {"distance": local.neighbour(own.real(own.train))})["distance"]
    rows = [place.once(f"attack{size:g}", lambda s=size: _row(settings, own, s, unit)) for size in settings["sizes"]]
    return {"nets": rows, "neighbour": unit}


def attack(size: float, steps: int) -> Perturb:
    """Projected gradient ascent of the loss in the ball of radius ``size`` around each image; pixels stay in [0, 1].

    Args:
        size: radius, Euclidean.
        steps: of 2.5·size/steps each.
    """

    def perturbed(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        was = model.training
        model.eval()  # the attack must not move BatchNorm's statistics
        moved = inputs
        for _ in range(steps):
            at = moved.detach().requires_grad_()
            loss = F.cross_entropy(model(at), labels, reduction="sum")
            slope = torch.autograd.grad(loss, at)[0]
            shift = at.detach() + 2.5 * size / steps * slope / (_length(slope) + TINY) - inputs
            shift = shift * (size / (_length(shift) + TINY)).clamp(max=1.0)
            moved = (inputs + shift).clamp(0.0, 1.0)
        model.train(was)
        return moved.detach()

    return perturbed


def _length(images: Tensor) -> Tensor:
    return images.flatten(1).norm(dim=1).view(-1, 1, 1, 1)


def _row(settings: Mapping[str, Any], own: Data, size: float, unit: float) -> dict[str, Any]:
    model = nets.build(
        settings["net"],
        settings["norm"],
        own.shape,
        width=settings["width"],
        depth=settings["depth"],
        seed=settings["seed"],
    )
    perturb = attack(size, settings["steps"]) if size else None
    train.fit(model, own, Recipe(**settings["recipe"]), settings["seed"], perturb=perturb)
    told = {"attack": size, **train.errors(model, own)}
    told["attacked_error"] = attacked(model, own, attack(settings["test_size"], settings["steps"]))
    radii = [r * unit for r in settings["radii"]]
    return {**told, **local.constants(model, own, radii, settings["points"])}


def attacked(model: nn.Module, own: Data, perturb: Perturb, limit: int = 2000) -> float:
    """The error on attacked test images: a lower bound of the worst there is."""
    wrong = 0
    model.eval()
    images, labels = own.test[:limit], own.test_labels[:limit]
    for part, wanted in zip(torch.split(images, 500), torch.split(labels, 500), strict=True):
        moved = perturb(model, own.real(part), wanted)
        with torch.no_grad():
            wrong += int((model(moved).argmax(1) != wanted).sum())
    return wrong / len(labels)
