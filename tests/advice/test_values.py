"""Values that are no numbers, units that never wake, and parts without a bound."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

import normgauge as ng


def test_values_that_are_no_numbers_are_found(batch):
    class Log(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.log(x)

    model = nn.Sequential(nn.Linear(8, 8), Log(), nn.Linear(8, 2))
    remark = ng.advise(model, batch, facts=False).problems[0]
    assert (remark.kind, remark.layer) == ("diverged", "1.log") and "no numbers" in remark.sentence


def test_minus_infinity_is_how_attention_masks(batch):
    class Masked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.masked_fill(torch.eye(16, 8, dtype=torch.bool), -math.inf).softmax(-1)

    problems = ng.advise(nn.Sequential(nn.Linear(8, 8), Masked(), nn.Linear(8, 2)), batch, facts=False).problems
    assert "diverged" not in [remark.kind for remark in problems]


def test_units_that_never_wake_are_counted(batch):
    model = nn.Sequential(nn.Linear(8, 100), nn.ReLU(), nn.Linear(100, 2))
    for asleep, kinds in ((90, []), (100, ["dead activations"])):
        nn.init.constant_(model[0].bias, 10.0)
        nn.init.constant_(model[0].bias[:asleep], -100.0)
        problems = ng.advise(model, batch, facts=False).problems
        assert [remark.kind for remark in problems] == kinds
    assert problems[0].numbers == {"share": 1.0} and problems[0].layer == "1"
