"""Certified radii beside attacks: verified and attacked accuracy of MNIST networks, and ResNet-20 on a few images.

    NORMGAUGE_DATA=/path python -m benchmarks.certified [--nets mlp cnn resnet20] [--effort E] [--json FILE]

The 200 images of a small network are attacked 10,000 times; a certified sample that breaks is counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from torch import nn

import normgauge as ng
from benchmarks.real_data import data_folder, real_resnet, trained
from normgauge.core.bound import Evidence

EPOCHS, IMAGES, FEW = 3, 200, 5
EFFORTS = {"mlp": "default", "cnn": "default", "resnet20": "quick"}
RESTARTS = {"mlp": 50, "cnn": 50, "resnet20": 4}  # descents from each image
RADII = {"mlp": (0.1, 0.3), "cnn": (0.1, 0.3), "resnet20": (1e-8, 1e-4, 1e-3, 0.01)}


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(1568, 100), nn.ReLU(), nn.Linear(100, 10),
    )  # fmt: skip


def measure(name: str, folder: Path, restarts: int, effort: str) -> dict[str, Any]:
    small = {"mlp": mlp, "cnn": cnn}
    model, held = trained(small[name], folder, EPOCHS, IMAGES) if name in small else real_resnet(20, folder, FEW)
    found = ng.radius(model, held.inputs, held.labels, restarts=restarts, effort=effort)
    methods = Counter(s.method for s in found.samples)
    certified = [s for s in found.samples if s.certified]
    return {
        "net": name,
        "effort": effort,
        "samples": len(found.samples),
        "verified": {str(r): found.verified_accuracy(r) for r in (0.0, *RADII[name])},
        "attacked": {str(r): found.attacked_accuracy(r) for r in (0.0, *RADII[name])},
        "median_radius": statistics.median(s.radius for s in certified) if certified else 0.0,
        "median_attacked": statistics.median(s.attacked for s in found.samples if s.attacked is not None),
        "largest_rounding": max(s.rounding for s in found.samples),
        "proved": sum(s.evidence is Evidence.PROVED for s in certified),
        "methods": dict(methods),
        "each": [[s.radius, s.attacked] for s in found.samples[:FEW]],
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
    parser.add_argument("--effort", choices=("quick", "default", "long"), help="of the radii")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    folder = data_folder()
    if folder is None:
        return
    rows = []
    for name in options.nets:
        rows.append(measure(name, folder, options.restarts or RESTARTS[name], options.effort or EFFORTS[name]))
        print(json.dumps(rows[-1]), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
