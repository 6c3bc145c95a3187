"""Bounds in balls over the largest slopes found there: small networks that this script trains, and a real ResNet-20.

    python benchmarks/balls.py [--seeds 10] [--only 64-32-10] [--json FILE]
    NORMGAUGE_DATA=/path python benchmarks/balls.py --images 5 [--json FILE]

Small networks: handwritten digits, 600 steps of Adam from seeds 0, 1, …; one sample that was not trained on; CPU
seconds are of the bound alone, after the trace. Plain ones stand beside the least of ECLipsE's local bounds where
eclipse-nn can be imported. ResNet-20: the first CIFAR-10 test images, normalized as it was trained; the whole of
`gauge` with effort="long", its search for steep places included. Rows are added to those that FILE holds of others.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Scope
from normgauge.instrument.local.journey import swept_ball
from normgauge.instrument.session import Options, opened
from normgauge.lab.zoo import IMAGENET_MEAN, IMAGENET_STD, cifar10, cifar_resnet, digits, load_state

GAP, STEPS = 1e-3, 60  # as the effort "default" takes them
LAYER_GOALS = {0.01: 1.2, 0.03: 2.0, 0.1: 7.0}
WIDER = {radius: 3 * goal for radius, goal in LAYER_GOALS.items()}
RESNET_GOALS = {1e-3: 1.2, 2e-3: 1.3, 4e-3: 2.2}


class PreNorm(nn.Module):
    """Two residual blocks, each normalized before it."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)) for _ in range(2)
        )
        self.last = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


def dense(*sizes: int) -> nn.Module:
    layers = [m for a, b in pairwise(sizes[:-1]) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(*sizes[-2:]))


def normalized(norm: Callable[[], nn.Module]) -> nn.Module:
    layers = [m for _ in range(3) for m in (nn.Linear(64, 64), norm(), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(64, 10))


NETS: dict[str, tuple[Callable[[], nn.Module], dict[float, float]]] = {
    "64-32-10": (lambda: dense(64, 32, 10), {0.1: 1.15, 1.0: 1.4}),
    "64-32-32-10": (lambda: dense(64, 32, 32, 10), {0.1: 1.15, 1.0: 1.4}),
    "LayerNorm 64-64-64-64-10": (lambda: normalized(lambda: nn.LayerNorm(64)), LAYER_GOALS),
    "RMSNorm 64-64-64-64-10": (lambda: normalized(lambda: nn.RMSNorm(64)), WIDER),
    "GroupNorm 64-64-64-64-10": (lambda: normalized(lambda: nn.GroupNorm(4, 64)), WIDER),
    "pre-LayerNorm residual": (PreNorm, WIDER),
}


def trained(make: Callable[[], nn.Module], inputs: Tensor, labels: Tensor, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model, generator = make(), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(600):
        few = torch.randint(0, len(inputs), (128,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[few]), labels[few]).backward()
        optimizer.step()
    return model.eval()


def bounded(model: nn.Module, x: Tensor, radius: float) -> dict[str, Any]:
    """The bound over open units, how many there are, and CPU seconds."""
    with opened(model, x, Options(search=False)) as session, torch.no_grad():
        parts = session.composed(Scope.parse("point"))
        start = time.process_time()
        swept = swept_ball(session.trace, parts, 0, radius, session.native, 1)
        best = swept.improved(GAP, STEPS)
        upper = best.bound()
    seconds = time.process_time() - start
    return {"radius": radius, "upper": upper, "units": len(swept.units.rows), "cpu_seconds": round(seconds, 2)}


def eclipse(model: nn.Module, x: Tensor, radius: float) -> float | None:
    """The least of ECLipsE's local bounds; None without eclipse-nn, or where it gives none."""
    try:
        from eclipse_nn import LipConstEstimator
    except ImportError:
        return None
    estimator = LipConstEstimator(copy.deepcopy(model))
    with contextlib.redirect_stdout(io.StringIO()):
        found = [
            estimator.estimate_gen_local(x[0].double().numpy(), radius, "relu", how) for how in ("CF", "Fast", "Acc")
        ]
    return min((float(value) for value, _, code in found if code == 0), default=None)


def small_rows(seeds: int, only: str) -> Iterator[dict[str, Any]]:
    data, x = digits(), digits("test", limit=1).inputs
    for name, (make, goals) in NETS.items():
        for seed in range(seeds if only in name else 0):
            model = trained(make, data.inputs, data.labels, seed)
            for radius, goal in goals.items():
                lower = math.exp(ng.gauge(model, x, scope=f"ball:{radius}").log_lower)
                row = {"network": name, "seed": seed, "goal": goal, "lower": lower, **bounded(model, x, radius)}
                if name.startswith("64-"):
                    row["eclipse_local"] = eclipse(model, x, radius)
                yield row


def resnet_rows(folder: Path, images: int) -> Iterator[dict[str, Any]]:
    model = load_state(cifar_resnet(20), folder / "weights" / "resnet20_cifar10.safetensors").eval()
    inputs = cifar10("test", folder=folder, limit=images).normalized(IMAGENET_MEAN, IMAGENET_STD).inputs
    for image, x in enumerate(inputs.split(1)):
        for radius, goal in RESNET_GOALS.items():
            start = time.process_time()
            reading = ng.gauge(model, x, scope=f"ball:{radius}", effort="long")
            seconds = round(time.process_time() - start, 1)
            ends = {"upper": math.exp(reading.log_upper), "lower": math.exp(reading.log_lower)}
            row = {"network": "ResNet-20", "image": image, "goal": goal, "radius": radius}
            yield {**row, **ends, "cpu_seconds": seconds}


def kept(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows into a file beside those of other networks, seeds, images and radii."""
    name = lambda row: tuple(row.get(key) for key in ("network", "seed", "image", "radius"))  # noqa: E731
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    new = {name(row) for row in rows}
    path.write_text(json.dumps([row for row in old if name(row) not in new] + rows, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default="", help="a part of the names of the networks to look at")
    parser.add_argument("--images", type=int, default=0, help="of ResNet-20 instead of the small networks")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    folder = os.environ.get("NORMGAUGE_DATA")
    if options.images and folder is None:
        print("set NORMGAUGE_DATA to the folder with weights/ and cifar-10-batches-bin/; nothing was measured")
        return
    torch.set_num_threads(1)
    rows = []
    small = small_rows(options.seeds, options.only)
    for row in resnet_rows(Path(str(folder)), options.images) if options.images else small:
        row["ratio"] = round(row["upper"] / row["lower"], 4)
        rows.append(row)
        which = f"seed {row['seed']}" if "seed" in row else f"image {row['image']}"
        print(
            f"{row['network']} {which} r = {row['radius']}: {row['ratio']:.3f} (goal {row['goal']:.2f}), "
            f"{row.get('units', '?')} open, {row['cpu_seconds']} CPU s",
            flush=True,
        )
        if options.json:
            kept(Path(options.json), rows)


if __name__ == "__main__":
    main()
