"""Multipliers for many units: descent on their logarithms, with a barrier that keeps it off the boundary.

Newton steps of the semidefinite program cost the cube of all directions; this needs the Gram matrix of the rows once
and then a Cholesky factor of the units alone at each point. The objective is ½ log of (Σ λᵢᵖ)^(1/p), λᵢ the eigenvalues
of Z M⁻¹ Zᵀ: p = 1 is the sum over all rows, a large p the largest of their mixtures. The barrier is −μ log det(I − BBᵀ)
and μ Σ exp(rest − log Λ), which keeps multipliers of units that Z does not see where later rows can use them. With
y = M⁻¹Zᵀ and x = h√Λ V y the slope in a multiplier's logarithm is |x|² − Λ|y|², the two going with Λ and 1/Λ about:
a step of (Λ|y|² − |x|²)/(Λ|y|² + |x|²) is Newton's for one multiplier, and what the descent starts from. Nothing here
is part of a proof.

Source: limited-memory BFGS, Nocedal & Wright, Numerical Optimization, algorithm 7.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.instrument.local.multipliers import NOTICEABLE, Factor, Units

MEMORY = 8
LONGEST = 2.0  # of one multiplier's logarithm in a step
HALVINGS = 12
SUM_OF_ALL = 1  # p
SMALL = -4.0  # log of how much smaller a multiplier may become that nothing asks for


def affordable(steps: int, units: int, work: float) -> int:
    """How many steps, each of the cube of the units, fit into ``work``."""
    return min(steps, int(work / max(units, 1) ** 3))


@dataclass(frozen=True, slots=True)
class Height:
    """The objective at a point: its value, its slope and about how it bends in each multiplier alone."""

    value: float
    slope: Tensor
    bend: Tensor


@dataclass(slots=True)
class Valley:
    """The objective as a function of the multipliers' logarithms.

    Attributes:
        gram: V M⁻¹ Vᵀ over the directions of the input and of units whose multipliers are known.
        later: V over those of the other units.
        cross, own, reach: the same of Z: with V, with itself, and over the units.
        half, group, columns: as in `Units`.
        power: p.
        rest: about where the logarithm of a multiplier lies of which Z knows nothing.
    """

    gram: Tensor
    later: Tensor
    cross: Tensor
    own: Tensor
    reach: Tensor
    half: Tensor
    group: Tensor
    columns: Tensor
    power: int
    rest: Tensor

    @classmethod
    def of(cls, units: Units, target: Tensor, power: int, known: Factor | None = None) -> Valley:
        """The objective for the rows ``target``: in the multipliers that are not ``known`` yet, the last ones."""
        # what units of a branch beside it opened does not move it
        target = F.pad(target, (0, units.rows.shape[1] - target.shape[1]))
        if known is None:
            gram, old, first = units.gram, units.inputs, 0
            cross, own = (target[:, :old] @ other[:, :old].T for other in (units.rows, target))
        else:
            old, first = len(known.scale), len(known.reduced)
            both = known.products(torch.cat([units.rows[first:, :old], target[:, :old]]))
            count = len(units.rows) - first
            gram, cross, own = both[:count, :count], both[count:, :count], both[count:, count:]
        reach = target[:, old:]
        group, columns = units.group[first:], units.columns[old - units.inputs :]
        start = int(units.group[:first].max()) + 1 if first else 0
        half, later = units.half[first:], units.rows[first:, old:]
        rest = _resting(units, gram.diagonal(), first, start)
        return cls(gram, later, cross, own, reach, half, group - start, columns - start, power, rest)

    def height(self, logs: Tensor, barrier: float) -> Height | None:
        """The objective at a point; None where the multipliers are not feasible."""
        inverse, weight = (-logs[self.columns]).exp(), self.half * (logs[self.group] / 2).exp()
        weighted = weight[:, None] * self.later
        inner = -weight[:, None] * self.gram * weight - (weighted * inverse) @ weighted.T
        inner.diagonal().add_(1.0)
        factor, info = torch.linalg.cholesky_ex(inner)
        if int(info):
            return None
        pulled = (self.cross * weight + (self.reach * inverse) @ weighted.T).T
        x = torch.cholesky_solve(pulled, factor)
        y = inverse[:, None] * (self.reach.T + weighted.T @ x)
        value, root = self._level(self.own + (self.reach * inverse) @ self.reach.T + pulled.T @ x)
        up, down = (x @ root).square().sum(1), (y @ root).square().sum(1) / inverse
        part = barrier / len(weight)
        lift = part * (self.rest - logs).exp()
        value = value - part * 2 * float(factor.diagonal().log().sum()) + float(lift.sum())
        inverted = torch.linalg.solve_triangular(factor, torch.eye(len(weight), dtype=torch.float64), upper=False)
        near = inverted.square().sum(0) - 1
        spread = (inverted @ weighted).square().sum(0) * inverse
        rising = torch.zeros_like(logs).index_add(0, self.group, up / 2 + part * near)
        falling = lift.index_add(0, self.columns, down / 2 + part * spread)
        return Height(value, rising - falling, rising + falling)

    def _level(self, whole: Tensor) -> tuple[float, Tensor]:
        """½ log (Σ λᵖ)^(1/p), and a root of what its slope weighs the rows with."""
        values, vectors = torch.linalg.eigh(whole)
        values = values.clamp_min(0.0)
        top = values[-1].clamp_min(torch.finfo(torch.float64).tiny)
        parts = (values / top) ** self.power
        total = parts.sum()
        share = (values / top) ** (self.power - 1) / total / top
        return float(total.log() / self.power + top.log()) / 2, vectors * share.sqrt()


def _resting(units: Units, squares: Tensor, first: int, start: int) -> Tensor:
    """Log of a small multiplier for each group, from the squared lengths of its rows: see `first_multipliers`."""
    errors = torch.tensor(units.errors, dtype=torch.float64)[units.layer[first:]]
    seen = torch.maximum(squares, (NOTICEABLE * errors).square()).clamp_min(torch.finfo(torch.float64).tiny)
    sums = torch.zeros(units.groups - start, dtype=torch.float64)
    return SMALL - sums.index_add(0, units.group[first:] - start, seen * units.half[first:]).log()


def descended_multipliers(valley: Valley, logs: Tensor, stages: Sequence[tuple[float, int]]) -> Tensor:
    """Logs of multipliers after steps down from feasible ones.

    Args:
        valley: what goes down.
        logs: of feasible multipliers.
        stages: μ over the number of units, and how many steps with it.
    """
    x = logs.clone()
    for barrier, steps in stages:
        here = valley.height(x, barrier)
        past: list[tuple[Tensor, Tensor]] = []
        for _ in range(steps):
            if here is None:
                return x
            found = _step(valley, x, here, barrier, past)
            if found is None:
                break
            there, x, way = found
            past = [*past, (way, there.slope - here.slope)][-MEMORY:]
            here = there
    return x


def _step(
    valley: Valley, x: Tensor, here: Height, barrier: float, past: list[tuple[Tensor, Tensor]]
) -> tuple[Height, Tensor, Tensor] | None:
    """The height at the next point, the point and the way there; None where nothing is lower."""
    way = -_turned(here, past)
    if float(way @ here.slope) >= 0:
        way = -_turned(here, [])
    way = way * min(1.0, LONGEST / max(float(way.abs().max()), 1e-12))
    for _ in range(HALVINGS):
        there = valley.height(x + way, barrier)
        if there is not None and there.value < here.value + 1e-4 * float(way @ here.slope):
            return there, x + way, way
        way = way / 3
    return None


def _turned(here: Height, past: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The slope times the inverse Hessian that the past steps tell, about diagonal where they tell nothing."""
    shares, turned = [], here.slope
    useful = [(s, y) for s, y in past if float(s @ y) > 1e-12 * float(y @ y)]
    for s, y in reversed(useful):
        share = float(s @ turned) / float(s @ y)
        shares.append(share)
        turned = turned - share * y
    turned = turned / here.bend.clamp_min(torch.finfo(torch.float64).tiny)
    for (s, y), share in zip(useful, reversed(shares), strict=True):
        turned = turned + s * (share - float(y @ turned) / float(s @ y))
    return turned
