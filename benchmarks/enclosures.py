"""Are the monitor's enclosures right, and how wide: every line against a float64 SVD of the weights of its step.

python benchmarks/enclosures.py --steps 10000
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
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
    """The true norm of every layer at the steps that were written, kept by a sink of the monitor."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = {name: m.weight for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}
        self.names: list[str] = []
        self.checked, self.violations, self.widths = 0, 0, []

    def __call__(self, record: Any) -> None:
        if record["kind"] == "header":
            self.names = [layer["name"] for layer in record["layers"]]
        if record["kind"] != "step":
            return
        columns = record["columns"]
        for name, lower, upper in zip(self.names, columns["norm_lower"], columns["norm_upper"], strict=True):
            if lower is not None:
                true = true_norm(self.weights[name])
                self.checked += 1
                self.violations += not lower <= true <= upper
                self.widths.append(upper / lower - 1 if lower else float("inf"))


def trained(
    build: Callable[[], tuple[nn.Module, tuple[int, ...]]], lr: float, every: int | None, steps: int
) -> dict[str, Any]:
    torch.manual_seed(0)
    model, shape = build()
    data = zoo.digits("train")
    inputs = data.inputs.reshape(-1, *shape)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    truth = Truth(model)
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
    widths = sorted(truth.widths)
    at = {f"width p{p}": widths[min(len(widths) - 1, len(widths) * p // 100)] for p in (10, 50, 90, 99, 100)}
    return {"checked": truth.checked, "violations": truth.violations, **at, "notes": notes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table: dict[str, Any] = {}
    for name, build, steps in (
        ("6x128 BN", dense, options.steps),
        ("3 conv BN", convolutions, min(options.steps, 400)),
    ):
        for lr in (0.1, 0.001):
            for every in (1, None):
                key = f"{name}, lr {lr}, {'every=1' if every else 'default budget'}, {steps} steps"
                table[key] = trained(build, lr, every, steps)
                print(key, table[key], flush=True)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))
    if any(row["violations"] for row in table.values()):
        raise SystemExit("an enclosure does not hold the truth")


if __name__ == "__main__":
    main()
