"""Whether the budget of `ng.cap` is ever exceeded: ten thousand steps, held against singular values and the gauge.

python -m experiments.control.violations [--steps 10000] [--runs 0 1 2 3 4] [--out …/results/violations.json]
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.lab.zoo import digits, mlp

BUDGET, LAYERED = 1.2, 4.5  # with BatchNorm or nothing, and with LayerNorm, whose 1/√ε counts
RUNS = (
    ("SGD", "batch", 0.1),
    ("SGD", "batch", 1.0),
    ("AdamW", "batch", 0.01),
    ("AdamW", "layer", 0.003),
    ("AdamW", None, 0.01),
)


def folded(model: nn.Module) -> float:
    """log10 of the folded bound of an MLP by singular values in float64, beside the library: rows by γ/√(var + ε),
    columns by γ of a LayerNorm before, centred rows before one.
    """
    total, columns = 0.0, None
    for layer in model.layers:
        norm = getattr(layer, "norm", None)
        weight = layer.linear.weight.detach().double()
        weight = weight if columns is None else weight * columns
        columns = None
        if isinstance(norm, nn.BatchNorm1d):
            weight = (norm.weight.detach().double().abs() / (norm.running_var.double() + norm.eps).sqrt())[
                :, None
            ] * weight
        elif isinstance(norm, nn.LayerNorm):
            weight, columns = weight - weight.mean(0), norm.weight.detach().double().abs()
            total -= math.log10(norm.eps) / 2
        total += math.log10(float(torch.linalg.matrix_norm(weight, 2)))
    head = model.head.weight.detach().double()
    return total + math.log10(float(torch.linalg.matrix_norm(head if columns is None else head * columns, 2)))


def run(kind: str, norm: str | None, lr: float, steps: int, x: Tensor, y: Tensor) -> dict[str, Any]:
    """Train one network under the budget and count."""
    torch.manual_seed(0)
    model = mlp((64, 32, 32, 10), norm=norm)
    with torch.no_grad():
        model(x)
    budget = LAYERED if norm == "layer" else BUDGET
    cap = ng.cap(model.eval(), x[:4], log10=budget)
    training = getattr(torch.optim, kind)(model.parameters(), lr=lr)
    found: dict[str, Any] = {"optimizer": kind, "norm": norm, "lr": lr, "budget": budget, "steps": steps}
    found |= {"over_folded": 0, "over_gauge": 0, "gauges": 0, "largest_folded": -math.inf, "largest_gauge": -math.inf}
    for step in range(steps):
        model.train()
        rows = torch.randint(0, len(x), (64,))
        training.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        training.step()
        cap()
        model.eval()
        exact = folded(model)
        found["over_folded"] += exact > budget
        found["largest_folded"] = max(found["largest_folded"], exact)
        if step % 100 == 99:
            reading = ng.gauge(model, x[:2], scope="global", search=False, pictures=False, effort="quick")
            found["gauges"] += 1
            found["over_gauge"] += reading.log10_folded > budget or reading.log10_upper > budget
            found["largest_gauge"] = max(found["largest_gauge"], reading.log10_folded)
    with torch.no_grad():
        found["accuracy"] = float((model(x).argmax(1) == y).float().mean())
    found["said"] = str(cap)
    return found


def main() -> None:
    """Share the steps between the runs and write what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path("experiments/control/results/violations.json"))
    parser.add_argument("--runs", type=int, nargs="*", default=list(range(len(RUNS))), help="which of them, now")
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = digits("train")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for index in given.runs:
        row = run(*RUNS[index], given.steps // len(RUNS), data.inputs, data.labels)
        rows = json.loads(given.out.read_text()) if given.out.exists() else [None] * len(RUNS)
        rows[index] = row
        given.out.write_text(json.dumps(rows, indent=1) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
