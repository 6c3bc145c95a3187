"""Single combinations of outputs: their loop lies above their slopes, and is that of the network with the row in it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normgauge.instrument.loop import LoopEffort, RowLoops, loop_bound
from tests.instrument.loop.loop_nets import read

QUICK = LoopEffort(steps=60)
ROW = torch.tensor([1.0, 0.0, -1.0, 0.0], dtype=torch.float64)


def net(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    parts = [nn.Conv2d(1, 3, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 12), nn.GELU(), nn.Linear(12, 4)]
    return nn.Sequential(*parts).double()


@pytest.mark.parametrize("seed", range(6))
def test_no_slope_of_the_combination_lies_above_it(seed: int) -> None:
    model, x = net(seed), torch.randn(2, 1, 8, 8, dtype=torch.float64)
    with read(model, x) as (session, parts, folded):
        loops = RowLoops.of(session, parts, folded, QUICK)
        assert loops is not None
        proved, whole = loops.bound(ROW), loop_bound(session, parts, folded, QUICK)
    assert proved is not None and whole is not None
    assert proved.total <= whole.total + math.log(2) / 2 + 0.05
    for k in range(30):
        at = (torch.randn(1, 1, 8, 8, dtype=torch.float64) * 2.0 ** (k % 5 - 1)).requires_grad_()
        (slope,) = torch.autograd.grad((model(at)[0] * ROW).sum(), at)
        assert float(slope.norm()) <= math.exp(proved.total)


def test_a_row_behind_the_network_is_a_last_layer() -> None:
    model, x = net(7), torch.randn(2, 1, 8, 8, dtype=torch.float64)
    head = nn.Linear(4, 1, bias=False).double()
    head.weight.data = ROW[None].clone()
    with read(model, x) as (session, parts, folded):
        loops = RowLoops.of(session, parts, folded, QUICK)
        proved = None if loops is None else loops.bound(ROW)
    with read(nn.Sequential(*model, head), x) as (session, parts, folded):
        other = loop_bound(session, parts, folded, QUICK)
    assert proved is not None and other is not None
    assert proved.total == pytest.approx(other.total, abs=1e-3)


def test_outputs_that_are_no_rows_are_left_alone() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()).double(), torch.randn(2, 1, 6, 6, dtype=torch.float64)
    with read(model, x) as (session, parts, folded):
        assert RowLoops.of(session, parts, folded, QUICK) is None
