"""Data drawn by seed, and losses: everything has the network (or seed) first."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

Pair = tuple[Tensor, Tensor]  # inputs (seeds, points, inputs), targets (seeds, points, 1)


def generator(seed: int, tag: str) -> torch.Generator:
    """Random numbers of their own for each use of a seed."""
    return torch.Generator().manual_seed(1_000_003 * seed + zlib.crc32(tag.encode()))


def _normal(shape: tuple[int, ...], seed: int, tag: str) -> Tensor:
    return torch.randn(shape, generator=generator(seed, tag), dtype=torch.float64)


def plane(seeds: Sequence[int], points: int = 100, gap: float = 0.2) -> tuple[Tensor, Tensor, Tensor]:
    """Two classes in the plane, parted by a line through the origin, wide across it and narrow along its normal.

    x = y d u + noise with standard deviation 0.5 along the normal u and 1.5 across; points nearer than ``gap`` to the
    line, or on the wrong side, are drawn again. The best direction is u, by symmetry.

    Args:
        seeds: one data set each.
        points: of a data set.
        gap: the least distance of a point from the line.

    Returns:
        Inputs, labels ±1, and the normals (seeds, 2).
    """
    made = []
    for seed in seeds:
        drawn = _normal((40 * points, 2), seed, "plane points")
        angle = 2 * torch.pi * torch.rand((), generator=generator(seed, "plane angle"), dtype=torch.float64)
        u = torch.stack([angle.cos(), angle.sin()])
        across = torch.stack([-u[1], u[0]])
        labels = torch.where(torch.arange(40 * points) % 2 == 0, 1.0, -1.0).double()
        along = 1.0 * labels + 0.5 * drawn[:, 0]
        kept = (along * labels > gap).nonzero()[:points, 0]
        x = along[kept, None] * u + 1.5 * drawn[kept, 1:] * across
        made.append((x, labels[kept, None], u))
    xs, ys, us = zip(*made, strict=True)
    return torch.stack(xs), torch.stack(ys), torch.stack(us)


def waves(seeds: Sequence[int], points: int, inputs: int) -> Pair:
    """Regression: y = sin(a·x) + b·x/2 with normal x and unit directions a, b times 2; y has mean 0 and variance 1."""
    x = torch.stack([_normal((points, inputs), seed, "waves points") for seed in seeds])
    a, b = (
        torch.stack([F.normalize(_normal((inputs, 1), seed, f"waves {name}"), dim=0) for seed in seeds])
        for name in "ab"
    )
    return x, _standard(torch.sin(2 * x @ a) + x @ b)


def teacher(seeds: Sequence[int], points: int, inputs: int) -> Pair:
    """Regression on a random network of one hidden layer of ten tanh; y has mean 0 and variance 1."""
    x = torch.stack([_normal((points, inputs), seed, "teacher points") for seed in seeds])
    first, last = (
        torch.stack([_normal(shape, seed, f"teacher {shape}") for seed in seeds]) for shape in ((inputs, 10), (10, 1))
    )
    return x, _standard(torch.tanh(x @ first) @ last)


def _standard(y: Tensor) -> Tensor:
    return (y - y.mean(1, keepdim=True)) / y.std(1, correction=0, keepdim=True)


def xor(seeds: Sequence[int], points: int, inputs: int, gap: float = 0.25) -> Pair:
    """Labels sign((a·x)(b·x)) for orthonormal a, b: no line does better than chance, a network of one layer parts them.

    The two directions that matter have standard deviation 2, all others 1; points nearer than ``gap`` to a boundary
    are drawn again.
    """
    made = []
    for seed in seeds:
        drawn = _normal((2 * points + 100, inputs), seed, "xor points")
        turn = torch.linalg.qr(_normal((inputs, inputs), seed, "xor turn"))[0]
        drawn[:, :2] *= 2
        kept = (drawn[:, :2].abs().amin(1) > gap).nonzero()[:points, 0]
        made.append((drawn[kept] @ turn, drawn[kept, :2].prod(1, keepdim=True).sign()))
    return torch.stack([x for x, _ in made]), torch.stack([y for _, y in made])


def committee(seeds: Sequence[int], points: int, inputs: int, gap: float = 0.1) -> Pair:
    """Labels of a random network of one hidden layer of five ReLUs, above its median or below, without the middle."""
    made = []
    for seed in seeds:
        drawn = _normal((3 * points, inputs), seed, "committee points")
        hidden = torch.relu(drawn @ _normal((inputs, 5), seed, "committee first"))
        value = hidden @ _normal((5, 1), seed, "committee last")
        value = (value - value.median()) / value.std()
        kept = (value.abs() > gap).nonzero()[:points, 0]
        made.append((drawn[kept], value[kept].sign()))
    return torch.stack([x for x, _ in made]), torch.stack([y for _, y in made])


REGRESSIONS: dict[str, Callable[[Sequence[int], int, int], Pair]] = {"waves": waves, "teacher": teacher}
CLASSES: dict[str, Callable[[Sequence[int], int, int], Pair]] = {"xor": xor, "committee": committee}
# the loss of single residuals; all are smooth
RESIDUALS: dict[str, Callable[[Tensor], Tensor]] = {
    "mse": lambda r: r * r,
    "half": lambda r: r * r / 2,
    "huber": lambda r: F.smooth_l1_loss(r, torch.zeros_like(r), reduction="none"),
}


def objective(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Mean loss over the examples, one number a network."""
    return lambda output, target: RESIDUALS[name](output - target).mean(dim=(1, 2))


def correct(output: Tensor, labels: Tensor) -> Tensor:
    """The share of right signs, one a network."""
    return (output * labels > 0).to(output.dtype).mean(dim=(1, 2))


def logistic(output: Tensor, labels: Tensor) -> Tensor:
    """Mean logistic loss, one a network."""
    return F.softplus(-output * labels).mean(dim=(1, 2))
