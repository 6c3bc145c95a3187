"""The training sample seen in a space where the loss has a known slope: inputs, or features of an encoder."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normgauge.certificates.facts.cells import Partition, assign_all
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.facts.spread import CellSpread, spread_of
from normgauge.geometry.hessian.margins import margin

STEEPNESS = tuple(2.0 ** (j / 4) for j in range(-40, 81))  # fixed in advance: from 1e-3 to 1e6 a unit of distance


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
class CellSpace:
    """D in cells.

    Attributes:
        name: ``inputs`` or ``features``.
        points: where the samples lie.
        classes: how many labels there are.
        partition: fixed without D.
        cells: (m,) cell times label: a cell never mixes labels.
        spread: distances inside the cells.
        margins: (m,) float64, positive where the network is right.
        slope: proved Lipschitz constant of the margin in this space; inf where there is none.
        gap: why the slope is not proved, where it is not.
        limit: C, the range of the loss.
        quantity: what is bounded.
        choices: the losses one may choose from after the fact.
        problem: why there is no loss with a range, where there is none.
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
        """Samples."""
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
        """Samples in each cell that was met."""
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
    """A loss that is given: its slope rounded up to the grid."""
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
