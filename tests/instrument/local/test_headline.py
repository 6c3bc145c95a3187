"""The number to quote: never above the balanced bound, tight where it can be, honest about how it is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Evidence
from normgauge.core.errors import InputError
from tests.instrument.local.nets import jacobian_norm

pytestmark = pytest.mark.usefixtures("brief_search")


def relu_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def test_every_scope_is_tighter_than_the_balanced_bound_and_proved() -> None:
    x = torch.randn(3, 8)
    point, ball, everywhere = ng.readings(relu_net(), x)
    truth = max(jacobian_norm(relu_net().double(), x[i : i + 1].double()) for i in range(3))
    assert math.exp(point.log_upper) == pytest.approx(truth, rel=1e-6) and math.exp(point.log_upper) >= truth
    assert (point.method, ball.method, everywhere.method) == ("jacobian", "open units", "open units")
    for reading in (point, ball, everywhere):
        assert reading.evidence is Evidence.PROVED and 0 < reading.failure_probability < 1e-8
        assert reading.log_upper < reading.log_balanced <= reading.log_folded
    assert point.log_upper <= ball.log_upper <= everywhere.log_upper


def test_each_sample_has_its_own_bound() -> None:
    x = torch.randn(3, 8)
    reading = ng.gauge(relu_net(), x, scope="point")
    model = relu_net().double()
    for row in reading.samples:
        truth = jacobian_norm(model, x[row["index"] : row["index"] + 1].double())
        assert 10 ** row["log10_upper"] == pytest.approx(truth, rel=1e-6)


def test_the_same_call_gives_the_same_numbers() -> None:
    x = torch.randn(2, 8)
    runs = [[(r.log_upper, r.failure_probability) for r in ng.readings(relu_net(), x)] for _ in range(2)]
    assert runs[0] == runs[1]


def test_effort_is_a_word_and_quick_is_the_balanced_bound_in_a_ball() -> None:
    with pytest.raises(InputError, match="effort: expected quick, default, long, got 'much'"):
        ng.gauge(relu_net(), torch.randn(2, 8), effort="much")
    quick = ng.gauge(relu_net(), torch.randn(2, 8), scope="ball:0.1", effort="quick")
    assert quick.method == "balanced" and quick.log_upper == quick.log_balanced


def test_a_step_outside_the_engine_leaves_a_computed_jacobian() -> None:
    class Softmaxed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (3 * x).softmax(1)

    x = torch.randn(2, 5)
    point, ball = ng.readings(Softmaxed(), x, ("point", "ball:0.1"))
    truth = max(jacobian_norm(Softmaxed(), x[i : i + 1].double()) for i in range(2))
    assert point.evidence is Evidence.COMPUTED and math.exp(point.log_upper) == pytest.approx(truth, rel=1e-6)
    assert ball.method == "balanced" and ball.evidence is Evidence.PROVED


def test_a_backward_pass_of_the_models_own_is_not_believed() -> None:
    class Liar(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.tanh() + 5 * x.detach()

    reading = ng.gauge(Liar(), torch.randn(2, 4), scope="point")
    assert reading.method == "balanced" and reading.log_upper >= math.log(5)


def test_samples_on_a_kink_count_every_side() -> None:
    class Bent(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.abs() + 2 * x.relu()

    for x in (torch.zeros(1, 3), torch.tensor([[0.0, 1.0, -1.0]])):
        assert ng.gauge(Bent(), x, scope="point").log_upper >= math.log(3) - 1e-9


def test_a_large_network_gets_the_loop_bound_over_all_inputs(monkeypatch) -> None:
    from normgauge.instrument.local import headline

    monkeypatch.setitem(headline.UNITS, "default", 8)
    reading = ng.gauge(relu_net(), torch.randn(2, 8))
    assert reading.method == "loop" and reading.evidence is Evidence.PROVED
    assert reading.log_lower <= reading.log_upper < reading.log_balanced
