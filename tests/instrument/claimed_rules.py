"""Layers of known slope and rules that claim what they are told to."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.instrument.rules.flow import Context, Flow, Gain, Transfer
from normgauge.instrument.trace.step import Step

LOG2, LOG3 = math.log(2), math.log(3)


class Triple(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 3.0 * x


class Tenth(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.1 * x


def rule_of(*factors: float, **facts: Any) -> Any:
    """A rule that claims these constants, one a sample where there are several."""

    def rule(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
        """Claims."""
        logs = [math.log(f) if f < math.inf else f for f in factors]
        gains = torch.tensor(logs, dtype=torch.float64) if len(logs) == ctx.samples else ctx.full(max(logs))
        return Transfer((Gain(gains),), **facts)

    return rule


def claimed(**rules: Any) -> Any:
    kinds = {"triple": Triple, "tenth": Tenth}
    return ng.REGISTRY.extended({kinds[name]: rule for name, rule in rules.items()})
