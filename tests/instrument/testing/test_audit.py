"""False facts, each a formula that is slightly wrong, are caught by `check_rule` and named."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.instrument.rules.flow import Gain, Transfer, apply_gain
from normgauge.instrument.testing import check_rule

Rule = Callable[..., Transfer]


def altered(target: Any, change: Callable[..., dict[str, Any]]) -> Rule:
    """The library's own rule with some of its facts replaced."""
    known = ng.REGISTRY.lookup(target)
    assert known is not None

    def rule(step: Any, incoming: Any, ctx: Any) -> Transfer:
        transfer = known.function(step, incoming, ctx)
        return dataclasses.replace(transfer, worked="", **change(step, incoming, ctx, transfer))

    return rule


def shifted_norm() -> nn.Module:
    layer = nn.LayerNorm(4)
    with torch.no_grad():
        layer.bias.fill_(2.0)
    return layer


class Twofold(nn.Module):
    """Every entry twice."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, x], 1)


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


class Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1) * 1.0


def without_shift(step: Any, incoming: Any, ctx: Any, transfer: Transfer) -> dict[str, Any]:
    return {"norm": ctx.full(2.0 * float(step.module.weight.detach().abs().max()))}  # √d·max|γ|: β was forgotten


def single_copy(step: Any, incoming: Any, ctx: Any) -> Transfer:
    (flow,) = incoming
    return Transfer((Gain(ctx.log(math.sqrt(2))),), radius=flow.radius)  # two copies move √2 times as far


def evenly_spread(step: Any, incoming: Any, ctx: Any) -> Transfer:
    (flow,) = incoming
    rows = step.inputs[0].tensor.shape[-2]
    moved = apply_gain(ctx.log(2.0), flow.radius)
    return Transfer((Gain(ctx.log(2.0)),), row=moved / math.sqrt(rows))  # one row may move alone


def as_before(step: Any, incoming: Any, ctx: Any) -> Transfer:
    return Transfer((Gain(ctx.log(1.0)),), axis=incoming[0].axis)  # the samples moved to the other axis


def second_gain_short(step: Any, incoming: Any, ctx: Any, transfer: Transfer) -> dict[str, Any]:
    first, second = transfer.gains
    return {"gains": (first, Gain(second.log + math.log(0.99)))}


@dataclass(frozen=True)
class Plant:
    fact: str
    target: Any  # what the rule is for
    rule: Rule
    network: Callable[..., Any]
    shape: tuple[int, ...]
    said: str


PLANTS = [
    Plant("norm", nn.LayerNorm, altered(nn.LayerNorm, without_shift), shifted_norm, (2, 4), r"states norm"),
    Plant("low", nn.GELU, altered(nn.GELU, lambda s, i, c, t: {"low": c.full(-0.15)}), nn.GELU, (2, 4), r"states low"),
    Plant(
        "high",
        nn.Hardtanh,
        altered(nn.Hardtanh, lambda s, i, c, t: {"high": c.full(-s.module.min_val)}),  # taken for symmetric
        lambda: nn.Hardtanh(-2.0, 3.0),
        (2, 4),
        r"states high",
    ),
    Plant("row", Double, evenly_spread, Double, (2, 3, 4), r"states row"),
    Plant("radius", Twofold, single_copy, Twofold, (2, 3), r"states radius"),
    Plant(
        "gain of one input of two",
        torch.mul,
        altered(torch.mul, second_gain_short),
        lambda x: torch.mul(x.tanh(), x.roll(1, 1).sin()),
        (2, 4),
        r"states a gain for input 1",
    ),
    Plant(
        "gain",
        nn.SiLU,
        altered(nn.SiLU, lambda s, i, c, t: {"gains": (Gain(c.log(1.09984 * 0.99)),)}),
        nn.SiLU,
        (2, 4),
        r"states a gain",
    ),
    Plant(
        "disjoint",
        torch.add,
        altered(torch.add, lambda s, i, c, t: {"disjoint": True}),
        lambda x: torch.add(x.tanh(), x.roll(1, 1).sin()),
        (2, 4),
        r"states disjoint",
    ),
    Plant("axis", Turned, as_before, Turned, (2, 4), r"states axis"),
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda p: p.fact)
def test_a_false_fact_is_named(plant):
    with pytest.raises(AssertionError, match=plant.said):
        check_rule(plant.network, plant.shape, rules=ng.REGISTRY.extended({plant.target: plant.rule}))


@pytest.mark.parametrize("plant", PLANTS, ids=lambda p: p.fact)
def test_the_library_keeps_that_fact(plant):
    check_rule(plant.network, plant.shape)


@pytest.mark.parametrize("plant", PLANTS[1:3], ids=lambda p: p.fact)
def test_a_false_fact_inside_a_network_is_named(plant):
    """The bound may hold by luck: what is stated half-way is audited for itself."""
    hidden = nn.Sequential(nn.Linear(4, 3), plant.network(), nn.Linear(3, 2))
    with pytest.raises(AssertionError, match=plant.said):
        check_rule(hidden, plant.shape, rules=ng.REGISTRY.extended({plant.target: plant.rule}))


def test_a_forgotten_middle_is_named():
    """sigmoid(0) is ½, not 0: with the right gain and these ranges a product would get a false bound."""

    class Half(nn.Module):
        def forward(self, x):
            return torch.sigmoid(x)

    def rule(step, incoming, ctx):
        small = ctx.full(0.01)
        return Transfer((Gain(ctx.log(0.25)),), norm=small, low=-small, high=small)

    with pytest.raises(AssertionError, match=r"the rule user\.rule states high: expected at most 0\.01, got 0\.\d+"):
        check_rule(Half, (3, 4), rules=ng.REGISTRY.extended({Half: rule}))
