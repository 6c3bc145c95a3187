"""Given multipliers once more by numpy: the same bound as the proof's, and none where there is none."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import nn

from normgauge.core.bound import Scope
from normgauge.instrument.local.journey import swept_ball
from normgauge.instrument.local.recheck import bound_again, level_again
from normgauge.instrument.local.swept import Swept
from normgauge.instrument.session import Options, opened


def swept(seed: int, radius: float) -> Swept:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(5, 9), nn.GELU(), nn.Linear(9, 7), nn.LayerNorm(7), nn.ReLU(), nn.Linear(7, 3))
    with opened(net.double(), torch.randn(1, 5).double(), Options(search=False)) as session, torch.no_grad():
        parts = session.composed(Scope.parse("point"))
        return swept_ball(session.trace, parts, 0, radius, session.native, 1)


@pytest.mark.parametrize("radius", [0.1, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_both_ways_agree(seed: int, radius: float) -> None:
    found = swept(seed, radius).improved(1e-2, 20)
    assert len(found.logs)
    level = level_again(found.units, found.target, found.logs)
    assert level <= found.bound() <= level * (1 + 1e-6)
    assert bound_again(found, found.logs) == found.bound()


def test_what_is_not_feasible_proves_nothing() -> None:
    found = swept(0, 1.0)
    for logs in (found.logs + 40.0 * (-1.0) ** torch.arange(len(found.logs)), found.logs[:-1], found.logs + 800.0):
        assert bound_again(found, logs) == math.inf
    first = dataclasses.replace(found.units, half=found.units.half * 1e3)
    assert level_again(first, found.target, found.logs) == math.inf
