"""Networks on which invalid routes to a bound fail: what the route promises stands beside the truth.

Every function draws its data, builds a predictor, walks the invalid route and measures the true error.
``docs/counterexamples.md`` says why each route is invalid.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.certificates.bounds.cells import tau_published, tau_variation
from normgauge.certificates.bounds.holdout import clopper_pearson
from normgauge.certificates.bounds.than_phan2025 import computable_bound
from normgauge.certificates.facts.cells import Partition, k_means, voronoi
from normgauge.certificates.facts.sample import DataSample
from normgauge.lab.training import train
from normgauge.lab.zoo import Split, mlp

HONEST = 2000  # labelled fresh samples


@dataclass(frozen=True, slots=True, eq=False)
class Counterexample:
    """What an invalid route promised, beside the truth.

    Attributes:
        key: its name.
        route: what is computed and called a bound.
        why: why that is not a bound.
        promised: what the route says; the median over repetitions.
        truth: the true error.
        training_error: on D.
        failures: share of independent repetitions in which the route promises less than the truth.
        delta: the share it allows itself.
        honest: what Clopper & Pearson say from fresh labelled samples; the median too.
        honest_failures: share of repetitions in which that is less than the truth.
        model, train, fresh: the predictor, D and fresh samples, to certify them.
        partition: the cells of the route, where they are the matter.
    """

    key: str
    route: str
    why: str
    promised: float
    truth: float
    training_error: float
    failures: float
    delta: float
    honest: float
    honest_failures: float
    model: nn.Module
    train: DataSample
    fresh: DataSample
    partition: Partition | None = None

    def __str__(self) -> str:
        """The promise, the truth and the share of failures in one line."""
        return (
            f"{self.key}: promised {self.promised:.3g}, true error {self.truth:.3g}, wrong in {self.failures:.0%} of "
            f"draws where {self.delta:.0%} are allowed; a hold-out says {self.honest:.3g}"
        )


class Table(nn.Module):
    """Right on the points it was given, wrong on all others: the class of a point is whether it lies right of ½."""

    keys: Tensor

    def __init__(self, points: Tensor) -> None:
        super().__init__()
        self.register_buffer("keys", _key(points).sort().values)

    def forward(self, x: Tensor) -> Tensor:
        """Two numbers, (n, 2)."""
        place = torch.searchsorted(self.keys, _key(x)).clamp(max=len(self.keys) - 1)
        known = self.keys[place] == _key(x)
        return F.one_hot(torch.where(known, right_half(x), 1 - right_half(x)), 2).float()


class Bumps(nn.Module):
    """Class 0 within ``reach`` of the points it was given, class 1 elsewhere; its margin has slope 2/reach."""

    points: Tensor

    def __init__(self, points: Tensor, reach: float) -> None:
        super().__init__()
        self.register_buffer("points", points)
        self.reach = reach

    def forward(self, x: Tensor) -> Tensor:
        """Two numbers, (n, 2)."""
        near = torch.cdist(x.double(), self.points.double(), compute_mode="donot_use_mm_for_euclid_dist").amin(1)
        lead = 1 - 2 * (near / self.reach).clamp(max=1)
        return torch.stack([lead, -lead], 1).float()


class Strip(nn.Module):
    """Wrong left of ``share`` but for the points it was given, where every true class is 0."""

    keys: Tensor

    def __init__(self, share: float, points: Tensor) -> None:
        super().__init__()
        self.register_buffer("keys", _key(points))
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """Two numbers, (n, 2)."""
        return F.one_hot(((x[:, 0] < self.share) & ~torch.isin(_key(x), self.keys)).long(), 2).float()


def right_half(x: Tensor) -> Tensor:
    """The true class of each point: whether it lies right of ½."""
    return (x[:, 0] > 0.5).long()


def memorizer(n: int = 200_000, cells: int = 200, seed: int = 0) -> Counterexample:
    """A table of the training points: training error 0, error 1 on everything else."""
    draw = torch.Generator().manual_seed(seed)
    points = torch.rand(n, 2, generator=draw)
    partition = voronoi(torch.rand(cells, 2, generator=draw))
    counts = torch.bincount(partition.assign(points), minlength=cells).double()
    delta = 0.05  # γ^−α + δ at the settings of the paper: .04 + .01
    promised = computable_bound(0.0, (counts / n).tolist(), cells, n).value
    inputs = torch.rand(HONEST, 2, generator=draw)
    return _finished(
        "memorizer",
        "Than & Phan 2025, Theorem 3.2: training loss + cell counts",
        "it knows the network only through its training loss, and a table has none",
        [promised],
        1.0,
        delta,
        Table(points),
        DataSample(points, right_half(points)),
        DataSample(inputs, right_half(inputs)),
        partition,
    )


def random_labels(n: int = 400, width: int = 50, seed: int = 0) -> Counterexample:
    """A network fitted to coin flips: no training error, and every second fresh label is wrong."""
    draw = torch.Generator().manual_seed(seed)
    partition = voronoi(torch.randn(5, width, generator=draw))
    sample, fresh = (
        DataSample(torch.randn(k, width, generator=draw), torch.randint(2, (k,), generator=draw)) for k in (n, HONEST)
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = mlp((width, 256, 2))
    train(model, Split(sample.take(range(n)), sample.truth), epochs=40, batch_size=50, lr=3e-3, seed=seed)
    error = _error(model.eval(), sample)
    return _finished(
        "random labels",
        "training error + the slack of the cells (total variation), as if the loss did not change inside them",
        "the network learnt each sample by heart; what changes inside a cell is the whole error",
        [error + tau_variation(partition.cells * 2, n, 0.05)],
        0.5,
        0.05,
        model,
        sample,
        fresh,
        partition,
    )


def own_cells(n: int = 400, seed: int = 0) -> Counterexample:
    """The form of Theorem 20, with our slack, and cells clustered on the training set: small balls, and the rest.

    All of D lies in balls that have hardly any mass. The network is right there and wrong elsewhere, and inside the
    balls its loss hardly changes: every term is small, as computed. With the theorem's own slack the sum is above 1.
    """
    draw = torch.Generator().manual_seed(seed)
    points = torch.rand(n, 2, generator=draw)
    reach, radius = 2e-3, 5e-5
    partition = k_means(points, n, radius=radius)
    inside = 2 * radius / reach  # λL: the loss clip(2d/reach, 0, 1) is 1 on mistakes; no point of a ball is farther
    inputs = torch.rand(HONEST, 2, generator=draw)
    model = Bumps(points, reach)
    wrong = 1 - n * math.pi * (reach / 2) ** 2  # at least: class 0 ends half way
    return _finished(
        "own cells",
        "the form of Theorem 20 with our slack, and k-means cells of the training set",
        "cells fixed after D can follow D: the shares of D in them say nothing of the shares of P",
        [inside + tau_variation(partition.cells, n, 0.05)],
        wrong,
        0.05,
        model,
        DataSample(points, torch.zeros(n, dtype=torch.long)),
        DataSample(inputs, torch.zeros(HONEST, dtype=torch.long)),
        partition,
    )


def borrowed_labels(tests: int = 100, cells: int = 100, repeats: int = 200, seed: int = 0) -> Counterexample:
    """Equation (66) with the change in each cell measured on a test set, and cells without a test point dropped.

    The network makes no mistake on its training samples, 100 million; the first 1,000 are in what is returned.
    """
    draw, share, m = torch.Generator().manual_seed(seed), 0.2, 100_000_000
    promised, honest = [], []
    for _ in range(repeats):
        x = torch.rand(tests, generator=draw)
        place = (x * cells).long()
        seen = torch.bincount(place, minlength=cells)
        bad = torch.bincount(place, weights=(x < share).double(), minlength=cells)
        change = float((bad / seen.clamp(min=1)).sum()) / cells  # m is so large that shares are 1/N
        promised.append(change + tau_published(cells, cells, m, 0.05))
        honest.append(clopper_pearson(int(bad.sum()), tests, math.log(0.05)))
    points, inputs = (torch.rand(k, 2, generator=draw) for k in (1000, HONEST))
    return _finished(
        "borrowed labels",
        "equation (66), ε from test labels, cells without a test point dropped, called a bound",
        "a mean over few test points is an estimate; dropped cells count as if nothing could go wrong in them",
        promised,
        share,
        0.05,
        Strip(share, points),
        DataSample(points, torch.zeros(1000, dtype=torch.long)),
        DataSample(inputs, torch.zeros(HONEST, dtype=torch.long)),
        honest=honest,
    )


COUNTEREXAMPLES: Mapping[str, Callable[[], Counterexample]] = {
    "memorizer": memorizer,
    "random labels": random_labels,
    "own cells": own_cells,
    "borrowed labels": borrowed_labels,
}


def _finished(
    key: str,
    route: str,
    why: str,
    promised: list[float],
    truth: float,
    delta: float,
    model: nn.Module,
    sample: DataSample,
    fresh: DataSample,
    partition: Partition | None = None,
    honest: list[float] | None = None,
) -> Counterexample:
    wrong = round(_error(model, fresh) * len(fresh))
    honest = honest or [clopper_pearson(wrong, len(fresh), math.log(0.05))]
    return Counterexample(
        key,
        route,
        why,
        statistics.median(promised),
        truth,
        _error(model, sample),
        sum(value < truth for value in promised) / len(promised),
        delta,
        statistics.median(honest),
        sum(value < truth for value in honest) / len(honest),
        model.eval(),
        sample,
        fresh,
        partition,
    )


@torch.no_grad()
def _error(model: nn.Module, sample: DataSample) -> float:
    return sum(float((model(x).argmax(1) != y).sum()) for x, y in sample.pairs(4096)) / len(sample)


def _key(points: Tensor) -> Tensor:
    """Both coordinates of a point in one whole number, bit by bit."""
    bits = points.float().contiguous().view(torch.int32).long()
    return (bits[:, 0] << 32) | bits[:, 1]
