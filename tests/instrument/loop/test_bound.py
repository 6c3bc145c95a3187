"""The loop's bound: above every slope that the ranges allow, on random networks; None where it does not apply."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normgauge.instrument.loop import LoopEffort, loop_bound
from tests.instrument.loop.loop_nets import built, is_elementwise, random_net, read, steepest_of_slopes

QUICK = LoopEffort(steps=40)


def jacobians(net: nn.Module, x: torch.Tensor, count: int) -> float:
    """The largest Jacobian norm at random points."""
    generator = torch.Generator().manual_seed(0)
    best = 0.0
    for k in range(count):
        point = torch.randn(x[:1].shape, generator=generator, dtype=torch.float64) * 2.0 ** (k % 5 - 1)
        jacobian = torch.autograd.functional.jacobian(net, point)
        best = max(best, float(torch.linalg.matrix_norm(jacobian.reshape(-1, point.numel()), 2)))
    return best


@pytest.mark.parametrize("first", range(0, 200, 10))
def test_no_slope_lies_above_it(first: int) -> None:
    found = 0
    for seed in range(first, first + 10):
        net, x = random_net(seed)
        with read(net, x) as (session, parts, folded):
            bound = loop_bound(session, parts, folded, QUICK)
            mid = built(session, parts)
        if bound is None or mid is None:
            continue
        found += 1
        assert jacobians(net, x, 20) <= math.exp(bound.total), seed
        if is_elementwise(mid):
            assert steepest_of_slopes(mid, 60) <= math.exp(bound.total), seed
    assert found >= 7
