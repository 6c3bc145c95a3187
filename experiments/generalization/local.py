"""Local against global Lipschitz constants of many small perceptrons: which of them follows the gap?

The constants are those of the logits in the pixels: proved for all inputs, proved within r of training images, proved
at the images, and the mean norm of the Jacobian there. Each is also divided by the median margin, as in the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import normgauge as ng
from experiments.generalization import data, masked, nets, train
from experiments.generalization.data import Data
from experiments.generalization.place import Place
from experiments.generalization.train import Recipe

IMAGES = 256  # at which the Jacobian is taken


def run(settings: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Train a network for every weight decay and share of noise, and measure it.

    Args:
        settings: data, samples, norm, width, depth, decays, noises, radii, points, seed, recipe.
        place: device, folder, time.

    Returns:
        "nets", one row each; "neighbour", the median distance of a training image to the nearest other one.
    """
    everything = data.load(settings["data"], place.device, place.folder)
    chosen, _ = data.split(len(everything.labels), settings["samples"], settings["seed"])
    own = data.subset(everything, chosen)
    unit = place.once("neighbour", lambda: {"distance": neighbour(own.real(own.train))})["distance"]
    rows = [
        place.once(f"decay{decay:g}-noise{noise:g}", lambda d=decay, n=noise: _row(settings, own, d, n, unit))
        for decay in settings["decays"]
        for noise in settings["noises"]
    ]
    return {"nets": rows, "neighbour": unit}


def _row(settings: Mapping[str, Any], own: Data, decay: float, noise: float, unit: float) -> dict[str, Any]:
    clouded = data.noisy(own, noise, settings["seed"])
    model = nets.build(
        "mlp", settings["norm"], own.shape, width=settings["width"], depth=settings["depth"], seed=settings["seed"]
    )
    train.fit(model, clouded, Recipe(**{**settings["recipe"], "decay": decay}), settings["seed"])
    told = {"decay": decay, "noise": noise, **train.errors(model, clouded)}
    return {**told, **constants(model, clouded, [r * unit for r in settings["radii"]], settings["points"])}


def constants(model: nn.Module, own: Data, radii: list[float], points: int) -> dict[str, Any]:
    """Lipschitz constants of a trained network at training images, around them and everywhere, as decimal logs.

    Args:
        model: in eval mode.
        own: its data.
        radii: of the balls, in pixels scaled to [0, 1].
        points: training images the proved constants are for.

    Returns:
        "global", "point", "balls" with one number a radius and "masked" likewise (proved; None where
        `masked` knows nothing), "jacobian_mean", "jacobian_max" (observed) and
        "margin", the median over the training images.
    """
    model = model.to("cpu", memory_format=torch.contiguous_format).eval()
    scopes = ["global", "point", *(f"ball:{r!r}" for r in radii)]
    batch = own.real(own.train[:points]).cpu()
    upper = [r.log10_upper for r in ng.readings(model, batch, scopes, search=False)]
    seen = jacobians(model, own.real(own.train[:IMAGES]).cpu())
    return {
        "global": upper[0],
        "point": upper[1],
        "balls": upper[2:],
        "masked": [masked.largest(model, batch, r) for r in radii],
        "jacobian_mean": math.log10(float(seen.mean())),
        "jacobian_max": math.log10(float(seen.max())),
        "margin": median_margin(model, own),
    }


def jacobians(model: nn.Module, inputs: Tensor) -> Tensor:
    """‖∂logits/∂x‖₂ at each input; in eval mode no image has to do with another."""
    x = inputs.clone().requires_grad_()
    outputs = model(x)
    rows = [torch.autograd.grad(outputs[:, k].sum(), x, retain_graph=True)[0] for k in range(outputs.shape[1])]
    return torch.linalg.matrix_norm(torch.stack(rows, 1).flatten(2).double(), ord=2)


def median_margin(model: nn.Module, own: Data) -> float:
    """The median over the training images of the right logit minus the largest other."""
    cpu = Data(own.train.cpu(), own.labels.cpu(), own.test, own.test_labels, own.scale)
    said = train.logits(model, cpu, cpu.train)
    right = said.gather(1, cpu.labels[:, None])[:, 0]
    others = said.scatter(1, cpu.labels[:, None], -math.inf).amax(1)
    return float((right - others).median())


def neighbour(images: Tensor, limit: int = 2000) -> float:
    """The median distance from an image to the nearest other one, among the first so many."""
    flat = images[:limit].flatten(1).double()
    distances = torch.cdist(flat, flat)
    distances.fill_diagonal_(math.inf)
    return float(distances.amin(1).median())
