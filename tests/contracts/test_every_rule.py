from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normgauge import gauge
from normgauge.instrument.measure import readings
from normgauge.instrument.rules import REGISTRY
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
    moved = [b.log_upper - a.log_upper for a, b in zip(before, after, strict=True)]
    assert moved == pytest.approx([math.log(factor)] * len(EVERYWHERE), abs=1e-8)
