"""What the checks look at: how far values spread over the samples, and the trunk of a network."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from normgauge.advice.view import spread_and_size, trunk
from normgauge.instrument.session import opened


def test_spread_is_over_the_samples_and_size_over_everything():
    values = torch.tensor([[100.0, 0.0], [100.0, 2.0]])
    spread, size = spread_and_size(values, 0)
    assert spread == pytest.approx(math.log10(math.sqrt(0.5)))
    assert size == pytest.approx(math.log10(math.sqrt(20004 / 4)))
    assert spread_and_size(torch.zeros(3, 2), 0) == (-30.0, -30.0)
    assert spread_and_size(torch.full((2,), math.inf), None) == (30.0, 30.0)
    assert spread_and_size(torch.zeros(0), None) == (-30.0, -30.0)
    assert spread_and_size(1e200 * values.double(), 0)[1] == pytest.approx(size + 200)


def test_the_trunk_leaves_out_what_a_branch_goes_around():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.inner, self.head = (nn.Linear(3, 3) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            h = self.stem(x)
            return self.head(h + self.inner(h))

    with opened(Block(), torch.randn(4, 3)) as session:
        names = [value.step.name for value in trunk(session) if value.step is not None]
    assert names == ["stem", "add", "head"]
