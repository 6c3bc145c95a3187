"""Small formulas with odd settings, through the whole instrument."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng


class Does(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize("correction", [0, 1, 3, 3.5, 3.99])
def test_a_deviation_with_any_correction(correction):
    model, x = Does(lambda x: x.std(-1, correction=correction)), torch.randn(3, 4).double()
    upper = math.exp(ng.gauge(model, x, search=False).log_upper)
    assert upper == pytest.approx(1 / math.sqrt(4 - correction), rel=1e-8)
    rows = torch.autograd.functional.jacobian(model, x[:1]).reshape(1, 4)
    assert float(rows.norm()) <= upper


@pytest.mark.parametrize("function", [F.hardsigmoid, F.hardswish])
def test_the_derivative_torch_gives_is_not_above_the_bound(function):
    x = torch.linspace(-2.9, 2.999, 31).double().requires_grad_()
    (slope,) = torch.autograd.grad(function(x).sum(), x)
    assert float(slope.abs().max()) <= math.exp(ng.gauge(Does(function), x.detach()[:, None], search=False).log_upper)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rms_norm_without_eps_takes_that_of_float32(dtype):
    layer = nn.RMSNorm(4).to(dtype)
    upper = math.exp(ng.gauge(layer, torch.ones(2, 4, dtype=dtype), search=False).log_upper)
    assert upper == pytest.approx(torch.finfo(torch.float32).eps ** -0.5, rel=1e-6)


def test_dropout_says_for_which_masks_its_bound_holds():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), torch.randn(3, 4)
    notes = {s: ng.gauge(model, x, scope=s, mode="train", search=False).layers[-1].note for s in ("global", "point")}
    assert "every mask" in notes["global"]
    assert "mask drawn" in notes["point"]


def test_reshaping_like_another_tensor_is_a_copy():
    model, x = (
        Does(lambda x: (2 * x).reshape_as(x.tanh()) + (3 * x).flatten(1).reshape_as(x)),
        torch.randn(3, 2, 2).double(),
    )
    reading = ng.gauge(model, x, search=False)
    assert math.exp(reading.log_upper) == pytest.approx(5.0) and not reading.unknown


@pytest.mark.parametrize("number", [0.1, 3.3, 1 / 3])
def test_a_plain_number_keeps_all_its_digits(number):
    for function in (lambda x: x * number, lambda x: x / (1 / number)):
        reading = ng.gauge(Does(function), torch.ones(2, 3).double(), search=False)
        assert number <= math.exp(reading.log_upper) <= number * (1 + 1e-8)
