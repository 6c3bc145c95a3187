"""Multipliers for many units: descent on their logarithms, with a barrier that keeps it off the boundary.

Newton steps of the semidefinite program cost the cube of all directions; this needs the Gram matrix of the rows once
and then a Cholesky factor of the units alone at each point. The objective is ½ log λ, λ the largest eigenvalue of
Z M⁻¹ Zᵀ smoothed to (Σ λᵢ⁴)^¼, less μ log det(I − BBᵀ). Nothing here is part of a proof.

Source: limited-memory BFGS, Nocedal & Wright, Numerical Optimization, algorithm 7.4.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.instrument.local.multipliers import Units

MEMORY = 8
BARRIERS = (1e-2, 1e-3, 1e-4)  # of log det(I − BBᵀ) over the number of units, from step to step
LONGEST = 2.0  # of one multiplier's logarithm in a step
HALVINGS = 12
POWER = 4


@dataclass(slots=True)
class Valley:
    """The objective as a function of the multipliers' logarithms.

    Attributes:
        gram: V Vᵀ over the input's directions.
        later: V over those of the units.
        cross, own, reach: the same of Z: with V, with itself, and over the units.
        half, group, columns: as in `Units`.
    """

    gram: Tensor
    later: Tensor
    cross: Tensor
    own: Tensor
    reach: Tensor
    half: Tensor
    group: Tensor
    columns: Tensor

    @classmethod
    def of(cls, units: Units, target: Tensor) -> Valley:
        """The objective for the rows ``target``."""
        n = units.inputs
        wide = torch.zeros(len(target), units.rows.shape[1], dtype=torch.float64)
        wide[:, : target.shape[1]] = target
        first, later = units.rows[:, :n], units.rows[:, n:]
        own, cross = wide[:, :n] @ wide[:, :n].T, wide[:, :n] @ first.T
        return cls(first @ first.T, later, cross, own, wide[:, n:], units.half, units.group, units.columns)

    def height(self, logs: Tensor, barrier: float) -> tuple[float, Tensor] | None:
        """Value and gradient; None where the multipliers are not feasible."""
        logs = logs.detach().requires_grad_(True)
        with torch.enable_grad():
            inverse, weight = (-logs[self.columns]).exp(), self.half * (logs[self.group] / 2).exp()
            product = self.gram + (self.later * inverse) @ self.later.T
            inner = torch.eye(len(weight), dtype=torch.float64) - weight[:, None] * product * weight
            factor, info = torch.linalg.cholesky_ex(inner)
            if int(info):
                return None
            pulled = (self.cross + (self.reach * inverse) @ self.later.T) * weight
            solved = torch.linalg.solve_triangular(factor, pulled.T, upper=False)
            whole = self.own + (self.reach * inverse) @ self.reach.T + solved.T @ solved
            values = torch.linalg.eigvalsh(whole).clamp_min(0.0)
            top = values[-1].detach()
            height = ((values / top) ** POWER).sum().log() / POWER / 2 + top.log() / 2
            height = height - barrier / len(weight) * 2 * factor.diagonal().log().sum()
        (slope,) = torch.autograd.grad(height, logs)
        return float(height.detach()), slope


def descended_multipliers(units: Units, target: Tensor, logs: Tensor, steps: int) -> Tensor:
    """Logs of multipliers after ``steps`` steps down from feasible ones."""
    valley, x = Valley.of(units, target), logs.clone()
    for barrier in BARRIERS:
        here = valley.height(x, barrier)
        past: list[tuple[Tensor, Tensor]] = []
        for _ in range(max(1, steps // len(BARRIERS))):
            if here is None:
                return x
            found = _step(valley, x, here, barrier, past)
            if found is None:
                break
            there, x = found[0], found[1]
            past = [*past, (found[2], there[1] - here[1])][-MEMORY:]
            here = there
    return x


def _step(
    valley: Valley, x: Tensor, here: tuple[float, Tensor], barrier: float, past: list[tuple[Tensor, Tensor]]
) -> tuple[tuple[float, Tensor], Tensor, Tensor] | None:
    """Height and slope at the next point, the point and the way there; None where nothing is lower."""
    way = -_turned(here[1], past)
    if float(way @ here[1]) >= 0:
        way = -here[1]
    way = way * min(1.0, LONGEST / max(float(way.abs().max()), 1e-12)) if past else way / float(way.abs().max()) * 0.5
    for _ in range(HALVINGS):
        there = valley.height(x + way, barrier)
        if there is not None and there[0] < here[0] + 1e-4 * float(way @ here[1]):
            return there, x + way, way
        way = way / 3
    return None


def _turned(slope: Tensor, past: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The slope times the inverse Hessian that the past steps tell."""
    shares, turned = [], slope
    useful = [(s, y) for s, y in past if float(s @ y) > 1e-12 * float(y @ y)]
    for s, y in reversed(useful):
        share = float(s @ turned) / float(s @ y)
        shares.append(share)
        turned = turned - share * y
    if useful:
        s, y = useful[-1]
        turned = turned * (float(s @ y) / float(y @ y))
    for (s, y), share in zip(useful, reversed(shares), strict=True):
        turned = turned + s * (share - float(y @ turned) / float(s @ y))
    return turned
