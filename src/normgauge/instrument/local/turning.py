"""How far a normalized group's Jacobian, or a secant, turns from a fixed matrix while the group stays in a box.

Let â be the direction of the centred group at the sample, p = â·u/√n and q the length of the rest over √n. With
s² = p² + q² + ε the Jacobian without γ is, in the plane of â and the rest, and across that plane,

    J = [[(q² + ε)/s³, −pq/s³], [−pq/s³, (p² + ε)/s³]]   and   1/s.

Secants from the sample, y(u) − y(c) = S (u − c) with y = u/s, have the same form: as 1/s − 1/s_c is
−(u + c)·(u − c)/(n s s_c (s + s_c)),

    S = [[1/s − g (σ + p), −g q], [0, 1/s]]   and   1/s,     g = σ/(s s_c (s + s_c)).

The matrix in the middle is M = a'·ââᵀ + a·(P − ââᵀ). What is left of each entry has its own bound: v moves along â by
at most h_aa |â·v| + h_ab ‖v⊥‖ and across it by h_ba |â·v| + h_bb ‖v⊥‖ more than M says.

Holds: for σ ≥ â·u/√n, which is linear in u; the ball need not keep the whole group away from zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import UNIT, house_up

CELLS = 64  # on a side of the box
ROUNDED = 64 * UNIT  # of an entry, a dozen operations

Ends = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Turned:
    """The middle, a' and a, and the bounds of what is left of the four entries: to â or across from â or across."""

    along: float
    across: float
    along_along: float
    along_across: float
    across_along: float
    across_across: float

    @property
    def gain(self) -> float:
        """A bound of the norm of any matrix within these bounds."""
        return (
            max(self.along, self.across)
            + self.along_across
            + max(self.along_along, self.across_across, self.across_along)
        )

    @property
    def most(self) -> float:
        """The largest of the bounds."""
        return max(self.along_along, self.along_across, self.across_along, self.across_across)


def turned(sigma: float, forth: float, aside: float, eps: float, secant: bool = False) -> Turned:
    """The middle and the bounds around it, for |p − σ| ≤ ``forth`` and 0 ≤ q ≤ ``aside``; infinite if there are none.

    Args:
        sigma: p at the sample.
        forth: how far p moves.
        aside: how large q gets.
        eps: ε.
        secant: of the secants from the sample instead of the Jacobian.
    """
    nearest = math.sqrt(max(0.0, sigma - forth) ** 2 + eps)
    if nearest == 0:
        return Turned(0.0, 0.0, *[math.inf] * 4)
    steep = 1 / nearest
    if not math.isfinite(forth + aside):  # 0 ≼ J ≼ 1/s, and so are secants, means of J
        return Turned(steep / 2, steep / 2, *[house_up(steep / 2)] * 4)
    along, across, mixed = _secant_ends(sigma, forth, aside, eps) if secant else _ends(sigma, forth, aside, eps)
    middle = [(float(ends[0].min()) + float(ends[1].max())) / 2 for ends in (along, across)]
    halves = [(float(ends[1].max()) - float(ends[0].min())) / 2 for ends in (along, across)]
    lift = ROUNDED * steep
    left = [house_up(half + lift) for half in (halves[0], float(mixed.max()), halves[1])]
    return Turned(middle[0], middle[1], left[0], left[1], 0.0 if secant else left[1], left[2])


def _ends(sigma: float, forth: float, aside: float, eps: float) -> tuple[Ends, Ends, Tensor]:
    """Ends of the entries of J over cells of the box: along â, across it, and the size of the mixed one."""
    _, p, q, (near, far) = _box(sigma, forth, aside, eps)
    low, high = _humps(q, p, eps)
    across = torch.minimum(low, 1 / far), torch.maximum(high, 1 / near)
    mixed = torch.minimum(p[1] * q[1] / near**3, 1 / (2 * near))  # 2|pq| ≤ s²
    return _humps(p, q, eps), across, mixed


def _secant_ends(sigma: float, forth: float, aside: float, eps: float) -> tuple[Ends, Ends, Tensor]:
    """The same of S; 0 ≤ s s_c − σp + ε ≤ 3 s s_c and σq ≤ s s_c, which matters where s may be small."""
    signed, _, q, (near, far) = _box(sigma, forth, aside, eps)
    here = math.sqrt(sigma**2 + eps)
    steep, flat = (sigma / (s * here * (s + here)) for s in (near, far))
    sums = sigma + signed[0], sigma + signed[1]
    least = torch.minimum(sums[0] * steep, sums[0] * flat)
    most = torch.maximum(sums[1] * steep, sums[1] * flat)
    across, whole = (1 / far, 1 / near), 1 / (near + here)
    along = (across[0] - most).clamp_min(0.0), torch.minimum(across[1] - least, 3 * whole)
    return along, across, torch.minimum(q[1] * steep, whole)


def _box(sigma: float, forth: float, aside: float, eps: float) -> tuple[Ends, Ends, Ends, Ends]:
    """Ends of p, |p|, q and s over the cells."""
    edges = torch.linspace(-1, 1, CELLS + 1, dtype=torch.float64) * forth + sigma
    low, high = edges[:-1, None], edges[1:, None]
    inner = torch.where(low * high <= 0, 0.0, torch.minimum(low.abs(), high.abs()))
    p = inner, torch.maximum(low.abs(), high.abs())
    edges = torch.linspace(0, 1, CELLS + 1, dtype=torch.float64) * aside
    q = edges[None, :-1], edges[None, 1:]
    near, far = ((p[k].square() + q[k].square() + eps).sqrt() for k in (0, 1))
    return (low, high), p, q, (near, far)


def _humps(one: Ends, other: Ends, eps: float) -> Ends:
    """Ends of x/(m + x)^(3/2), m = ``one``², x = ``other``² + ε: it falls in m and has one peak in x."""
    steep, flat = one[0].square(), one[1].square()
    first, last = other[0].square() + eps, other[1].square() + eps
    peak = torch.minimum(torch.maximum(2 * steep, first), last)
    top = peak / (steep + peak) ** 1.5
    bottom = torch.minimum(first / (flat + first) ** 1.5, last / (flat + last) ** 1.5)
    return bottom, top
