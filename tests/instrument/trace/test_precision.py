"""Precision: a copy in float64 does what the model does in its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.instrument.measure import gauge
from normgauge.instrument.trace.precision import OwnEps, Precision, Widened, default_eps
from tests.instrument.trace.nets import Lambda, Net, batch


def to_copy(x: Tensor) -> Tensor:
    y = x.to(x.dtype, copy=True)
    y.mul_(0.01)
    return 5 * x + y


def half(x: Tensor) -> Tensor:
    y = x.half()
    y.zero_()
    return 5 * x


def double(x: Tensor) -> Tensor:
    y = x.double()
    y.zero_()
    return 5 * x + y.to(x.dtype)


def same_precision(x: Tensor) -> Tensor:
    y = x * 1.0
    y.float().mul_(50.0)  # no copy where the network works in float32
    return y


def precision_branch(x: Tensor) -> Tensor:
    return 100 * x if x.dtype == torch.float32 else x


MEASURED: dict[str, tuple[Callable[..., Tensor], torch.dtype, float]] = {
    "to(copy=True)": (to_copy, torch.float64, 5.01),
    "half": (half, torch.float32, 5.0),
    "double": (double, torch.float32, 5.0),
    "float of float32": (same_precision, torch.float32, 50.0),
    "float of float64": (same_precision, torch.float64, 1.0),
    "a branch on the precision": (precision_branch, torch.float32, 100.0),
    "one that the batch does not show": (lambda x: precision_branch(-(x + 9)).relu(), torch.float32, 100.0),
}


@pytest.mark.parametrize("name", MEASURED)
def test_casts_copy_where_the_models_own_would(name: str) -> None:
    function, dtype, truth = MEASURED[name]
    reading = ng.gauge(Net(function), batch(dtype), scope="global", search=False)
    assert reading.log_upper == pytest.approx(math.log(truth), abs=1e-6)


def test_low_precision_models_are_measured_in_float64() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)).to(torch.bfloat16)
    reading = gauge(model, torch.randn(3, 4).to(torch.bfloat16), scope="point")
    assert str(reading.evidence) == "proved" and reading.log_lower <= reading.log_upper


def test_a_model_that_refuses_float64_is_still_measured() -> None:
    def branch(m: Any, x: Tensor) -> Tensor:
        return x * 3 if isinstance(x, torch.FloatTensor) else x

    reading = gauge(Lambda(branch).float(), batch().float(), scope="point")
    assert any("float64" in note for note in reading.notes) and str(reading.evidence) == "estimated"
    assert reading.log_lower <= reading.log_upper + 1e-4


def test_constants_of_another_precision_are_widened() -> None:
    constant = torch.randn(4, 4)
    model = Lambda(lambda m, x: x @ constant + torch.ones(4) @ torch.eye(4, dtype=torch.float32))
    reading = gauge(model.float(), batch().float(), scope="point")
    assert str(reading.evidence) == "proved" and reading.log_lower <= reading.log_upper + 1e-6


def test_the_epsilon_of_a_precision_is_that_torch_takes() -> None:
    """Read off torch itself: rms_norm of a zero with a gain of one and a tiny entry."""
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        x = torch.full((1, 4), 1e-3, dtype=dtype)
        found = torch.nn.functional.rms_norm(x, (4,))
        given = torch.nn.functional.rms_norm(x, (4,), eps=default_eps(dtype))
        assert torch.equal(found, given) and default_eps(dtype) >= 2.2e-16


def test_an_open_epsilon_is_filled_in_and_a_given_one_kept() -> None:
    x = torch.full((1, 4), 1e-5, dtype=torch.float64)
    with OwnEps(torch.float32):
        opened, given = nn.RMSNorm(4).double()(x), nn.RMSNorm(4, eps=1e-2).double()(x)
    for found, eps in ((opened, torch.finfo(torch.float32).eps), (given, 1e-2)):
        assert torch.allclose(found, x / (x.square().mean() + eps).sqrt())


def test_a_widened_program_sees_its_own_precision_and_keeps_its_digits() -> None:
    x = torch.tensor([1.0 + 1e-12], dtype=torch.float64)
    with Widened(torch.float32):
        assert x.dtype == torch.float32
        same, copied, made = x.float(), x.half(), torch.ones(1, dtype=torch.float32)
        mixed = x @ torch.ones(1, dtype=torch.float16)
    assert same is x and copied is not x and torch.equal(copied, x)
    assert made.dtype == torch.float64 and mixed.dtype == torch.float64 and float(mixed) == float(x)


def test_what_a_program_does_about_precision_is_noted() -> None:
    x = torch.ones(2, 4)
    for function, asked in ((lambda: x.tanh(), False), (lambda: x.half(), True), (lambda: x.dtype, True)):
        with Precision(torch.float32) as seen:
            function()
        assert seen.asked == asked and seen.eps == set()
    with Precision(torch.float32) as seen:
        nn.RMSNorm(4)(x)
    assert seen.eps == {torch.float32}


@pytest.mark.parametrize(
    ("own", "cast", "told"),
    [
        (torch.float32, torch.float16, "torch.float16"),
        (torch.float32, torch.float64, None),
        (torch.float64, torch.float32, "torch.float32"),
        (torch.bfloat16, torch.float32, None),  # and back again, as normalizers do
    ],
)
def test_a_cast_that_loses_digits_is_said_to_be_taken_as_exact(own, cast, told) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.map(x)
            return h.to(cast).to(h.dtype)

    reading = ng.gauge(Net().to(own), torch.ones(2, 4, dtype=own), search=False)
    notes = [note for note in reading.notes if "taken as exact" in note]
    assert notes == (
        [f"a cast to {told} on the way is taken as exact: its rounding is no part of any bound"] if told else []
    )


def test_a_cast_to_eight_bits_is_no_crash() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (3 * x).to(torch.float8_e4m3fn).float()

    assert ng.gauge(Net(), torch.randn(3, 4), search=False).evidence == "unknown"
