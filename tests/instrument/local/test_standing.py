"""Samples that stand on kinks of any step are recognised, and those that only look so are not."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Scope
from normgauge.instrument.local.standing import on_kink
from normgauge.instrument.session import opened
from tests.instrument.local.test_headline import Fn

TIED = torch.tensor([[1.0, 1.0, 0.5, -2.0], [1.0, 2.0, 3.0, -4.0]])
FLAT = torch.stack([torch.zeros(1, 4, 4), torch.arange(16.0).reshape(1, 4, 4)])
ZERO = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]])
KINKS = {
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), FLAT),
    "max_pool1d": (lambda x: F.max_pool1d(x[:, None], 2)[:, 0], TIED),
    "adaptive_max_pool": (lambda x: F.adaptive_max_pool2d(x, 1).flatten(1), FLAT),
    "maximum of two values": (lambda x: torch.maximum(x[:, :1], x[:, 1:]), TIED),
    "minimum with a constant": (lambda x: torch.minimum(x, torch.full((4,), 0.5)), TIED),
    "amax": (lambda x: x.amax(1), TIED),
    "amin": (lambda x: (-x).amin(1), TIED),
    "max with its place": (lambda x: x.max(1).values, TIED),
    "abs": (lambda x: x.abs(), ZERO),
    "clamp": (lambda x: x.clamp(-1.5, 0.5), TIED),
    "a length at 0": (lambda x: torch.linalg.vector_norm(x, dim=1), ZERO),
    "a slope by a comparison": (lambda x: torch.where(x > 0, x, 0.1 * x), ZERO),
    "lp_pool": (lambda x: F.lp_pool1d(x[:, None], 2, 2)[:, 0], ZERO),
}
NONE = {
    "ties that stay": (lambda x: F.max_pool2d(F.relu(F.relu(x - 20)), 2) + x[:, :, ::2, ::2], FLAT),
    "strong curvature": (lambda x: F.gelu(1e5 * x), TIED + 0.25),
    "sharp softmax": (lambda x: (300 * x).softmax(1), TIED),
    "a spread": (lambda x: x.std(1), torch.tensor([[1e5, 1e5 + 1, 3.0, 1.0], [1.0, 2.0, 3.0, 4.0]])),
    "at zero, but smooth": (lambda x: x.tanh() + F.gelu(x), ZERO),
}


def standing(function, x: Tensor) -> list[bool]:
    with opened(Fn(function), x) as session:
        return on_kink(session.composed(Scope.parse("point"))).tolist()


@pytest.mark.parametrize("name", KINKS)
def test_the_sample_on_the_kink_is_told_from_the_other(name: str) -> None:
    assert standing(*KINKS[name]) == [True, False]


@pytest.mark.parametrize("name", NONE)
def test_what_is_smooth_or_does_not_move_is_no_kink(name: str) -> None:
    assert standing(*NONE[name]) == [False, False]


def test_a_kink_too_small_for_the_slopes_to_disagree_counts() -> None:
    """Both sides of max(a, b) beside a far steeper branch: difference quotients do not notice, the kink does."""

    def function(x: Tensor) -> Tensor:
        return torch.cat([x.softmax(1), 1e-5 * torch.maximum(x[:, :1], 3 * x[:, 1:2] - 2)], 1)

    reading = ng.gauge(Fn(function), torch.ones(1, 4), scope="point")
    jacobian = torch.autograd.functional.jacobian(function, torch.ones(1, 4).double()).reshape(5, 4)
    jacobian[4] = 1e-5 * torch.tensor([0.0, 3.0, 0.0, 0.0])
    truth = float(torch.linalg.matrix_norm(jacobian, 2))
    assert reading.log_upper >= math.log(truth) and reading.method == "balanced"


def test_a_convolutional_net_with_pooling_keeps_its_jacobian() -> None:
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(2))
    reading = ng.gauge(nn.Sequential(*layers, nn.Flatten()), torch.randn(2, 1, 12, 12), scope="point")
    assert reading.method == "jacobian" and reading.log_upper - reading.log_lower < 1e-5
