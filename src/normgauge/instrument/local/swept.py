"""A network over a ball, ready to be bounded: the open units, their multipliers and the rows of the output."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import dot_error, house_down, house_up, power_down
from normgauge.instrument.local.descent import best_multipliers
from normgauge.instrument.local.multipliers import Units, factored, restrained
from normgauge.instrument.local.valley import Valley, affordable, descended_multipliers
from normgauge.instrument.spectral.dense import dense_norm

INF = math.inf
HUGE = 1e100  # a size that can still be worked with
NEWTON = 250  # rows up to which the semidefinite program itself is solved
BACK = (0.999, 0.97, 0.7)  # of the best multipliers, beside those at hand, where rounding leaves no proof of them alone
WORK = 2.5e10  # for the multipliers of a headline, in cubes of units: seconds
STAGES = ((1e-2, 4), (1e-3, 16), (1e-4, 32))  # of log det(I − BBᵀ) over the number of units; powers, as in `valley`


@dataclass(slots=True)
class Swept:
    """The network over the ball, ready to be bounded.

    Attributes:
        units: open units.
        logs: of feasible multipliers for them.
        target: the output's tangents as rows, (outputs, directions).
        error: norm of the target's error.
        value_error: of the output itself, as a length.
        chance: that one of the errors was measured wrongly.
        work: what the multipliers on the way took, in cubes of units.
    """

    units: Units
    logs: Tensor
    target: Tensor
    error: float
    value_error: float
    chance: float
    work: float = 0.0

    def bound(self, rows: Tensor | None = None) -> float:
        """An upper bound of sup‖∂(rows·output)/∂x‖ over the ball with the multipliers at hand.

        0 for an output that does not move at all; otherwise not so small that squares on the way may be lost.
        """
        factor = factored(self.units, self.logs)
        if factor is None:
            return INF
        target, error = self._target(rows)
        if error == 0 and not bool(target.any()):
            return 0.0
        found = factor.norm_bound(target, error)
        return max(found, 1 / HUGE) if math.isfinite(found) else INF

    def least(self) -> float:
        """A slope that the network has at the sample itself; 0 where a unit is open there.

        ‖J‖ ≥ ‖T‖ − ‖J − T‖ for the target T.
        """
        if len(self.units.rows):
            return 0.0
        return max(house_down(power_down(dense_norm(self.target).log.lo) - self.error), 0.0)

    def row_bounds(self, rows: Tensor) -> Tensor | None:
        """An upper bound of the slope of each row's own combination of outputs; None where nothing is proved."""
        factor = factored(self.units, self.logs)
        return None if factor is None else factor.row_bounds(*self._target(rows))

    def improved(self, gap: float, steps: int, rows: Tensor | None = None) -> Swept:
        """The same with multipliers that suit the target, if they prove something smaller."""
        here = self.bound(rows)
        if not len(self.units.rows) or not 1 / HUGE < here < INF:
            return self
        target, _ = self._target(rows)
        best, logs = self, self.logs
        for stage in range(len(STAGES) if len(self.units.rows) > NEWTON else 1):
            logs = chosen_multipliers(self.units, target, logs, here, gap, steps, stage)
            for share in (1.0, *BACK):
                mixed = torch.logaddexp(logs + math.log(share), best.logs + math.log1p(-share)) if share < 1 else logs
                other = dataclasses.replace(self, logs=restrained(self.units, mixed))
                there = other.bound(rows)
                if math.isfinite(there):
                    break
            best, here = (other, there) if there < here else (best, here)
        return best

    def _target(self, rows: Tensor | None) -> tuple[Tensor, float]:
        if rows is None:
            return self.target, self.error
        size = house_up(float(torch.linalg.matrix_norm(rows)))
        rounded = dot_error(rows.shape[1]) * size * float(torch.linalg.vector_norm(self.target))
        return rows @ self.target, self.error * size + house_up(rounded)


def chosen_multipliers(
    units: Units, target: Tensor, logs: Tensor, level: float, gap: float, steps: int, stage: int = 0
) -> Tensor:
    """Better multipliers for the rows ``target``, whose bound at ``logs`` is ``level``; not proved yet."""
    if len(units.rows) <= NEWTON:
        return best_multipliers(units, target, logs, 1.1 * level**2, gap, steps)
    barrier, power = STAGES[stage]
    affords = -(-affordable(steps, len(units.rows), WORK) // len(STAGES))
    return descended_multipliers(Valley.of(units, target, power), logs, [(barrier, affords)])
