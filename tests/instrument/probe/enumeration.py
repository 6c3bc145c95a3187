"""The exact Lipschitz constant of a small ReLU network: all activation patterns that inputs have, by linear programs.

`python -m tests.instrument.probe.enumeration [seeds]` compares it with what a reading finds (half an hour for twenty).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor, nn

import normgauge as ng

ROOM = 1e-7  # radius of the smallest piece that counts
Rows = list[tuple[np.ndarray, float]]  # half spaces a·x + b ≥ 0 with unit a


def perceptron(*sizes: int, seed: int, bias: float = 1.0) -> nn.Sequential:
    """Linear maps with ReLU between them, in float64; biases ``bias`` times what torch draws."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        linear = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    for layer in linear:
        layer.bias.data *= bias
    return nn.Sequential(*[part for layer in linear for part in (layer, nn.ReLU())][:-1]).double()


def mixed(*sizes: int, seed: int) -> nn.Sequential:
    """A perceptron whose biases are of sizes a thousand apart: some pieces are tiny, some far away."""
    model, generator = perceptron(*sizes, seed=seed), torch.Generator().manual_seed(seed)
    for layer in model[::2]:
        layer.bias.data *= 10 ** (3 * torch.rand(layer.bias.shape, generator=generator, dtype=torch.float64) - 1)
    return model


def trained(*sizes: int, seed: int, steps: int = 300) -> nn.Sequential:
    """A perceptron that learned to tell the fields of a wavy pattern apart."""
    model, generator = perceptron(*sizes, seed=seed), torch.Generator().manual_seed(seed)
    x = torch.randn(256, sizes[0], generator=generator, dtype=torch.float64)
    label = (((3 * x[:, 0]).sin() * x[:, 1] > 0).long() + (x.norm(dim=1) > 1.2).long()) % sizes[-1]
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), label).backward()
        optimizer.step()
    return model


NETWORKS: dict[str, Callable[[int], nn.Sequential]] = {
    "2-16-2": lambda seed: perceptron(2, 16, 2, seed=seed),
    "3-10-8-2": lambda seed: perceptron(3, 10, 8, 2, seed=seed),
    "4-12-2": lambda seed: perceptron(4, 12, 2, seed=seed),
    "2-16-2, far away": lambda seed: perceptron(2, 16, 2, seed=seed, bias=10.0),
    "2-8-8-2, far away": lambda seed: perceptron(2, 8, 8, 2, seed=seed, bias=10.0),
    "2-8-8-2, tiny": lambda seed: perceptron(2, 8, 8, 2, seed=seed, bias=0.01),
    "2-10-6-2, mixed": lambda seed: mixed(2, 10, 6, 2, seed=seed),
    "2-16-2, trained": lambda seed: trained(2, 16, 2, seed=seed),
    "2-12-8-3, trained": lambda seed: trained(2, 12, 8, 3, seed=seed),
}


def exact_constant(model: nn.Sequential) -> float:
    """The largest ‖J‖ over the pieces of a perceptron."""
    return max(float(np.linalg.norm(jacobian, 2)) for jacobian in pieces(model))


def pieces(model: nn.Sequential) -> Iterator[np.ndarray]:
    """The Jacobian on every linear piece that holds a ball of radius `ROOM`."""
    layers = [(part.weight.detach().numpy(), part.bias.detach().numpy()) for part in model[::2]]
    inputs = layers[0][0].shape[1]
    yield from _below(layers, np.eye(inputs), np.zeros(inputs), Piece([], np.zeros(inputs), 1.0))


def _below(layers: list, slope: np.ndarray, offset: np.ndarray, known: Piece) -> Iterator[np.ndarray]:
    (weight, bias), rest = layers[0], layers[1:]
    slope, offset = weight @ slope, weight @ offset + bias
    if not rest:
        yield slope
        return
    for on, piece in _patterns(slope, offset, known):
        yield from _below(rest, slope * on[:, None], offset * on, piece)


def _patterns(slope: np.ndarray, offset: np.ndarray, known: Piece) -> Iterator[tuple[np.ndarray, Piece]]:
    """Which units of a layer may be on together inside ``known``, and the piece where they are."""
    found: list[tuple[list[float], Piece]] = [([], known)]
    for row, shift in zip(slope, offset, strict=True):
        size = float(np.linalg.norm(row))
        if size == 0:
            found = [([*on, float(shift > 0)], piece) for on, piece in found]
            continue
        tried = [
            ([*on, side], piece.cut((2 * side - 1) * row / size, (2 * side - 1) * float(shift) / size))
            for on, piece in found
            for side in (1.0, 0.0)
        ]
        found = [(on, piece) for on, piece in tried if piece is not None]
    return ((np.array(on), piece) for on, piece in found)


class Piece(NamedTuple):
    """Half spaces and a ball inside all of them, of a radius above `ROOM`."""

    rows: Rows
    centre: np.ndarray
    radius: float

    def cut(self, normal: np.ndarray, shift: float) -> Piece | None:
        """What lies in one half space more; None where no ball of radius `ROOM` fits."""
        rows, depth = [*self.rows, (normal, shift)], float(normal @ self.centre + shift)
        if depth > ROOM:  # the same ball or a smaller one: no program is needed
            return Piece(rows, self.centre, min(self.radius, depth))
        a, b = np.array([row for row, _ in rows]), np.array([shift for _, shift in rows])
        goal = np.append(np.zeros(a.shape[1]), -1.0)
        bounds = [(None, None)] * a.shape[1] + [(None, 1.0)]
        found = linprog(goal, A_ub=np.hstack([-a, np.ones((len(a), 1))]), b_ub=b, bounds=bounds, method="highs")
        return Piece(rows, found.x[:-1], -found.fun) if found.status == 0 and -found.fun > ROOM else None


def batch_for(model: nn.Sequential, seed: int, samples: int = 8) -> Tensor:
    """Gaussian inputs."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, model[0].in_features, generator=generator, dtype=torch.float64)


def found_share(model: nn.Sequential, seed: int) -> float:
    """What a reading of scope global finds, as a part of the exact constant."""
    reading = ng.gauge(model, batch_for(model, seed), scope="global", balance=False, pictures=False)
    return math.exp(reading.log_lower) / exact_constant(model)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for name, build in NETWORKS.items():
        shares = torch.tensor([found_share(build(seed), seed) for seed in range(count)])
        print(f"{name:20} worst {shares.min():.4f}  median {shares.median():.4f}  best {shares.max():.6f}", flush=True)
