"""The training sample seen in a space where the loss has a known slope: inputs, or features of an encoder."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normgauge.certificates.bounds.distances import paired_distance
from normgauge.certificates.facts.cells import Partition, assign_all
from normgauge.certificates.facts.sample import DataSample
from normgauge.geometry.hessian.margins import margin

STEEPNESS = tuple(2.0 ** (j / 4) for j in range(-40, 81))  # fixed in advance: from 1e-3 to 1e6 a unit of distance
CHUNK = 4096  # distances computed at a time


@dataclass(frozen=True, slots=True)
class Choice:
    """One loss to bound: its slope in this space over its range, and its mean over D over its range.

    Attributes:
        steepness: one of `STEEPNESS`, so that one event covers all choices, also those made after looking.
        loss: F(D)/C.
        gamma: the margin at which the ramp begins; None for other losses.
    """

    steepness: float
    loss: float
    gamma: float | None = None


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
        """How many points count 1 for every steepness: those alone in their cell, and those left out."""
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
        """S and Q of `paired_distance` for this steepness."""
        near, far = (self.pairs * steepness).clamp(max=1), (self.triples * steepness).clamp(max=1)
        return float(2 * near.sum() + far.sum()), float(4 * near.square().sum() + far.square().sum())

    def upper(self, steepness: float, delta: float) -> float:
        """What a loss in [0, 1] of this slope changes inside its cells on average, at most; see `paired_distance`."""
        return paired_distance(*self.sums(steepness), self.alone, self.m, delta)


@dataclass(frozen=True, slots=True, eq=False)
class CellSpace:
    """The training sample D, sorted into cells.

    Attributes:
        name: ``inputs`` or ``features``.
        points: where the samples lie.
        classes: how many labels there are.
        partition: fixed without D.
        cells: (m,) cell times label: a cell never mixes labels.
        spread: distances inside the cells.
        margins: (m,) float64, positive where the network is right.
        slope: proved Lipschitz constant of the margin in this space; inf if none is proved.
        gap: why the slope is not proved, where it is not.
        limit: C, the range of the loss.
        quantity: what is bounded.
        choices: the losses one may choose from after the fact.
        problem: why the loss has no range; empty if it has one.
    """

    name: str
    points: DataSample
    classes: int
    partition: Partition
    cells: Tensor
    spread: CellSpread
    margins: Tensor
    slope: float
    gap: str
    limit: float
    quantity: str
    choices: tuple[Choice, ...]
    problem: str = ""

    @property
    def m(self) -> int:
        """The number of samples."""
        return len(self.cells)

    @property
    def refusal(self) -> str:
        """Why no row can be computed here: no loss with a range, or no slope."""
        return self.problem or self.gap

    @property
    def count(self) -> int:
        """N: cells of the whole space, met or not, times labels."""
        return self.partition.cells * self.classes

    def met(self) -> tuple[Tensor, Tensor]:
        """The cells that hold samples of D, in order, and how many each holds."""
        return torch.unique(self.cells, return_counts=True)

    def counts(self) -> list[int]:
        """How many samples each cell holds that was met."""
        return self.met()[1].tolist()

    def shared(self, fresh: DataSample) -> tuple[Tensor, Tensor]:
        """Which labelled points lie in cells that D meets, and the place of that cell among those met."""
        cells, met = crossed(self.partition, fresh, self.classes), self.met()[0]
        place = torch.searchsorted(met, cells).clamp(max=len(met) - 1)
        kept = (met[place] == cells).nonzero().squeeze(1)
        return kept, place[kept]

    def gamma(self) -> float:
        """The median margin: where a row that says nothing is shown."""
        return max(float(self.margins.quantile(0.5)), 1e-12)


def crossed(partition: Partition, sample: DataSample, classes: int) -> Tensor:
    """Cell times label of every sample: a cell never mixes labels."""
    return assign_all(partition, sample) * classes + sample.truth


def in_cells(sample: DataSample, classes: int, partition: Partition, *, seed: int = 0) -> tuple[Tensor, CellSpread]:
    """Cell times label of every sample, and the distances inside."""
    cells = crossed(partition, sample, classes)
    return cells, spread_of(sample, cells, seed=seed, outside=partition.far(cells // classes))


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
    """The distance from each of these places of one sample to its partner in the other, in float64."""
    found = [torch.zeros(0, dtype=torch.float64)]
    for i, j in zip(here.split(CHUNK), there.split(CHUNK), strict=True):
        if len(i):
            found.append((first.take(i).flatten(1).double() - second.take(j).flatten(1).double()).norm(dim=1))
    return torch.cat(found)


def ramps(margins: Tensor, slope: float) -> tuple[Choice, ...]:
    """The ramp clip(1 − margin/γ, 0, 1) for every γ = slope/t: at least the 0-1 loss, with slope t.

    >>> [(c.gamma, c.loss) for c in ramps(torch.tensor([1.0, -1.0, 0.125]).double(), 0.25) if c.steepness == 1.0]
    [(0.25, 0.5)]
    """
    if not math.isfinite(slope):
        return ()
    found = []
    for t in STEEPNESS:
        gamma = slope / t if slope > 0 else 1 / t
        found.append(Choice(t, float((1 - margins / gamma).clamp(0, 1).mean()), gamma))
    return tuple(found)


def fixed_loss(mean: float, slope: float, limit: float) -> tuple[Choice, ...]:
    """The one choice for a given loss, its slope rounded up to the grid; empty if it is steeper than the grid."""
    steeper = [t for t in STEEPNESS if t >= slope / limit]
    return (Choice(steeper[0], mean / limit),) if steeper else ()


def margins_of(logits: Tensor, labels: Tensor) -> Tensor:
    """f_y − max over the others, (m,) float64."""
    return margin(logits.double(), labels)[0]


def linear_margins(head: nn.Linear, points: DataSample) -> Tensor:
    """The distance to the nearest boundary of a linear head, (m,) float64, negative where it is wrong: slope 1.

    min over j ≠ y of (f_y − f_j)/‖w_y − w_j‖; two classes with the same weights share no boundary: their difference
    does not depend on the point, and counts as infinitely far on its side.
    """
    weight = head.weight.detach().cpu().double()
    bias = torch.zeros(len(weight), dtype=torch.float64) if head.bias is None else head.bias.detach().cpu().double()
    apart = torch.cdist(weight, weight, compute_mode="donot_use_mm_for_euclid_dist")
    found = []
    for x, y in points.pairs():
        scores = x.flatten(1).double() @ weight.T + bias
        lead = scores.gather(1, y[:, None]) - scores
        distance = torch.where(apart[y] > 0, lead / apart[y], torch.where(lead > 0, math.inf, -math.inf))
        found.append(distance.scatter(1, y[:, None], math.inf).amin(1))
    return torch.cat(found)


def linear_differences(head: nn.Linear) -> float:
    """max ‖w_i − w_j‖, rounded up: the Lipschitz constant of the steepest difference of outputs of a linear head.

    >>> head = nn.Linear(2, 2)
    >>> with torch.no_grad(): _ = head.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> round(linear_differences(head), 9)
    5.0
    """
    weight = head.weight.detach().cpu().double()
    apart = torch.cdist(weight, weight, compute_mode="donot_use_mm_for_euclid_dist")
    return float(apart.max()) * (1 + 1e-12)
