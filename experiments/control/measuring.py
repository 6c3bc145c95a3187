"""What is measured of a trained classifier: accuracy, proved bound, certified radius, accuracy under attack."""

from __future__ import annotations

import math
import statistics
from typing import Any

import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.lab.zoo.split import Split


@torch.no_grad()
def accuracy(model: nn.Module, split: Split, size: int = 1000) -> float:
    """Share of right answers, in eval mode."""
    model.eval()
    place = next(model.parameters()).device
    parts = zip(split.inputs.split(size), split.labels.split(size), strict=True)
    return sum(int((model(x.to(place)).argmax(1).cpu() == y.cpu()).sum()) for x, y in parts) / len(split)


def bound_and_margins(model: nn.Module, split: Split, effort: str = "quick") -> dict[str, Any]:
    """The proved global bound, and the median over all images of margin/(√2·bound): the radius it alone certifies."""
    model = model.cpu().eval()
    reading = ng.gauge(model, split.inputs[:2], scope="global", search=False, pictures=False, effort=effort)
    with torch.no_grad():
        outputs = model(split.inputs)
    own = outputs.gather(1, split.labels[:, None])[:, 0]
    others = outputs.scatter(1, split.labels[:, None], -math.inf).amax(1)
    margins = (own - others).clamp_min(0.0)
    return {
        "log10_upper": reading.log10_upper,
        "log10_folded": reading.log10_folded,
        "global_radius": float(margins.median()) / (math.sqrt(2) * 10**reading.log10_upper),
    }


def certified(
    model: nn.Module, split: Split, images: int, attack_at: float, restarts: int = 2, effort: str = "default"
) -> dict[str, Any]:
    """Certified radii and attacks on the first images, on the CPU."""
    few = split.first(images)
    radii = ng.radius(model.cpu().eval(), few.inputs, few.labels, restarts=restarts, effort=effort)
    found = [sample.radius for sample in radii.samples]
    return {
        "median_radius": statistics.median(found),
        "radii": found,
        "attacks": [sample.attacked or 0.0 for sample in radii.samples],
        "attacked_accuracy": radii.attacked_accuracy(attack_at),
        "verified_accuracy": radii.verified_accuracy(attack_at),
        "attack_at": attack_at,
        "images": images,
    }


def attacked_accuracy(model: nn.Module, x: Tensor, y: Tensor, radius: float, steps: int = 20) -> float:
    """Share of images that stay right under projected gradient ascent of the loss within an l2 ball."""
    model.eval()
    start, moved = x, x.clone()
    for _ in range(steps):
        moved = moved.detach().requires_grad_()
        loss = nn.functional.cross_entropy(model(moved), y, reduction="sum")
        (slope,) = torch.autograd.grad(loss, moved)
        way = slope / slope.flatten(1).norm(dim=1).clamp_min(1e-12).reshape(-1, *[1] * (x.ndim - 1))
        change = moved.detach() + 2.5 * radius / steps * way - start
        sizes = change.flatten(1).norm(dim=1).clamp_min(radius).reshape(-1, *[1] * (x.ndim - 1))
        moved = start + change * (radius / sizes)
    with torch.no_grad():
        return float((model(moved).argmax(1) == y).float().mean())
