"""How steep the entries of a value are in a ball, each as exactly as it matters.

Most entries lie so far from every kink that a quick bound settles them. For the others multipliers are made that suit
them together; then, for those that these leave in doubt and that might still be settled, others that suit them alone.
Any feasible multipliers prove a bound of any row, and so does the least of several.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import TINY
from normgauge.instrument.local.multipliers import Factor, Units, factored, restrained
from normgauge.instrument.local.valley import SUM_OF_ALL, Valley, affordable, descended_multipliers

EXAMPLES = 48  # mixtures of rows that stand for all of them
ENTRIES = 2**22  # of rows looked at together
TUNING = ((1e-2, 12), (1e-3, 8))  # of the barrier, and steps
WORK = 1e9  # for all multipliers anew, in cubes of units: a quarter of a second
TWICE = 500  # units up to which there is a second turn


@dataclass(frozen=True, slots=True)
class Proved:
    """Units with multipliers that are proved to be feasible."""

    units: Units
    logs: Tensor
    factor: Factor
    known: Factor  # of the units whose multipliers were tuned before


def entry_lengths(
    tangents: Tensor, proved: Proved, error: float, wanted: Tensor, tune: bool = True
) -> tuple[Tensor, Proved]:
    """For every entry an upper bound of its gradient's length in the ball, and multipliers that suit these entries.

    Args:
        tangents: (directions, entries).
        proved: open units and feasible multipliers for them.
        error: norm of the tangents' error.
        wanted: per entry a length below which it is of no more interest, 0 for one that is always wanted exactly.
        tune: choose multipliers anew that suit them; else those at hand do.
    """
    parts = tangents.split(max(1, ENTRIES // len(tangents)), dim=1)
    found = torch.cat([proved.factor.quick_bounds(part.T, error) for part in parts])
    if not len(proved.units.rows):
        return found, proved
    doubtful = (found >= wanted).nonzero()[:, 0]
    first = proved
    for turn in range(2 if tune and len(proved.units.rows) <= TWICE else 1):
        if not len(doubtful):
            break
        rows = tangents[:, doubtful].T.contiguous()
        lengths = torch.linalg.vector_norm(rows, dim=1)
        needs = rows / torch.maximum(wanted[doubtful], lengths).clamp_min(TINY)[:, None]
        tuned = suited(proved, needs) if tune else proved
        first = tuned if turn == 0 else first
        bounds = torch.cat([tuned.factor.row_bounds(p, error) for p in rows.split(max(1, ENTRIES // rows.shape[1]))])
        found[doubtful] = torch.minimum(found[doubtful], bounds)
        doubtful = doubtful[(found[doubtful] >= wanted[doubtful]) & (lengths < wanted[doubtful])]
    return found, first


def suited(proved: Proved, rows: Tensor) -> Proved:
    """With multipliers for which the squared bounds of rows sum to less, if such are found and proved."""
    few, units = sketched(rows), proved.units
    logs, fresh = proved.logs.clone(), len(proved.logs) - proved.known.groups
    if fresh and proved.known.groups:
        valley = Valley.of(units, few, SUM_OF_ALL, proved.known)
        logs[-fresh:] = descended_multipliers(valley, logs[-fresh:], TUNING)
    stages = [(barrier, affordable(steps, len(units.rows), WORK / len(TUNING))) for barrier, steps in TUNING]
    if stages[0][1]:
        logs = descended_multipliers(Valley.of(units, few, SUM_OF_ALL), logs, stages)
    logs = restrained(units, logs)
    factor = factored(units, logs)
    if factor is None:
        return proved
    before, after = (float(f.row_bounds(few, 0.0).square().sum()) for f in (proved.factor, factor))
    return Proved(units, logs, factor, factor) if after < before else proved


def sketched(rows: Tensor) -> Tensor:
    """Few rows that stand for many: random mixtures, whose squared bounds sum to about those of all."""
    if len(rows) <= EXAMPLES:
        return rows
    mix = torch.randn(EXAMPLES, len(rows), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return mix @ rows / math.sqrt(EXAMPLES)
