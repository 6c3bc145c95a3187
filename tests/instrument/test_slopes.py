"""The largest slope found, and what rounding alone may explain."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Scope
from normgauge.instrument.measure import gauge
from normgauge.instrument.probe.search import Found
from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.flow import Context, Flow, Gain, Transfer
from normgauge.instrument.session import Options, opened, start
from normgauge.instrument.slopes import excused_slopes, noise_of_output, rounding_of_values, sample_alone, stand_apart
from normgauge.instrument.trace.inputs import make_call
from normgauge.instrument.trace.step import Step
from tests.instrument.claimed_rules import rule_of
from tests.instrument.trace.nets import Net, batch


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda x: (x + 1e7) - 1e7, torch.float32),
        (lambda x: (x * 1e-3 + 1e9) - 1e9, torch.float64),
        (lambda x: F.layer_norm(x + 1e7, (4,)), torch.float32),
    ],
)
def test_the_steps_of_rounding_refute_nothing(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    reading = ng.gauge(Net(function), batch(dtype), scope="ball:1")
    assert str(reading.evidence) != "refuted" and reading.log_lower <= reading.log_upper


def test_a_sample_alone_may_be_another_function() -> None:
    reading = ng.gauge(Net(lambda x: x / len(x)), batch(), scope="ball:0.1")
    assert str(reading.evidence) == "proved" and reading.log_upper == pytest.approx(-math.log(3), abs=1e-6)


@pytest.mark.parametrize(
    ("function", "apart"),
    [
        (lambda x: x.tanh(), True),
        (lambda x: x.flatten(0, 1), True),  # two rows a sample
        (lambda x: x - x.mean(0), False),
        (lambda x: x + 1e-10 * x.flip(0), False),
        (lambda x: x / len(x), False),
        (lambda x: x.transpose(0, 1).sin(), False),  # samples along another axis: not known here, asked of the steps
        (lambda x: x.cumsum(0), False),
    ],
)
def test_few_samples_say_whether_they_stand_apart(function: Callable[[Tensor], Tensor], apart: bool) -> None:
    x = torch.randn(20, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = Net(function)
    session = start(model, make_call(model, x), torch.float64, torch.device("cpu"), Options())
    assert session is not None and stand_apart(session) == apart


def test_digits_lost_inside_a_step_are_no_slope():
    """Normalizing a constant leaves the last digits, magnified: noise excuses a slope of its own size and no other."""

    class Cancels(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.sin() * 1e5 + x) - x.sin() * 1e5 - x

    x = torch.randn(3, 4, dtype=torch.float64)
    rules = ng.REGISTRY.extended({Cancels: rule_of(1e-30)})
    session = start(Cancels(), make_call(Cancels(), x), torch.float64, torch.device("cpu"), Options(rules=rules))
    parts = session.composed(Scope.parse("point"))
    best = session.bounds(parts)[1]
    noise = noise_of_output(session)
    assert 0 < noise < 1e-8
    for slope, is_excused in ((noise, True), (1e4 * noise, False)):
        logs = torch.full((3,), math.log(slope / 1e-3), dtype=torch.float64)
        found = excused_slopes(session, Found(logs, float(logs[0]), "here", 1, 0, (1e-3, slope)), parts, best.log_upper)
        assert (found.log_best == float(best.log_upper.max())) == is_excused


def test_a_slope_above_the_bound_is_cut_only_within_rounding() -> None:
    class Steep(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 3.0 * x

    def wrong(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
        """Too small."""
        return Transfer((Gain(ctx.log(2.0)),))

    def nearly(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
        """Too small by rounding."""
        return Transfer((Gain(ctx.log(3.0 * (1 - 1e-6))),))

    x = torch.randn(3, 4)
    loud = gauge(Steep(), x, scope="global", rules=REGISTRY.extended({Steep: wrong}))
    assert str(loud.evidence) == "refuted" and loud.log_upper == math.inf
    assert loud.log_refuted == pytest.approx(math.log(2)) and loud.log_lower == pytest.approx(math.log(3))
    quiet = gauge(Steep(), x, scope="global", rules=REGISTRY.extended({Steep: nearly}))
    assert quiet.log_lower == quiet.log_upper and any("by rounding" in note for note in quiet.notes)


def test_the_rounding_of_values_is_the_sum_of_their_shares() -> None:
    """Two values of lengths 6 and 30 with 5 and 1 to go: ε (6·5 + 30·1)."""
    x = torch.full((1, 4), 1.0, dtype=torch.float64)
    with opened(Net(lambda x: 5 * (3 * x)), x) as session:
        found = rounding_of_values(session.composed(Scope.parse("global")))
    assert found == pytest.approx(torch.finfo(torch.float64).eps * (6 * 5 + 30))


@pytest.mark.parametrize(("function", "alone"), [(lambda x: 2 * x, True), (lambda x: x / len(x), False)])
def test_a_sample_is_asked_by_itself(function, alone: bool) -> None:
    with opened(Net(function), batch()) as session:
        assert sample_alone(session) == alone


@pytest.mark.parametrize("scope", ["point", "ball:0.1", "global"])
@pytest.mark.parametrize("exponent", [-157, -158, -159, -160, -161, -200, -299, -310])
def test_a_slope_whose_square_is_lost_is_not_overstated(exponent: int, scope: str) -> None:
    torch.manual_seed(0)
    weight = torch.randn(5, 7, dtype=torch.float64)
    model = nn.Linear(7, 5, bias=False, dtype=torch.float64)
    model.weight.data = weight * 10.0**exponent
    kept = model.weight.data * 2.0**500 * 2.0**400  # powers of two: exact
    truth = math.log(float(torch.linalg.matrix_norm(kept, 2))) - 900 * math.log(2)
    reading = ng.gauge(model, torch.randn(2, 7, dtype=torch.float64), scope=scope)
    assert reading.evidence is ng.Evidence.PROVED
    assert reading.log_lower <= truth and (exponent < -290 or reading.log_lower > truth - 1)
