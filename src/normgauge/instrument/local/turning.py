"""How far the Jacobian of a normalized group can turn away from a fixed matrix while the group stays in a box.

Let â be the direction of the centred group at the sample, p = â·u/√n and q the length of the rest over √n. With
s² = p² + q² + ε the Jacobian without γ is, in the plane of â and the rest, and across it,

    J = [[(q² + ε)/s³, −pq/s³], [−pq/s³, (p² + ε)/s³]]   and   1/s.

The matrix in the middle is M = a'·ââᵀ + a·(P − ââᵀ), so that ‖J − M‖ depends on (p, q) alone; over a box of them it is
bounded cell by cell. The largest eigenvalue of [[x, −b], [−b, y]] rises in x, in y and in b ≥ 0, the smallest falls in
b: ends of the entries give ends of the norm. It is convex in (a, a'), any choice of which is a proof.

Holds: for σ ≥ â·u/√n, which is linear in u; the ball need not keep the whole group away from zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from normgauge.core.rounding import UNIT, house_up

COARSE, FINE = 12, 96  # cells on a side: to choose the middle with, and to prove with
ROUNDS, CUTS = 3, 14  # of the search for the middle: turns between a and a', and cuts of each interval
GOLDEN = (math.sqrt(5) - 1) / 2
STILL = 1e-6  # of s: a group that moves less is bounded by its second derivative
ROUNDED = 64 * UNIT  # of an entry of J, a dozen operations


@dataclass(frozen=True, slots=True)
class Turned:
    """The middle M = along·ââᵀ + across·(P − ââᵀ) and the bound of ‖J − M‖ over the box."""

    along: float
    across: float
    half: float


@dataclass(frozen=True, slots=True)
class Cells:
    """Ends of the entries of J over the cells of a box: ââ, across, the plane's mixed entry, 1/s."""

    along: tuple[Tensor, Tensor]
    across: tuple[Tensor, Tensor]
    mixed: Tensor
    outside: tuple[float, float]

    @classmethod
    def of(cls, sigma: float, forth: float, aside: float, eps: float, count: int) -> Self:
        """Cells of |p − σ| ≤ forth, 0 ≤ q ≤ aside, ``count`` on a side."""
        _, p, q, (near, far) = _box(sigma, forth, aside, eps, count)
        along, across = (_ends(one, other, eps) for one, other in ((p, q), (q, p)))
        mixed = p[1] * q[1] / near**3
        return cls(along, across, mixed, (1 / float(far.max()), 1 / float(near.min())))

    def far_from(self, along: float, across: float) -> float:
        """sup‖J − M‖ over the cells."""
        ends = [
            _extreme(sign * (self.along[k] - along), sign * (self.across[k] - across), self.mixed)
            for k, sign in ((1, 1.0), (0, -1.0))
        ]
        beside = max(abs(end - across) for end in self.outside)
        return max(beside, *(float(end.max()) for end in ends))


class Secants(Cells):
    """The same for S with y(u) − y(c) = S (u − c), y the normalized group.

    S = [[1/s − g (σ + p), −g q], [0, 1/s]] and 1/s across the plane, g = σ/(s s_c (s + s_c)), since y = u/s and
    1/s − 1/s_c = −(u + c)·(u − c)/(n s s_c (s + s_c)).
    """

    __slots__ = ()

    @classmethod
    def of(cls, sigma: float, forth: float, aside: float, eps: float, count: int) -> Self:
        """Cells of |p − σ| ≤ forth, 0 ≤ q ≤ aside, ``count`` on a side."""
        signed, _, q, (near, far) = _box(sigma, forth, aside, eps, count)
        here = math.sqrt(sigma**2 + eps)
        steep, flat = (sigma / (s * here * (s + here)) for s in (near, far))
        sums = sigma + signed[0], sigma + signed[1]
        least = torch.minimum(sums[0] * steep, sums[0] * flat)
        most = torch.maximum(sums[1] * steep, sums[1] * flat)
        across = 1 / far, 1 / near
        outside = float(across[0].min()), float(across[1].max())
        return cls((across[0] - most, across[1] - least), across, q[1] * steep, outside)

    def far_from(self, along: float, across: float) -> float:
        """sup‖S − M‖ over the cells."""
        x, y = (
            torch.maximum((ends[1] - middle).abs(), (ends[0] - middle).abs()).square()
            for ends, middle in ((self.along, along), (self.across, across))
        )
        total = x + y + self.mixed.square()
        return float((total + (total.square() - 4 * x * y).clamp_min(0.0).sqrt()).max() / 2) ** 0.5


Ends = tuple[Tensor, Tensor]


def _box(sigma: float, forth: float, aside: float, eps: float, count: int) -> tuple[Ends, Ends, Ends, Ends]:
    """Ends of p, |p|, q and s over cells, which are (count, count)."""
    edges = torch.linspace(-1, 1, count + 1, dtype=torch.float64) * forth + sigma
    low, high = edges[:-1, None], edges[1:, None]
    inner = torch.where(low * high <= 0, 0.0, torch.minimum(low.abs(), high.abs()))
    p = inner, torch.maximum(low.abs(), high.abs())
    edges = torch.linspace(0, 1, count + 1, dtype=torch.float64) * aside
    q = edges[None, :-1], edges[None, 1:]
    near, far = ((p[k].square() + q[k].square() + eps).sqrt() for k in (0, 1))
    return (low, high), p, q, (near, far)


def _ends(one: Ends, other: Ends, eps: float) -> Ends:
    """Ends of x/(m + x)^(3/2), m the square of ``one`` and x that of ``other`` plus ε: falls in m, in x has one peak."""
    steep, flat = one[0].square(), one[1].square()
    first, last = other[0].square() + eps, other[1].square() + eps
    peak = torch.minimum(torch.maximum(2 * steep, first), last)
    top = peak / (steep + peak) ** 1.5
    bottom = torch.minimum(first / (flat + first) ** 1.5, last / (flat + last) ** 1.5)
    return bottom, top


def _extreme(x: Tensor, y: Tensor, mixed: Tensor) -> Tensor:
    """The largest eigenvalue of [[x, b], [b, y]]."""
    return (x + y) / 2 + torch.hypot((x - y) / 2, mixed)


def turned(sigma: float, forth: float, aside: float, eps: float, secant: bool = False) -> Turned:
    """A good middle and the bound around it, for |p − σ| ≤ ``forth`` and 0 ≤ q ≤ ``aside``; half infinite if none.

    Args:
        sigma: p at the sample.
        forth: how far p moves.
        aside: how large q gets.
        eps: ε.
        secant: of the secants from the sample instead of the Jacobian.
    """
    nearest = math.sqrt(max(0.0, sigma - forth) ** 2 + eps)
    if nearest == 0:
        return Turned(0.0, 0.0, math.inf)
    steep, s = house_up(1 / nearest), math.sqrt(sigma**2 + eps)
    anywhere = Turned(steep / 2, steep / 2, house_up(steep / 2))  # 0 ≼ J ≼ 1/s, and so are secants, means of J
    if not math.isfinite(forth + aside):
        return anywhere
    if math.hypot(forth, aside) < STILL * s:
        return Turned(eps / s**3, 1 / s, still_bound(s, math.hypot(forth, aside)))
    kind = Secants if secant else Cells
    coarse = kind.of(sigma, forth, aside, eps, COARSE)
    tops = float(coarse.along[0].min()), float(coarse.along[1].max())
    along, across = tops[0], sum(coarse.outside) / 2
    for _ in range(ROUNDS):
        along = _lowest(lambda a, fixed=across: coarse.far_from(a, fixed), *tops)  # type: ignore[misc]
        across = _lowest(lambda a, fixed=along: coarse.far_from(fixed, a), *coarse.outside)  # type: ignore[misc]
    half = kind.of(sigma, forth, aside, eps, FINE).far_from(along, across)
    found = Turned(along, across, house_up(half + ROUNDED * steep))
    return found if found.half < anywhere.half else anywhere


def still_bound(s: float, far: float) -> float:
    """(2/√3) ρ/(s(s − ρ)), a bound of ‖J(u) − J(c)‖ while the group moves by ρ < s, in any direction.

    Source: sup‖D²‖ = (2/√3)/s² at ε = 0, less for ε > 0.
    """
    return house_up(2 / math.sqrt(3) * far / (s * (s - far)) + ROUNDED / s)


def _lowest(height: Callable[[float], float], low: float, high: float) -> float:
    """About where a convex function is lowest in an interval."""
    for _ in range(CUTS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        if height(left) <= height(right):
            high = right
        else:
            low = left
    return (low + high) / 2
