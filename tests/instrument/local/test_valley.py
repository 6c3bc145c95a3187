"""The slope of the descent is that of its objective, with all multipliers free and with the first ones known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from normgauge.instrument.local.multipliers import Units, factored
from normgauge.instrument.local.valley import Valley, descended_multipliers

FIRST, INPUTS = 9, 15


def cases() -> tuple[Units, Units, Tensor, Tensor]:
    """Units of one layer, with those of a second in blocks of three; feasible multipliers; rows to bound."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    each, blocks = torch.arange(FIRST), torch.arange(FIRST) // 3
    half = torch.full((FIRST,), 0.5, dtype=torch.float64)
    early = Units.none(INPUTS).extended(draw(FIRST, INPUTS), half, each, each, 0.0)
    units = early.extended(0.3 * draw(FIRST, INPUTS + FIRST), half, blocks, blocks, 0.0)
    logs = torch.cat([torch.full((FIRST,), -5.0), torch.full((3,), -7.0)]).double()
    return early, units, logs, draw(4, INPUTS + 2 * FIRST)


@pytest.mark.parametrize("power", [1, 4, 16])
@pytest.mark.parametrize("barrier", [0.0, 0.1])
def test_slope_is_that_of_the_height(power: int, barrier: float) -> None:
    _, units, logs, rows = cases()
    valley = Valley.of(units, rows, power)
    here = valley.height(logs, barrier)
    assert here is not None
    for place in range(len(logs)):
        step = torch.zeros_like(logs)
        step[place] = 1e-5
        ahead, behind = valley.height(logs + step, barrier), valley.height(logs - step, barrier)
        assert ahead is not None
        assert behind is not None
        assert (ahead.value - behind.value) / 2e-5 == pytest.approx(float(here.slope[place]), abs=1e-7)


def test_known_multipliers_leave_the_same_height() -> None:
    early, units, logs, rows = cases()
    known = factored(early, logs[:FIRST])
    assert known is not None
    whole, part = (
        Valley.of(units, rows, 1).height(logs, 0.0),
        Valley.of(units, rows, 1, known).height(logs[FIRST:], 0.0),
    )
    assert whole is not None
    assert part is not None
    assert part.value == pytest.approx(whole.value, rel=1e-12)
    assert torch.allclose(part.slope, whole.slope[FIRST:], rtol=1e-10)


def test_descent_goes_down_to_where_the_slope_is_nought() -> None:
    _, units, logs, rows = cases()
    valley = Valley.of(units, rows, 1)
    found = descended_multipliers(valley, logs, [(1e-2, 60)])
    start, end = valley.height(logs, 1e-2), valley.height(found, 1e-2)
    assert start is not None
    assert end is not None
    assert end.value < start.value
    assert float(end.slope.abs().max()) < 1e-4 * float(start.slope.abs().max())


def test_kept_gram_is_that_of_the_rows() -> None:
    _, units, _, _ = cases()
    assert torch.allclose(units.gram, units.rows[:, :INPUTS] @ units.rows[:, :INPUTS].T, rtol=1e-12)
