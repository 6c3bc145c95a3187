"""A bound from given multipliers once more, by numpy and from the whole matrix: nothing of the search is part of it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from torch import Tensor

from normgauge.instrument.local.multipliers import Units
from normgauge.instrument.local.one_sample import FAILURES
from normgauge.instrument.local.swept import Swept

INF = math.inf


def level_again(units: Units, target: Tensor, logs: Tensor) -> float:
    """√λ_max(Z M⁻¹ Zᵀ) with M = diag(I, Λ) − Vᵀ diag(h²Λ) V; infinite where M is not positive definite.

    Holds:  as computed; `multipliers.factored` says what rounding may hide, and both must allow a bound.
    """
    multipliers, rows = np.exp(logs.numpy()), units.rows.numpy()
    diagonal = np.concatenate([np.ones(units.inputs), multipliers[units.columns.numpy()]])
    scale = 1 / np.sqrt(diagonal)
    weighted = (units.half.numpy() * np.sqrt(multipliers[units.group.numpy()]))[:, None] * rows * scale
    wide = np.zeros((len(target), len(diagonal)))
    wide[:, : target.shape[1]] = target.numpy()
    try:
        lower = np.linalg.cholesky(np.eye(len(diagonal)) - weighted.T @ weighted)
        return float(np.linalg.norm(np.linalg.solve(lower, (wide * scale).T), 2))
    except np.linalg.LinAlgError:
        return math.inf


def bound_again(swept: Swept, given: Tensor) -> float:
    """The bound that given multipliers prove, by two ways that must both allow it; infinite where they do not fit."""
    if len(given) != len(swept.logs):
        return INF
    try:
        bound = dataclasses.replace(swept, logs=given).bound()
        return max(bound, level_again(swept.units, swept.target, given)) if math.isfinite(bound) else INF
    except FAILURES:  # numbers that nobody would look for
        return INF
