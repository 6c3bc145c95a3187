"""Partitions fixed without the training sample, and which cell each point falls into."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.certificates.facts.sample import DataSample, fingerprints
from normgauge.core.errors import InputError

ROWS = 2048  # points compared with all centres at a time: 80 MB for 10,000 centres
FEW = 500  # points whose distances are worked out one by one
ROUNDS = 25  # of k-means


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Cells of a space of vectors.

    Attributes:
        kind: in words for the report.
        centres: (k, d) of Voronoi cells; None for a single cell.
        radius: a cell ends this far from its centre, and what is farther from every centre is one more cell.
        seen: fingerprints of the points the cells were made from: none of them may be a training sample.
    """

    kind: str
    centres: Tensor | None = None
    radius: float | None = None
    seen: frozenset[bytes] = field(default_factory=frozenset)

    @property
    def cells(self) -> int:
        """The number of cells of the whole space, met or not."""
        if self.centres is None:
            return 1
        return len(self.centres) + (self.radius is not None)

    def assign(self, points: Tensor) -> Tensor:
        """The cell of each point, (n,) int64; ``len(centres)`` is the cell of all that is far from every centre."""
        flat = points.flatten(1).float()
        if self.centres is None:
            return torch.zeros(len(flat), dtype=torch.long)
        cells, squares = nearest_centres(flat, self.centres)
        if self.radius is not None:
            cells = torch.where(squares > self.radius**2, len(self.centres), cells)
        return cells

    def far(self, cells: Tensor) -> Tensor:
        """Which of these cell numbers stand for the points far from every centre."""
        return cells == (-1 if self.radius is None or self.centres is None else len(self.centres))

    def check_unseen(self, train: frozenset[bytes]) -> None:
        """Refuse a training sample the cells were made from.

        Raises:
            InputError: with the count of samples that both have.
        """
        both = len(self.seen & train)
        if both:
            raise InputError(
                f"the partition was made from {both} of the training samples: Theorem 20 and its relatives need cells "
                "fixed without them. Make it from unlabeled= data or another disjoint split"
            )


def neighbours(points: Tensor) -> tuple[Tensor, Tensor]:
    """The distance from each point to its nearest other point, and the place of that point; two points at least."""
    flat = points.flatten(1)
    mode = "donot_use_mm_for_euclid_dist" if len(flat) <= FEW else "use_mm_for_euclid_dist"
    apart = torch.cdist(flat, flat, compute_mode=mode)
    return apart.fill_diagonal_(math.inf).min(1)


def nearest_centres(points: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest centre of each point and the squared distance, a block of points at a time.

    ‖x − c‖² = ‖x‖² − 2⟨x, c⟩ + ‖c‖² after moving the origin to the mean of the centres, which keeps the cancellation
    small; the distance to the one chosen is then computed again without it.
    """
    origin = centres.mean(0)
    moved = centres - origin
    half = moved.square().sum(1) / 2
    found, squares = [], []
    for block in points.split(ROWS):
        score = torch.addmm(half, block - origin, moved.T, alpha=-1)
        best = score.argmin(1)
        found.append(best)
        squares.append((block - centres[best]).square().sum(1))
    return torch.cat(found), torch.cat(squares)


def one_cell() -> Partition:
    """The whole space: with the labels, one cell a class."""
    return Partition("one cell")


def voronoi(points: Tensor, radius: float | None = None) -> Partition:
    """One cell around each of these points, which must not be training samples."""
    flat = points.flatten(1).float()
    kind = f"{len(flat)} Voronoi cells" + ("" if radius is None else f" within {radius:.3g}, and the rest")
    return Partition(kind, flat, radius=radius, seen=fingerprints(points))


def k_means(points: Tensor, cells: int, *, seed: int = 0, radius: float | None = None) -> Partition:
    """Cells around the centres of clusters (k-means++ start, Lloyd rounds) of points disjoint from the sample.

    Raises:
        InputError: for fewer points than cells.
    """
    flat = points.flatten(1).float()
    if len(flat) < cells:
        raise InputError(f"expected at least {cells} points to make {cells} cells from, got {len(flat)}")
    generator = torch.Generator().manual_seed(seed)
    centres = _spread_out(flat, cells, generator)
    for _ in range(ROUNDS):
        owner, _ = nearest_centres(flat, centres)
        sums = torch.zeros_like(centres).index_add_(0, owner, flat)
        counts = torch.bincount(owner, minlength=cells)
        moved = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centres)
        if torch.equal(moved, centres):
            break
        centres = moved
    kind = f"{cells} k-means cells" + ("" if radius is None else f" within {radius:.3g}, and the rest")
    return Partition(kind, centres, radius=radius, seen=fingerprints(points))


def _spread_out(flat: Tensor, cells: int, generator: torch.Generator) -> Tensor:
    chosen = [int(torch.randint(len(flat), (1,), generator=generator))]
    squares = (flat - flat[chosen[0]]).square().sum(1)
    for _ in range(cells - 1):
        if float(squares.max()) <= 0:  # fewer distinct points than cells
            chosen.append(int(torch.randint(len(flat), (1,), generator=generator)))
            continue
        pick = torch.searchsorted(squares.cumsum(0), torch.rand(1, generator=generator) * squares.sum())
        chosen.append(min(int(pick), len(flat) - 1))
        squares = torch.minimum(squares, (flat - flat[chosen[-1]]).square().sum(1))
    return flat[chosen].clone()


def assign_all(partition: Partition, sample: DataSample) -> Tensor:
    """The cell of every point of a sample, read in batches."""
    return torch.cat([partition.assign(x) for x in sample.batches(ROWS)])
