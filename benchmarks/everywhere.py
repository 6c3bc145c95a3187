"""Bounds over all inputs beside the goals: MNIST networks that this script trains, a random one and real ResNets.

    pip install --target DIR cvxpy clarabel
    NORMGAUGE_DATA=/path PYTHONPATH=DIR python -m benchmarks.everywhere [--nets ...] [--seeds 10] [--json FILE]

Each bound is that of `gauge(model, batch, scope="global")`. Its own CPU seconds are those of the part `local`, which
the bound adds to a reading; `cpu_seconds` are those of the whole reading. Networks are trained for two epochs of 10,000
MNIST images from seeds 0, 1, …; 100 test images are the batch. With cvxpy and clarabel installed, the value of the
semidefinite program stands beside the chains, for all seeds of the smaller one and for two of the larger, where it
takes the solver long; otherwise, and with --no-reference, it is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import platform
import time
from collections.abc import Iterator
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import normgauge as ng
from benchmarks.real_data import data_folder, real_resnet, trained
from benchmarks.semidefinite import semidefinite_value
from normgauge.lab.training import model_accuracy

Row = dict[str, Any]
SOLVERS = ("cvxpy", "clarabel")
IMAGES, EPOCHS = 100, 2
CHAINS = {"784-64-10": (784, 64, 10), "784-64-64-10": (784, 64, 64, 10)}
REFERENCES = {"784-64-10": 10, "784-64-64-10": 1}  # seeds with the program's value, which takes long
DEPTHS = {"ResNet-20": (20, 8.1), "ResNet-56": (56, 18.0)}
NETS = (*CHAINS, "random 6 x 64", "residual 784-64, 8 blocks", *DEPTHS)
GOALS = {"chain": (1.002, 0.5), "random": (6.5, 4.0), "residual": (0.45, 10.0)}
"""Ratio and own CPU seconds: over the program's value, over the slope found, over the product of norms."""


class Residual(nn.Module):
    """784-64, eight blocks x + W₂ relu(W₁x) of width 64, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(784, 64), nn.Linear(64, 10)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (N, 10) of images."""
        x = self.first(x.flatten(1))
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


def chain(sizes: tuple[int, ...]) -> nn.Module:
    """Linear maps with ReLU between them."""
    layers = [m for a, b in pairwise(sizes[:-1]) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(*sizes[-2:]))


def bounded(model: nn.Module, x: Tensor, effort: str = "default") -> Row:
    """The reading's numbers."""
    start = time.process_time()
    reading = ng.gauge(model, x, scope="global", effort=effort)
    row = {name: math.exp(getattr(reading, f"log_{name}")) for name in ("upper", "balanced", "lower")}
    row |= {"method": reading.method, "evidence": str(reading.evidence), "chance": reading.failure_probability}
    return row | {"own_cpu_seconds": reading.seconds["local"], "cpu_seconds": round(time.process_time() - start, 2)}


def chain_rows(name: str, folder: Path, seeds: int, references: bool) -> Iterator[Row]:
    """Trained chains against the program's value."""
    goal, seconds = GOALS["chain"]
    for seed in range(seeds):
        model, held = trained(lambda: chain(CHAINS[name]), folder, EPOCHS, IMAGES, seed)
        row = {"network": name, "seed": seed, "goal": goal, "goal_seconds": seconds}
        row |= {"accuracy": model_accuracy(model, held), **bounded(model, held.inputs)}
        if references and seed < REFERENCES[name]:
            row |= semidefinite_value(model)
            row["ratio"] = row["upper"] / row["semidefinite"] if row["semidefinite"] else None
        yield row


def random_rows(seeds: int) -> Iterator[Row]:
    """Six random layers of width 64 against the slope found."""
    goal, seconds = GOALS["random"]
    for seed in range(seeds):
        torch.manual_seed(seed)
        row = bounded(chain((64,) * 7), torch.randn(50, 64))
        row["ratio"] = row["upper"] / row["lower"]
        yield {"network": "random 6 x 64", "seed": seed, "goal": goal, "goal_seconds": seconds, **row}


def residual_rows(folder: Path, seeds: int) -> Iterator[Row]:
    """A residual network against the product of its norms, 1 + ‖W₂‖‖W₁‖ a block."""
    goal, seconds = GOALS["residual"]
    for seed in range(seeds):
        model, held = trained(Residual, folder, EPOCHS, IMAGES, seed)
        assert isinstance(model, Residual)
        parts = [(1 + norm(block[0]) * norm(block[2])) for block in model.blocks if isinstance(block, nn.Sequential)]
        row = {"network": NETS[3], "seed": seed, "goal": goal, "goal_seconds": seconds}
        row |= {"accuracy": model_accuracy(model, held), **bounded(model, held.inputs)}
        row |= {"product": norm(model.first) * norm(model.last) * math.prod(parts)}
        row["ratio"] = row["upper"] / row["product"]
        yield row


def norm(layer: nn.Module) -> float:
    """The spectral norm of a linear layer."""
    assert isinstance(layer, nn.Linear)
    return float(torch.linalg.matrix_norm(layer.weight.detach().double(), 2))


def resnet_rows(name: str, folder: Path) -> Iterator[Row]:
    """A real ResNet; goal and ratio are decades."""
    depth, goal = DEPTHS[name]
    model, held = real_resnet(depth, folder, IMAGES)
    row = bounded(model, held.inputs, "long")
    yield {"network": name, "goal": goal, "effort": "long", **row, "ratio": math.log10(row["upper"])}


def rows_of(name: str, folder: Path, seeds: int, references: bool) -> Iterator[Row]:
    """All rows of a network."""
    if name in CHAINS:
        return chain_rows(name, folder, seeds, references)
    if name in DEPTHS:
        return resnet_rows(name, folder)
    return random_rows(seeds) if name.startswith("random") else residual_rows(folder, seeds)


def words(row: Row) -> str:
    """One line for a row."""
    told = f"{row['ratio']:.6g}" if row.get("ratio") is not None else "no reference"
    return (
        f"{row['network']} {row.get('seed', '')}: {told} (goal {row['goal']}), upper {row['upper']:.6g}, "
        f"balanced {row['balanced']:.6g}, found {row['lower']:.6g}, {row['method']}, "
        f"own {row['own_cpu_seconds']} of {row['cpu_seconds']} CPU s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--no-reference", action="store_true", help="leave the semidefinite program's value out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="kept up to date after every row")
    options = parser.parse_args()
    folder = data_folder()
    if folder is None:
        return
    versions = {"python": platform.python_version(), "torch": torch.__version__, "normgauge": ng.__version__}
    references = all(importlib.util.find_spec(peer) for peer in SOLVERS) and not options.no_reference
    if references:
        versions |= {peer: version(peer) for peer in SOLVERS}
    elif not options.no_reference:
        print("cvxpy with clarabel is not installed: the semidefinite program's value is left out")
    rows = []
    for name in options.nets:
        for row in rows_of(name, folder, options.seeds, references):
            rows.append(row)
            print(words(row), flush=True)
            if options.json:
                text = json.dumps({"versions": versions, "rows": rows}, indent=1, allow_nan=False)
                options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
