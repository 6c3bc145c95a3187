"""The attack finds what is there, and nothing that is not."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normgauge.advice.certified.attack import Attack, AttackPlan
from tests.advice.certified.nets import built


def attacked(model, x, plan=None, slack=0.0):
    model, x = model.double(), x.double()
    wanted = model(x).argmax(1)
    return Attack(model, x, wanted, torch.full(wanted.shape, slack)).run(plan or AttackPlan()), wanted, model


@pytest.mark.parametrize("name", ["linear", "relu", "layernorm", "conv", "probabilities"])
def test_the_points_found_have_another_class_and_lie_where_said(name):
    model, x = built(name)
    found, wanted, wide = attacked(model, x)
    assert bool(found.distance.isfinite().all())
    assert not bool((wide(found.point).argmax(1) == wanted).any())
    assert torch.allclose((found.point - x.double()).flatten(1).norm(dim=1), found.distance, rtol=1e-12)


def test_a_linear_boundary_is_met_whatever_class_is_behind_it():
    model, x = built("linear")
    found, wanted, wide = attacked(model, x)
    f, w = wide(x.double()).detach(), wide.weight.detach()
    for i, y in enumerate(wanted):
        truth = min(float((f[i, y] - f[i, j]) / (w[y] - w[j]).norm()) for j in range(4) if j != y)
        assert truth * (1 - 1e-12) < float(found.distance[i]) < 1.001 * truth


def test_more_restarts_never_find_less():
    model, x = built("relu")
    few, many = (attacked(model, x, AttackPlan(restarts, 30))[0].distance for restarts in (1, 6))
    assert bool((many <= few * 1.01).all())


def test_a_change_within_rounding_does_not_count():
    model, x = built("linear")
    found, wanted, wide = attacked(model, x, slack=0.5)
    outputs = wide(found.point)
    ahead = outputs.amax(1) - outputs.gather(1, wanted[:, None]).squeeze(1)
    assert bool((ahead > 0.5).all())


def test_nothing_is_found_where_nothing_changes():
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.weight)
    found, _, _ = attacked(model, torch.randn(4, 3, generator=torch.Generator().manual_seed(0)))
    assert bool(torch.isinf(found.distance).all())


class Cliff(nn.Module):
    """No slope at all inside the unit ball, another class outside."""

    def forward(self, x):
        far = (x.flatten(1).norm(dim=1, keepdim=True) > 1).to(x) + 0 * x.sum(1, keepdim=True)
        return torch.cat([0.5 - far, 0 * far], 1)


def test_a_flat_place_is_left_by_noise():
    found, _, _ = attacked(Cliff(), torch.zeros(2, 5))
    assert (
        bool(found.distance.isfinite().all())
        and float(found.distance.min()) >= 1
        and not math.isnan(float(found.distance.max()))
    )
