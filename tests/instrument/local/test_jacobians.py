"""Norms of Jacobians as autograd computes them: all rows, a random start, and what gives autograd away."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normgauge.instrument.local import jacobians
from normgauge.instrument.local.jacobians import jacobian_norms
from normgauge.instrument.probe.linearize import SampleMap
from tests.instrument.local.nets import jacobian_norm


def tanh_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 30), nn.Tanh(), nn.Linear(30, 9)).double()


def test_all_rows_give_the_norm() -> None:
    model, x = tanh_net(), torch.randn(4, 12, dtype=torch.float64)
    found = jacobian_norms(SampleMap(model, x, 4), 10.0, 0)
    assert found is not None and found.chance == 0
    truth = [jacobian_norm(model, x[i : i + 1]) for i in range(4)]
    assert found.norms.tolist() == pytest.approx(truth, rel=1e-6)
    assert all(a >= b for a, b in zip(found.norms.tolist(), truth, strict=True))
    assert found.least.tolist() == pytest.approx(truth, rel=1e-6)
    assert all(a <= b for a, b in zip(found.least.tolist(), truth, strict=True))


def test_a_random_start_is_above_the_norm_and_near(monkeypatch) -> None:
    monkeypatch.setattr(jacobians, "MOST_ROWS", 0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(90, 120), nn.Tanh(), nn.Linear(120, 80)).double()
    x = torch.randn(4, 90, dtype=torch.float64)
    truth = [jacobian_norm(model, x[i : i + 1]) for i in range(4)]
    for seed in range(5):
        found = jacobian_norms(SampleMap(model, x, 4), 10.0, seed)
        assert found is not None and 0 < found.chance < 1e-6
        for got, want in zip(found.norms.tolist(), truth, strict=True):
            assert want <= got <= want * 1.05
        for got, want in zip(found.least.tolist(), truth, strict=True):
            assert want * 0.95 <= got <= want


def test_too_little_work_gives_nothing() -> None:
    assert jacobian_norms(SampleMap(tanh_net(), torch.randn(4, 12, dtype=torch.float64), 4), 1e-9, 0) is None


def test_what_autograd_does_not_follow_is_noticed() -> None:
    found = jacobian_norms(SampleMap(lambda x: x + 3 * x.detach(), torch.randn(2, 4, dtype=torch.float64), 2), 10.0, 0)
    assert found is not None and found.norms.tolist() == [math.inf] * 2
    kinked = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    found = jacobian_norms(SampleMap(lambda x: x.abs(), kinked, 2), 10.0, 0)
    assert found is not None and found.norms.isinf().tolist() == [True, False]
    assert (found.least > 0).tolist() == [False, True]


def test_some_steps_are_made_whatever_they_cost() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(90, 120), nn.Tanh(), nn.Linear(120, 80)).double()
    x = torch.randn(2, 90, dtype=torch.float64)
    found = jacobian_norms(SampleMap(model, x, 2), 1e-9, 0, fewest=16)
    assert found is not None and found.chance > 0
    for got, row in zip(found.norms.tolist(), x.split(1), strict=True):
        assert jacobian_norm(model, row) <= got <= 1.25 * jacobian_norm(model, row)
