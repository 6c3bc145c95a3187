from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normgauge import gauge
from normgauge.instrument.measure import readings
from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.flow import Gain, Transfer
from normgauge.instrument.testing import OneStep, check_rule
from tests.cases import CASES, EVERYWHERE

NEUTRAL = ("shape.copy", "stochastic.dropout", "fourier.part")  # steps that have no row


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_keeps_its_contract(case):
    rest = tuple(s for s in EVERYWHERE if s not in case.attained)
    if case.attained:
        check_rule(case.make, case.inputs, scopes=case.attained, attained=True, mode=case.mode)
    if rest:
        check_rule(case.make, case.inputs, scopes=rest, mode=case.mode)


@pytest.mark.parametrize("rule", [r.id for r in REGISTRY.entries()])
def test_every_rule_has_a_case_that_reaches_it(rule):
    mine = [case for case in CASES if case.rule == rule]
    assert mine, f"{rule} has no case in tests/cases.py: add one"
    met: set[str] = set()
    for case in mine:
        target = case.built()
        x = case.inputs if isinstance(case.inputs, torch.Tensor) else torch.randn(case.inputs)

        model = OneStep(target).double()
        reading = gauge(model, x.double(), scope="point", search=False, balance=False, mode=case.mode)
        met |= {row.rule for row in reading.layers}  # a formula that is recognised as a whole is one row
    assert rule in met or rule in NEUTRAL, (rule, met)


def test_a_wrong_rule_is_caught():
    class Twice(nn.Module):
        def forward(self, x):
            return 2 * x

    def once(step, incoming, ctx):
        return Transfer((Gain(ctx.full(0.0)),))

    def twice(step, incoming, ctx):
        return Transfer((Gain(ctx.full(math.log(2))),))

    with pytest.raises(
        AssertionError, match=r"user\.once states a gain for input 0: expected at most 1, got the slope 2"
    ):
        check_rule(Twice, (2, 3), rules=REGISTRY.extended({Twice: once}))
    shares = check_rule(Twice, (2, 3), rules=REGISTRY.extended({Twice: twice}), attained=True)
    assert set(shares) == set(EVERYWHERE) and min(shares.values()) > 0.999
    assert REGISTRY.lookup(Twice) is None  # nothing global changed


def test_a_loose_rule_is_caught_where_it_should_be_attained():
    class Half(nn.Module):
        def forward(self, x):
            return x / 2

    def loose(step, incoming, ctx):
        return Transfer((Gain(ctx.full(0.0)),))

    with pytest.raises(AssertionError, match="at least"):
        check_rule(Half, (2, 3), rules=REGISTRY.extended({Half: loose}), attained=0.9)


def test_an_uncovered_use_is_caught_and_may_be_accepted():
    with pytest.raises(AssertionError, match="a rule that covers this use"):
        check_rule(torch.lgamma, (2, 3))
    assert check_rule(torch.lgamma, (2, 3), unknown=True) == dict.fromkeys(EVERYWHERE, 0.0)


def test_an_understated_displacement_is_caught():
    def still(step, incoming, ctx):
        return Transfer((Gain(ctx.full(0.0)),), radius=ctx.full(1e-3))

    class Same(nn.Module):
        def forward(self, x):
            return x * 1.0

    with pytest.raises(AssertionError, match=r"user\.still states radius: expected at most 0.001, got 0.0999"):
        check_rule(Same, (2, 3), rules=REGISTRY.extended({Same: still}), scopes=("ball:0.1",))


@pytest.mark.parametrize(
    "layer", [nn.Linear(4, 3), nn.Conv1d(4, 3, 2), nn.BatchNorm1d(4)], ids=lambda m: type(m).__name__
)
@pytest.mark.parametrize("factor", [1e-3, 1e5])
def test_scaling_an_affine_weight_shifts_the_log(layer, factor):
    model = nn.Sequential(layer, nn.Flatten()).double()
    x = torch.randn(2, 4, 5).double() if not isinstance(layer, nn.Linear) else torch.randn(2, 4).double()
    before = readings(model, x, EVERYWHERE, search=False)
    with torch.no_grad():
        layer.weight.mul_(factor)
    after = readings(model, x, EVERYWHERE, search=False)
    with torch.no_grad():
        layer.weight.div_(factor)
    for a, b in zip(before, after, strict=True):
        assert b.log_upper - a.log_upper == pytest.approx(math.log(factor), abs=1e-8)
