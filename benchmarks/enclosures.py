"""Are the monitor's ends right, and how wide: lines at random against a float64 SVD of the weights of their step.

python benchmarks/enclosures.py --steps 10000
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import normgauge as ng
from normgauge.core import store
from normgauge.instrument.spectral.conv import ConvSpec, dense_blocks
from normgauge.lab import zoo


def dense() -> tuple[nn.Module, tuple[int, ...]]:
    """Six hidden layers of 128 with BatchNorm."""
    return zoo.mlp((64, *[128] * 6, 10), norm="batch"), (64,)


def wide() -> tuple[nn.Module, tuple[int, ...]]:
    """Ten hidden layers of 512 with BatchNorm."""
    return zoo.mlp((64, *[512] * 10, 10), norm="batch"), (64,)


def convolutions() -> tuple[nn.Module, tuple[int, ...]]:
    """Three convolutions with BatchNorm, one of them strided, on digits."""
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip
    return net, (1, 8, 8)


SIZES = {(8, 1, 3, 3): (8, 8), (8, 8, 3, 3): (8, 8), (16, 8, 3, 3): (4, 4)}
STRIDES = {(8, 8, 3, 3): (2, 2)}


def true_norm(weight: torch.Tensor) -> float:
    """Largest singular value of the layer's matrix, in float64."""
    matrix = weight.detach().double()
    if matrix.ndim == 4:
        shape = tuple(matrix.shape)
        spec = ConvSpec(SIZES[shape], STRIDES.get(shape, ()), ((1, 1), (1, 1)))
        matrix = dense_blocks(matrix, spec)[0]
    return float(torch.linalg.svdvals(matrix)[0])


class Truth:
    """The true norm of every layer at some of the steps that were written, and at all with a proof; a sink."""

    def __init__(self, model: nn.Module, share: float) -> None:
        self.share, self.draw = share, random.Random(0)
        self.weights = {name: m.weight for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}
        self.names: list[str] = []
        self.checked, self.violations, self.widths, self.short, self.proved = 0, 0, [], [], []

    def __call__(self, record: Any) -> None:
        if record["kind"] == "header":
            self.names = [layer["name"] for layer in record["layers"]]
        if record["kind"] != "step":
            return
        columns = record["columns"]
        chosen = self.draw.random() < self.share
        for name, lower, upper in zip(self.names, columns["norm_lower"], columns["norm_upper"], strict=True):
            if lower is not None and (chosen or upper is not None):
                true = true_norm(self.weights[name])
                self.checked += 1
                self.violations += not lower <= true <= (float("inf") if upper is None else upper)
                self.short.append(1 - lower / true)
            if upper is not None:
                self.widths.append(upper / lower - 1 if lower else float("inf"))
                self.proved.append(record["step"])


def trained(
    build: Callable[[], tuple[nn.Module, tuple[int, ...]]], lr: float, every: int | None, steps: int, share: float
) -> dict[str, Any]:
    torch.manual_seed(0)
    model, shape = build()
    data = zoo.digits("train")
    inputs = data.inputs.reshape(-1, *shape)
    adam = lr < 0.01
    optimizer: Any = torch.optim.Adam(model.parameters(), lr) if adam else torch.optim.SGD(model.parameters(), lr)
    truth = Truth(model, share)
    monitor = ng.Monitor(model, tempfile.mkdtemp(), every=every, sinks=[truth])
    for _ in range(steps):
        chosen = torch.randint(len(data.labels), (128,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs[chosen]), data.labels[chosen])
        loss.backward()
        optimizer.step()
        monitor.step(loss=loss, lr=lr)
    monitor.close()
    notes = [note["sentence"] for note in store.read(monitor.path).notes]
    lines = sorted(set(truth.proved))
    gaps = [b - a for a, b in pairwise(lines)]
    at = {f"fresh width p{p}": percentile(truth.widths, p) for p in (50, 99, 100)}
    short = {f"lower end short by p{p}": percentile(truth.short, p) for p in (50, 99, 100)}
    counts = {"checked": truth.checked, "violations": truth.violations, "proofs": len(truth.widths)}
    return {**counts, "most steps without a fresh proof": max(gaps, default=None), **at, **short, "notes": notes}


def percentile(values: list[float], p: int) -> float | None:
    """The value that p per cent of all stay below."""
    found = sorted(values)
    return found[min(len(found) - 1, len(found) * p // 100)] if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--share", type=float, default=0.1, help="of the lines that are checked besides those proved")
    parser.add_argument("--only", default="", help="nets whose name has this in it")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table: dict[str, Any] = {}
    for name, build, steps in (
        ("10x512 BN", wide, options.steps),
        ("6x128 BN", dense, options.steps),
        ("3 conv BN", convolutions, min(options.steps, 400)),
    ):
        for lr in (0.1, 0.001) if options.only in name else ():
            for every in (1, None):
                kind = "Adam" if lr < 0.01 else "SGD"
                key = f"{name}, {kind} {lr}, {'every=1' if every else 'default budget'}, {steps} steps"
                table[key] = trained(build, lr, every, steps, options.share)
                print(key, table[key], flush=True)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))
    if any(row["violations"] for row in table.values()):
        raise SystemExit("an enclosure does not hold the truth")


if __name__ == "__main__":
    main()
