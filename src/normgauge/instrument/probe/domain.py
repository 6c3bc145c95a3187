"""Where a search may go: the point itself, a ball around every sample, or anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.instrument.probe.linearize import row_norms

JITTER = 1e-9  # of a sample's root mean square: off every kink, and far inside what a slope is rounded by
INSIDE = 1e-3  # part of the radius kept free, so that a difference quotient at a point stays in the ball too


@dataclass(frozen=True, slots=True)
class Domain:
    """The points within ``radius`` of each row of ``center``, (samples, inputs)."""

    center: Tensor
    radius: float

    @property
    def anywhere(self) -> bool:
        """Whether the search may go anywhere."""
        return math.isinf(self.radius)

    @property
    def room(self) -> float:
        """How far a difference quotient may step from a projected point; not limited in a point scope."""
        return self.radius * INSIDE / 2 if self.radius > 0 else math.inf

    @property
    def unit_step(self) -> Tensor:
        """A natural length for a move of each sample: its norm, no more than the radius."""
        size = row_norms(self.center)
        return torch.where(size > 0, size, 1.0).clamp(max=self.radius)

    def project(self, points: Tensor) -> Tensor:
        """The nearest points inside the ball, a thousandth of the radius away from its surface."""
        if self.anywhere:
            return points
        offset = points - self.center
        size = row_norms(offset)
        rounding = 8 * torch.finfo(points.dtype).eps * row_norms(self.center)
        limit = (self.radius * (1 - INSIDE) - rounding).clamp(min=0)
        shrink = torch.where(size > limit, limit / torch.where(size > 0, size, 1.0), 1.0)
        return self.center + offset * shrink[:, None]

    def jitter(self, points: Tensor, noise: Tensor) -> Tensor:
        """``points`` moved by 1e-9 of their root mean square (1e-9 for a zero sample), so that none is on a kink."""
        size = points.square().mean(1, keepdim=True).sqrt()
        moved = points + JITTER * torch.where(size > 0, size, 1.0) * noise
        return self.project(moved) if self.radius > 0 else moved


def landmarks(center: Tensor, noise: Tensor) -> Iterator[Tensor]:
    """Points where networks are often steep: constant, zero, small and large inputs, and midpoints.

    A normalizer has its largest slope 1/√ε where its input is constant, and a squashing network near zero.

    Holds:  nothing is claimed of them; a search tries them first.
    """
    mean = center.mean(1, keepdim=True)
    yield mean + torch.zeros_like(center)
    yield torch.zeros_like(center)
    for shrink in (1e-1, 1e-2, 1e-3):
        yield mean + shrink * (center - mean)
    for exponent in (-4, -2, -1, -0.5, 0.5, 1, 2, 4):
        yield center * 10**exponent
    yield (center + center.roll(1, 0)) / 2
    yield -center
    yield noise * center.square().mean(1, keepdim=True).sqrt()
