"""The best multipliers: an interior-point method for the semidefinite program that they solve.

    minimise ρ  with  F = diag(ρ I, Λ) − Vᵀ diag(h²Λ) V − ZᵀZ ≽ 0,  Λ ≥ 0

F is linear in y = (ρ, Λ): F = Σ y_i B_i − ZᵀZ, and each B_i = E_i − h²V_iᵀV_i is a difference of squares of a few
columns U, so that the matrix of a Newton step, tr(B_i X B_j F⁻¹) with X the dual variable, is a sum of entries of
UᵀXU ∘ UᵀF⁻¹U. All iterates are feasible, and nothing here is part of a proof: `multipliers.factored` proves what
comes out.

Source: the primal-dual direction of Helmberg, Rendl, Vanderbei & Wolkowicz, SIAM J. Optim. 6 (1996) 342.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.instrument.local.multipliers import Units

TOWARDS = 0.1  # of the complementarity aimed at in a step that was not cut short before
INSIDE = 0.95  # of the way to the boundary
HALVINGS = 40
SETTLED = 4  # steps in which ρ has fallen by less than the gap asked for


@dataclass(slots=True)
class Program:
    """The semidefinite program with its variables scaled to 1 at the start.

    Attributes:
        rows: diag(h) V, over compressed directions.
        spread: ZᵀZ.
        group: the variable of each row, from 1 on.
        columns: the variable of each direction: 0 for the input's.
        size: of each variable at the start: ρ first, then the multipliers.
    """

    rows: Tensor
    spread: Tensor
    group: Tensor
    columns: Tensor
    size: Tensor

    def combined(self, y: Tensor) -> Tensor:
        """Σ y_i B_i."""
        now = y * self.size
        return torch.diag(now[self.columns]) - (self.rows.T * now[self.group]) @ self.rows

    def traces(self, matrix: Tensor) -> Tensor:
        """tr(B_i M) for each variable."""
        inner = (self.rows @ matrix * self.rows).sum(1)
        total = torch.zeros(len(self.size), dtype=torch.float64).index_add(0, self.columns, matrix.diagonal())
        return total.index_add(0, self.group, inner, alpha=-1) * self.size

    def table(self, first: Tensor, second: Tensor) -> Tensor:
        """tr(B_i X B_j G) for symmetric X and G."""
        sides = [(m, m @ self.rows.T) for m in (first, second)]
        inner = [self.rows @ pulled for _, pulled in sides]
        cross = self._summed(sides[0][1] * sides[1][1], self.columns, self.group)
        whole = self._summed(first * second, self.columns, self.columns)
        whole = whole - cross - cross.T + self._summed(inner[0] * inner[1], self.group, self.group)
        return whole * self.size[:, None] * self.size

    def _summed(self, values: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        count = len(self.size)
        part = torch.zeros(count, values.shape[1], dtype=torch.float64).index_add(0, rows, values)
        return torch.zeros(count, count, dtype=torch.float64).index_add(1, columns, part)


def program_of(units: Units, target: Tensor, logs: Tensor, level: float) -> Program:
    """The program for the rows ``target`` from feasible multipliers, with ρ = ``level`` above their value."""
    inputs = units.inputs
    wide = torch.zeros(len(target), units.rows.shape[1], dtype=torch.float64)
    wide[:, : target.shape[1]] = target / math.sqrt(level)
    rows = units.half[:, None] * units.rows
    seen = torch.cat([rows[:, :inputs], wide[:, :inputs]])
    if seen.shape[0] < inputs:  # directions of the input that nothing sees
        seen = torch.linalg.qr(seen.T, mode="r").R.T
    rows = torch.cat([seen[: len(rows)], rows[:, inputs:]], dim=1)
    wide = torch.cat([seen[len(rows) :], wide[:, inputs:]], dim=1)
    columns = torch.cat([torch.zeros(seen.shape[1], dtype=torch.long), units.columns + 1])
    size = torch.cat([torch.ones(1, dtype=torch.float64), logs.exp()])
    return Program(rows, wide.T @ wide, units.group + 1, columns, size)


def best_multipliers(units: Units, target: Tensor, logs: Tensor, level: float, gap: float, steps: int) -> Tensor:
    """Logs of multipliers for which λ_max(Z M⁻¹ Zᵀ) is within ``gap`` of its minimum, or what ``steps`` reach.

    Args:
        units: the uncertain units.
        target: Z.
        logs: of feasible multipliers.
        level: above λ_max(Z M⁻¹ Zᵀ) at them.
        gap: relative.
        steps: Newton steps at most.
    """
    program = program_of(units, target, logs, level)
    y = torch.ones_like(program.size)
    slack = program.combined(y) - program.spread
    factor, info = torch.linalg.cholesky_ex(slack)
    if int(info):
        return logs
    order = len(slack) + len(y) - 1
    inverse = torch.cholesky_inverse(factor)
    dual, price = inverse / float(program.traces(inverse)[0]), 1 / y[1:] / float(program.traces(inverse)[0])
    aim, heights = TOWARDS, [1.0]
    goal = torch.zeros_like(y)
    goal[0] = 1.0
    for _ in range(steps):
        level_now = (float((dual * slack).sum()) + float(price @ y[1:])) / order
        wanted = aim * level_now
        matrix = program.table(dual, inverse)
        matrix.diagonal()[1:].add_(price / y[1:])
        barrier = program.traces(inverse)
        barrier[1:] += 1 / y[1:]
        step, failed = torch.linalg.solve_ex(matrix, wanted * barrier - goal)
        if int(failed) or not bool(step.isfinite().all()):
            break
        change = program.combined(step)
        product = dual @ change @ inverse
        turned = wanted * inverse - dual - (product + product.T) / 2
        priced = wanted / y[1:] - price - price * step[1:] / y[1:]
        along = _length(slack, change, y[1:], step[1:])
        across = _length(dual, turned, price, priced)
        if along == 0.0:
            break
        y, dual, price = y + along * step, dual + across * turned, price + across * priced
        slack = program.combined(y) - program.spread
        factor, info = torch.linalg.cholesky_ex(slack)
        if int(info):
            y = y - along * step
            break
        inverse = torch.cholesky_inverse(factor)
        aim = TOWARDS if min(along, across) > 0.5 else 0.5
        heights.append(float(y[0]))
        if across > 0.9 and level_now * order < gap * y[0]:
            break
        slow = len(heights) > SETTLED and heights[-SETTLED - 1] - heights[-1] < gap / 4 * heights[-1]
        if slow and min(along, across) > 0.5:
            break
    return logs + (y[1:] / y[0]).log()


def _length(matrix: Tensor, change: Tensor, vector: Tensor, step: Tensor) -> float:
    """The length of a step, at most 1, that keeps a matrix positive definite and a vector positive; 0 without one."""
    length = min(1.0, INSIDE / max(float((-step / vector).max()), 1e-3)) if len(vector) else 1.0
    for _ in range(HALVINGS):
        if not int(torch.linalg.cholesky_ex(matrix + length / INSIDE * change).info):
            return length
        length *= 0.7
    return 0.0
