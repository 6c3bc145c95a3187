"""Distances inside cells: disjoint pairs and triples of a sample."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.certificates.bounds.distances import paired_distance
from normgauge.certificates.facts.sample import DataSample

CHUNK = 4096


@dataclass(frozen=True, slots=True, eq=False)
class CellSpread:
    """Distances of points that share a cell, each point used once.

    Attributes:
        pairs: (p,) float64.
        triples: (q, 3) float64.
        cells: (p + q,) the cell of each pair, then of each triple.
        m: points in all.
    """

    pairs: Tensor
    triples: Tensor
    cells: Tensor
    m: int

    @property
    def alone(self) -> int:
        """Points that count 1, whatever the steepness: no other is in their cell, or they were left out."""
        return self.m - 2 * len(self.pairs) - 3 * len(self.triples)

    def mean(self) -> float:
        """The mean distance within a cell, points alone left out."""
        count = 2 * len(self.pairs) + 3 * len(self.triples)
        return float(2 * self.pairs.sum() + self.triples.sum()) / max(count, 1)

    def by_cell(self) -> tuple[Tensor, Tensor]:
        """The cells that hold two points and more, and the mean distance in each."""
        means = torch.cat([self.pairs, self.triples.mean(1)])
        weights = torch.cat([torch.full_like(self.pairs, 2.0), torch.full((len(self.triples),), 3.0).double()])
        found, place = self.cells.unique(return_inverse=True)
        total = torch.zeros(len(found), dtype=torch.float64).index_add_(0, place, means * weights)
        return found, total / torch.zeros_like(total).index_add_(0, place, weights)

    def sums(self, steepness: float) -> tuple[float, float]:
        """S and Q of `paired_distance`."""
        near, far = (self.pairs * steepness).clamp(max=1), (self.triples * steepness).clamp(max=1)
        return float(2 * near.sum() + far.sum()), float(4 * near.square().sum() + far.square().sum())

    def upper(self, steepness: float, delta: float) -> float:
        """What a loss in [0, 1] of this slope changes inside its cells on average, at most; see `paired_distance`."""
        return paired_distance(*self.sums(steepness), self.alone, self.m, delta)


def spread_of(sample: DataSample, cells: Tensor, *, seed: int = 0, outside: Tensor | None = None) -> CellSpread:
    """Pair the points of each cell at random.

    Args:
        sample: the points.
        cells: (m,) the cell of each.
        seed: of the pairing, which must not depend on anything else about the points.
        outside: (m,) points that are left out and count in full, such as those far from every centre.

    Returns:
        The distances, in float64.
    """
    kept = torch.arange(len(cells)) if outside is None else (~outside).nonzero().squeeze(1)
    generator = torch.Generator().manual_seed(seed)
    kept = kept[torch.randperm(len(kept), generator=generator)]
    kept = kept[torch.argsort(cells[kept], stable=True)]
    _, counts = torch.unique_consecutive(cells[kept], return_counts=True)
    ends = counts.cumsum(0)
    position = torch.arange(len(kept)) - torch.repeat_interleave(ends - counts, counts)
    size = torch.repeat_interleave(counts, counts)
    in_triple = (size % 2 == 1) & (size >= 3) & (position < 3)
    pairs = kept[~in_triple & (size > 1)].reshape(-1, 2)
    triples = kept[in_triple].reshape(-1, 3)
    near = sample_distances(sample, pairs[:, 0], sample, pairs[:, 1])
    sides = ((0, 1), (0, 2), (1, 2))
    far = torch.stack([sample_distances(sample, triples[:, i], sample, triples[:, j]) for i, j in sides], 1)
    where = cells[torch.cat([pairs[:, 0], triples[:, 0]])]
    return CellSpread(near, far, where, len(cells))


def sample_distances(first: DataSample, here: Tensor, second: DataSample, there: Tensor) -> Tensor:
    """From these places of one sample to those of another, one by one, in float64."""
    found = [torch.zeros(0, dtype=torch.float64)]
    for i, j in zip(here.split(CHUNK), there.split(CHUNK), strict=True):
        if len(i):
            found.append((first.take(i).flatten(1).double() - second.take(j).flatten(1).double()).norm(dim=1))
    return torch.cat(found)
