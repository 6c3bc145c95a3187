"""Feasible multipliers prove, better ones prove more, and errors of rows are paid for."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from normgauge.instrument.local.descent import best_multipliers
from normgauge.instrument.local.multipliers import Units, factored, first_multipliers
from normgauge.instrument.local.valley import Valley, descended_multipliers


def chain(sizes: list[int], seed: int) -> tuple[list[Tensor], Units, Tensor, Tensor]:
    """Random layers with ReLUs between them: weights, units, feasible multipliers and the output's rows."""
    generator = torch.Generator().manual_seed(seed)
    pairs = pairwise(sizes)
    weights = [torch.randn(b, a, generator=generator, dtype=torch.float64) / math.sqrt(a) for a, b in pairs]
    units, logs, rows = Units.none(sizes[0]), torch.zeros(0, dtype=torch.float64), weights[0]
    for weight in weights[1:]:
        factor = factored(units, logs)
        assert factor is not None
        count = len(rows)
        half, group = torch.full((count,), 0.5, dtype=torch.float64), torch.arange(count)
        logs = torch.cat([logs, first_multipliers(factor, rows, half, group, 0.0)])
        units = units.extended(rows, half, group, group, 0.0)
        rows = weight @ torch.cat([rows / 2, torch.eye(count, dtype=torch.float64)], dim=1)
    return weights, units, logs, rows


def pattern_norm(weights: list[Tensor], generator: torch.Generator) -> float:
    """The norm of the product with random slopes between 0 and 1, most of them at an end."""
    product = weights[0]
    for weight in weights[1:]:
        slopes = torch.rand(len(product), generator=generator, dtype=torch.float64)
        slopes = torch.where(torch.rand(len(product), generator=generator) < 0.8, slopes.round(), slopes)
        product = weight @ (slopes[:, None] * product)
    return float(torch.linalg.matrix_norm(product, 2))


@pytest.mark.parametrize("seed", range(8))
def test_no_slopes_in_their_ranges_give_more(seed: int) -> None:
    weights, units, logs, rows = chain([5, 7, 6, 3], seed)
    first = factored(units, logs)
    assert first is not None
    level = first.norm_bound(rows, 0.0)
    newton = factored(units, best_multipliers(units, rows, logs, 1.1 * level**2, 1e-4, 80))
    valley = factored(
        units, descended_multipliers(Valley.of(units, rows, 4), logs, [(1e-2, 20), (1e-3, 20), (1e-4, 20)])
    )
    assert newton is not None and valley is not None
    best = newton.norm_bound(rows, 0.0)
    assert best <= valley.norm_bound(rows, 0.0) * 1.001 and best < level
    generator = torch.Generator().manual_seed(seed)
    found = max(pattern_norm(weights, generator) for _ in range(2000))
    assert 0.6 * best < found <= best * (1 + 1e-9)


def test_one_hidden_layer_of_one_unit_is_exact() -> None:
    _, units, logs, rows = chain([1, 1, 1], 3)
    first = factored(units, logs)
    assert first is not None
    best = best_multipliers(units, rows, logs, 1.1 * first.norm_bound(rows, 0.0) ** 2, 1e-6, 200)
    proved = factored(units, best)
    truth = abs(float(units.rows[0, 0])) * abs(float(rows[0, 1]))
    assert proved is not None and proved.norm_bound(rows, 0.0) == pytest.approx(truth, rel=1e-4)


def test_errors_of_rows_only_raise_a_bound() -> None:
    _, units, logs, rows = chain([5, 7, 3], 0)
    exact = factored(units, logs)
    blurred = factored(replace(units, errors=[1e-6]), logs)
    assert exact is not None and blurred is not None
    clean = exact.norm_bound(rows, 0.0)
    assert clean < blurred.norm_bound(rows, 0.0) < clean * 1.001
    assert exact.norm_bound(rows, 1e-3) >= clean + 1e-3
    assert bool((exact.row_bounds(rows, 1e-3) >= exact.row_bounds(rows, 0.0) + 1e-3).all())


def test_multipliers_that_are_not_feasible_are_refused() -> None:
    _, units, logs, _ = chain([5, 7, 3], 0)
    assert factored(units, logs + 10.0) is None


def test_a_row_bound_is_the_norm_of_one_row() -> None:
    _, units, logs, rows = chain([5, 7, 3], 1)
    factor = factored(units, logs)
    assert factor is not None
    one = [factor.norm_bound(row[None], 0.0) for row in rows]
    assert factor.row_bounds(rows, 0.0).tolist() == pytest.approx(one, rel=1e-8)
