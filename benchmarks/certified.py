"""Certified radii beside attacks: verified and attacked accuracy of MNIST networks, and ResNet-20 on a few images.

    NORMGAUGE_DATA=/path python -m benchmarks.certified [--nets mlp cnn resnet20] [--restarts N] [--json FILE]

The 200 images of a small network are attacked 10,000 times; a certified sample that breaks is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Evidence
from normgauge.lab.training import train
from normgauge.lab.zoo import IMAGENET_MEAN, IMAGENET_STD, Split, cifar10, cifar_resnet, load_state, mnist

TRAINED, IMAGES, FEW = 10_000, 200, 5
RESTARTS = {"mlp": 50, "cnn": 50, "resnet20": 4}  # descents from each image
RADII = {"mlp": (0.1, 0.3), "cnn": (0.1, 0.3), "resnet20": (1e-8, 1e-4, 1e-3, 0.01)}


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(1568, 100), nn.ReLU(), nn.Linear(100, 10),
    )  # fmt: skip


def trained(model: nn.Module, data: Path) -> tuple[nn.Module, Tensor, Tensor]:
    own: Split = mnist("train", folder=data, limit=TRAINED)
    train(model, own, epochs=3)
    held: Split = mnist("test", folder=data, limit=IMAGES)
    return model.eval(), held.inputs, held.labels


def resnet20(data: Path) -> tuple[nn.Module, Tensor, Tensor]:
    model = load_state(cifar_resnet(20), data / "weights" / "resnet20_cifar10.safetensors").eval()
    held = cifar10("test", folder=data, limit=FEW).normalized(IMAGENET_MEAN, IMAGENET_STD)
    return model, held.inputs, held.labels


def measure(name: str, data: Path, restarts: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model, inputs, labels = resnet20(data) if name == "resnet20" else trained({"mlp": mlp, "cnn": cnn}[name](), data)
    found = ng.radius(model, inputs, labels, restarts=restarts)
    methods = Counter(s.method for s in found.samples)
    certified = [s for s in found.samples if s.certified]
    return {
        "net": name,
        "samples": len(found.samples),
        "verified": {str(r): found.verified_accuracy(r) for r in (0.0, *RADII[name])},
        "attacked": {str(r): found.attacked_accuracy(r) for r in (0.0, *RADII[name])},
        "median_radius": statistics.median(s.radius for s in certified) if certified else 0.0,
        "median_attacked": statistics.median(s.attacked for s in found.samples if s.attacked is not None),
        "largest_rounding": max(s.rounding for s in found.samples),
        "proved": sum(s.evidence is Evidence.PROVED for s in certified),
        "methods": dict(methods),
        "failure_probability": found.failure_probability,
        "broken": len(found.refuted),
        "attacks": restarts * len(found.samples),
        "cpu_seconds": round(found.seconds, 1),
        "seconds_a_sample": round(found.seconds / len(found.samples), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="+", choices=list(RADII), default=list(RADII))
    parser.add_argument("--restarts", type=int, help="of the attack on each image")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    folder = os.environ.get("NORMGAUGE_DATA")
    if folder is None:
        print("set NORMGAUGE_DATA to the folder with mnist/, weights/ and cifar-10-batches-bin/; nothing was measured")
        return
    torch.set_num_threads(1)
    rows = []
    for name in options.nets:
        rows.append(measure(name, Path(folder), options.restarts or RESTARTS[name]))
        print(json.dumps(rows[-1]), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
