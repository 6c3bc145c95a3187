"""An attack: the smallest change found that changes a prediction, by projected gradient descent of the margin."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import TINY

INF = math.inf
HALVINGS = 12  # of the segment from a sample to a change that was found
REFINEMENTS = 4  # projections on the boundary, linear there
OVERSHOOT = 1.001  # beyond the boundary, where a linear one would lie
SWING, STILL = 0.3, 0.02  # by which part the length of a change moves, in the first and the last step
NEARBY = 0.1  # of the first sphere: where a descent begins; once every class had its own, on the sphere itself
STRIDE, SHORT = 1.0, 0.1  # the step as a part of that length, first and last
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class AttackPlan:
    """How hard an attack tries; the work is counted, so that two runs do the same.

    Attributes:
        restarts: descents from each sample: the first towards any class, the others each towards one of the closest.
        steps: of a descent.
        seed: of the random starts.
    """

    restarts: int = 4
    steps: int = 40
    seed: int = 0


class Attack:
    """Samples under attack, and the closest points found at which their class is another.

    Attributes:
        distance: (samples,) l2 length of the smallest change that changes the class, inf where none was found.
        point: where; the sample itself where none was found.
    """

    def __init__(self, function: Function, samples: Tensor, wanted: Tensor, slack: Tensor) -> None:
        """Take the samples.

        Args:
            function: the network in float64; it treats samples one by one.
            samples: (samples, ...).
            wanted: (samples,) the class each has.
            slack: (samples,) what rounding may do to a margin: a class counts as another only beyond it.
        """
        self.function, self.samples, self.wanted = function, samples.detach(), wanted
        self.slack = slack.to(samples)
        self.distance = torch.full(wanted.shape, INF, dtype=torch.float64, device=samples.device)
        self.point = self.samples.clone()

    def run(self, plan: AttackPlan) -> Attack:
        """Descend from every start, then draw the points found closer."""
        generator = torch.Generator().manual_seed(plan.seed)
        order = self.gaps(self.samples).argsort(1)
        for restart in range(plan.restarts):
            noise = torch.randn(self.samples.shape, generator=generator, dtype=torch.float64).to(self.samples)
            turn, rank = divmod(restart - 1, order.shape[1] - 1)
            start = noise * (1.0 if turn > 0 else NEARBY)
            self.descend(start, None if restart == 0 else order[:, rank], plan.steps)
        for _ in range(REFINEMENTS):
            self.shrink()
            self.refine()
        self.shrink()
        return self

    def gaps(self, points: Tensor) -> Tensor:
        """f_y − f_i at the points, (samples, classes), inf at the class itself."""
        outputs = self.function(points.clone())
        own = outputs.gather(1, self.wanted[:, None])
        return (own - outputs).scatter(1, self.wanted[:, None], INF)

    def note(self, points: Tensor, gaps: Tensor) -> Tensor:
        """Keep the points that are closer than those known and have another class; returns which have another class."""
        changed = gaps.detach().amin(1) < -self.slack
        away = _lengths(points - self.samples)
        closer = changed & (away < self.distance) & (away > 0)
        self.distance = torch.where(closer, away, self.distance)
        self.point = torch.where(_wide(closer, points), points.detach(), self.point)
        return changed

    def slopes(self, points: Tensor, target: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """All gaps, the one descended (towards ``target``, or the smallest) and its gradient."""
        with torch.enable_grad():
            at = points.detach().requires_grad_()
            gaps = self.gaps(at)
            chosen = gaps.amin(1) if target is None else gaps.gather(1, target[:, None]).squeeze(1)
            (slope,) = torch.autograd.grad(chosen.sum(), at)
        return gaps.detach(), chosen.detach(), slope.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)

    def descend(self, start: Tensor, target: Tensor | None, steps: int) -> None:
        """One descent: on a sphere around each sample that shrinks after a success and grows after a failure.

        The first sphere is as large as the distance to the boundary would be if the network were linear.

        Args:
            start: where to begin, in units of that sphere; random, since a descent may be stuck at the sample itself.
            target: the class to go to, of each sample; None for any.
            steps: how many.
        """
        _, gap, slope = self.slopes(self.samples, target)
        reach = (gap.abs() / _lengths(slope).clamp_min(TINY)).clamp(max=1.0 + float(_lengths(self.samples).max()))
        change = start * _wide(reach / math.sqrt(start[0].numel()), start)
        for step in range(steps):
            left = 1 - step / steps
            gaps, _, slope = self.slopes(self.samples + change, target)
            changed = self.note(self.samples + change, gaps)
            swing = max(STILL, SWING * left)
            reach = reach * torch.where(changed, 1 - swing, 1 + swing)
            still = _wide(_lengths(slope) == 0, slope)
            slope = torch.where(still, start, slope)
            move = slope * _wide(reach * max(SHORT, STRIDE * left) / _lengths(slope).clamp_min(TINY), slope)
            change = change - move
            change = change * _wide(reach / _lengths(change).clamp_min(TINY), change)
        with torch.no_grad():
            self.note(self.samples + change, self.gaps(self.samples + change))

    @torch.no_grad()
    def shrink(self) -> None:
        """Look for closer points on the segments from the samples to the points found, by halving."""
        change = self.point - self.samples
        low, high = torch.zeros_like(self.distance), torch.ones_like(self.distance)
        for _ in range(HALVINGS):
            share = (low + high) / 2
            points = self.samples + change * _wide(share, change)
            changed = self.note(points, self.gaps(points))
            low, high = torch.where(changed, low, share), torch.where(changed, share, high)

    def refine(self) -> None:
        """Try the point of the boundary that would be closest if it were flat at the point found."""
        gaps, gap, slope = self.slopes(self.point, None)
        self.note(self.point, gaps)
        change = self.point - self.samples
        along = (slope * change).flatten(1).sum(1) - gap - 2 * self.slack
        share = OVERSHOOT * along / _lengths(slope).square().clamp_min(TINY)
        points = self.samples + slope * _wide(share, slope)
        with torch.no_grad():
            self.note(points, self.gaps(points))


def _lengths(points: Tensor) -> Tensor:
    return torch.linalg.vector_norm(points.detach().flatten(1), dim=1)


def _wide(values: Tensor, like: Tensor) -> Tensor:
    """One entry a sample, as it multiplies tensors like ``like``."""
    return values.reshape(-1, *[1] * (like.ndim - 1))
