"""Digits: a BatchNorm MLP trained in every way, tuned on a validation split, five seeds each, on the CPU.

python -m experiments.control.digits [--out experiments/control/results/digits.json] [--part tune|seeds|rates]
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from experiments.control.measuring import accuracy, attacked_accuracy, bound_and_margins, certified
from experiments.control.methods import METHODS, plain, start
from normgauge.lab.zoo import digits, mlp
from normgauge.lab.zoo.split import Split

GRID: dict[str, tuple[tuple[float, float], ...]] = {  # (strength, learning rate): four each
    "none": ((0.0, 1e-3), (0.0, 3e-3), (0.0, 1e-2), (0.0, 3e-2)),
    "decay": ((0.5, 3e-3), (2.0, 3e-3), (8.0, 3e-3), (16.0, 3e-3)),
    "spectral": ((0.0, 1e-3), (0.0, 3e-3), (0.0, 1e-2), (0.0, 3e-2)),
    "unfolded": ((0.1, 3e-3), (0.3, 3e-3), (1.0, 3e-3), (3.0, 3e-3)),
    "unfolded_log": ((0.1, 3e-3), (0.3, 3e-3), (0.6, 3e-3), (1.0, 3e-3)),
    "muon": ((1e-3, 3e-3), (3e-3, 3e-3), (1e-2, 3e-3), (3e-2, 3e-3)),
    "penalty": ((0.1, 3e-3), (0.2, 3e-3), (0.4, 3e-3), (0.8, 3e-3)),
    "layers": ((0.2, 3e-3), (0.4, 3e-3), (0.6, 3e-3), (0.9, 3e-3)),
    "cap": ((0.7, 3e-3), (0.9, 3e-3), (1.1, 3e-3), (1.3, 3e-3)),
    "local": ((0.03, 3e-3), (0.1, 3e-3), (0.3, 3e-3), (1.0, 3e-3)),
    "bounded": ((1.0, 3e-3), (1.3, 3e-3), (1.6, 3e-3), (2.0, 3e-3)),
}
RATES = (1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
SLACK = 0.005  # of the best validation accuracy: what a way may give up for a smaller bound
IMAGES, AT = 7, 0.5  # test images that are certified, and the length of the attack
SIZES = (64, 64, 64, 64, 10)


def halves() -> tuple[Split, Split, Split]:
    """Training, validation (every fifth of the training images) and test images."""
    whole = digits("train")
    held = torch.arange(len(whole)) % 5 == 0
    parts = (Split(whole.inputs[rows], whole.labels[rows], whole.classes) for rows in (~held, held))
    return next(parts), next(parts), digits("test")


def trained(method: str, strength: float, lr: float, seed: int, train: Split, epochs: int = 60) -> torch.nn.Module:
    """One network, with a cosine schedule behind a short warm-up."""
    torch.manual_seed(seed)
    model = mlp(SIZES, norm="layer" if method.startswith("bounded") or method == "layer_norm" else "batch")
    with torch.no_grad():
        model(train.inputs)  # statistics of the data, before anything is asked of them
    training = start(model.eval(), train.inputs[:16], method, strength, lr)
    size = 64
    steps = epochs * (len(train) // size)
    for step in range(steps):
        if step % (len(train) // size) == 0:
            order = torch.randperm(len(train))
        rows = order[(step % (len(train) // size)) * size :][:size]
        warm = min(1.0, (step + 1) / (0.1 * steps))
        training.rate(warm * 0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / steps)).item()))
        training.model.train()
        x = train.inputs[rows].requires_grad_(method == "local")
        training.step(F.cross_entropy(training.model(x), train.labels[rows]), x)
    training.done()
    return plain(training.model).eval()


def tune(rows: list[dict[str, Any]], train: Split, valid: Split, keep: Callable[[], None]) -> None:
    """Every setting once that is not there yet, judged on the validation split."""
    known = {(row["method"], row["strength"], row["lr"]) for row in rows}
    for method, settings in GRID.items():
        for strength, lr in settings:
            if (method, strength, lr) in known:
                continue
            model = trained(method, strength, lr, 0, train)
            row = {"method": method, "strength": strength, "lr": lr, "valid": accuracy(model, valid)}
            rows.append(row | bound_and_margins(model, valid))
            keep()


def chosen(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each way the largest radius by the bound among its settings within `SLACK` of the accuracy without control.

    The same for rivals and for ours; where no setting is that accurate, the most accurate one.
    """
    goal = max(row["valid"] for row in rows if row["method"] == "none") - SLACK
    best = {}
    for method in METHODS:
        own = [row for row in rows if row["method"] == method]
        near = [row for row in own if row["valid"] >= goal]
        best[method] = max(near, key=lambda r: r["global_radius"]) if near else max(own, key=lambda r: r["valid"])
    return best


def seeds(
    rows: list[dict[str, Any]], picked: dict[str, dict[str, Any]], train: Split, test: Split, keep: Callable[[], None]
) -> None:
    """Five networks of every way with its chosen setting, on the test images, and LayerNorm beside."""
    known = {(row["method"], row["seed"]) for row in rows}
    plans = {m: (row["strength"], row["lr"]) for m, row in picked.items()} | dict.fromkeys(
        ("layer_norm", "bounded_alone"), (0.0, 3e-3)
    )
    for seed in range(1, 6):
        for method, (strength, lr) in plans.items():
            if (method, seed) in known:
                continue
            model = trained(method, strength, lr, seed, train)
            row = {"method": method, "strength": strength, "lr": lr, "seed": seed, "test": accuracy(model, test)}
            row |= bound_and_margins(model, test) | certified(model, test, IMAGES, AT)
            rows.append(row | {"pgd_accuracy": attacked_accuracy(model, test.inputs, test.labels, AT)})
            keep()


def rates(picked: dict[str, dict[str, Any]], train: Split, valid: Split) -> list[dict[str, Any]]:
    """Which learning rates survive: validation accuracy at each, ten epochs."""
    rows = []
    for method, row in picked.items():
        if method == "muon":
            continue  # its own rate is what it is tuned by
        for lr in RATES:
            found = accuracy(trained(method, row["strength"], lr, 0, train, epochs=10), valid)
            rows.append({"method": method, "lr": lr, "valid": found})
    return rows


def main() -> None:
    """Run the parts that are asked for, and keep the others' results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("experiments/control/results/digits.json"))
    parser.add_argument("--part", choices=("tune", "seeds", "rates"), nargs="*", default=["tune", "seeds", "rates"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # Muon multiplies in bfloat16, which not every CPU does in hardware
    train, valid, test = halves()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(given.out.read_text()) if given.out.exists() else {}

    def keep() -> None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")

    if "tune" in given.part:
        tune(found.setdefault("tune", []), train, valid, keep)
        found["chosen"] = chosen(found["tune"])
    if "seeds" in given.part:
        seeds(found.setdefault("seeds", []), found["chosen"], train, test, keep)
    if "rates" in given.part:
        found["rates"] = rates(found["chosen"], train, valid)
    keep()
    for method in {row["method"]: None for row in found.get("seeds", [])}:
        own = [row for row in found["seeds"] if row["method"] == method]
        means = {
            k: statistics.fmean(row[k] for row in own)
            for k in ("test", "log10_upper", "global_radius", "median_radius", "pgd_accuracy")
        }
        print(method, {k: round(v, 4) for k, v in means.items()})


if __name__ == "__main__":
    main()
