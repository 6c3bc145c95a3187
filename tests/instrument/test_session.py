"""A traced model: options, the clock, what is kept between scopes, and whether samples interact."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Scope
from normgauge.core.errors import InputError
from normgauge.instrument.measure import gauge
from normgauge.instrument.session import Clock, Options, no_fast_path, opened, precisions
from normgauge.instrument.trace.again import Own
from normgauge.instrument.trace.inputs import make_call
from tests.instrument.claimed_rules import rule_of
from tests.instrument.trace.nets import Lambda, batch, true_norm


def test_samples_that_interact_are_measured_together() -> None:
    model = Lambda(lambda m, x: m.a(x) - m.a(x).mean(0, keepdim=True))
    reading = gauge(model, batch(), scope="point", search=False)
    assert any("influence each other" in note for note in reading.notes)
    assert math.exp(reading.log_upper) >= true_norm(model, batch()) * (1 - 1e-9)


def test_the_whole_batch_as_one_point_and_the_precision_are_fields():
    mixed = ng.gauge(nn.Sequential(nn.BatchNorm1d(4)), torch.randn(5, 4), mode="train", scope="point")
    alone = ng.gauge(nn.Linear(4, 2), torch.randn(5, 4), scope="point")
    assert mixed.together and not alone.together
    assert alone.precision == "float64" and alone.to_json()["precision"] == "float64"


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InputError, match="mode: expected eval or train, got 'fast'"):
        Options(mode="fast")


def test_the_clock_adds_up_its_parts_and_tells_which_one_runs() -> None:
    told: list[tuple[str, float]] = []
    clock = Clock(lambda stage, done: told.append((stage, done)))
    for part in ("trace", "rules", "rules"):
        with clock.timed(part):
            sum(range(20_000))
    assert told == [("trace", 0.0), ("rules", 0.0), ("rules", 0.0)]
    assert set(clock.seconds) == {"trace", "rules"} and min(clock.seconds.values()) > 0
    trace = clock.seconds["trace"]
    clock.restart()
    assert clock.seconds == {"trace": trace}


def test_what_is_made_once_is_kept_even_where_it_is_nothing() -> None:
    with opened(nn.Linear(3, 2), torch.randn(2, 3)) as session:
        made: list[int] = []
        found = [session.once("key", lambda: made.append(1)) for _ in range(3)]
    assert found == [None] * 3 and made == [1]


def test_a_rule_that_overlooks_the_samples_is_found_out_by_moving_half_of_them() -> None:
    class Centred(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean(0, keepdim=True)

    rules = ng.REGISTRY.extended({Centred: rule_of(2.0)})
    with opened(Centred(), batch(), Options(rules=rules)) as session:
        parts = session.composed(Scope.parse("point"))
        assert session.together and parts.ctx.samples == 1
    with opened(nn.Linear(4, 2).double(), batch()) as session:
        parts = session.composed(Scope.parse("point"))
        assert not session.together and parts.ctx.samples == 3 and session.mixing(parts) is None


def test_scopes_with_equal_gains_share_their_bounds() -> None:
    with opened(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).double(), batch()) as session:
        first, second = (session.bounds(session.composed(Scope.parse(scope)))[1] for scope in ("point", "ball:0.1"))
        assert first.weights is second.weights and first.log_upper.tolist() == second.log_upper.tolist()


@pytest.mark.parametrize(
    ("eps", "casts", "minded"),
    [
        ((), False, [False, True, None]),
        ((), True, [True, None]),
        ((1e-3,), False, [None]),  # an RMSNorm in another precision than the model's
    ],
)
def test_a_copy_in_float64_is_tried_before_the_model_as_it_runs(eps, casts, minded) -> None:
    own = Own(None, None, None, frozenset(eps), casts)
    found = precisions(make_call(nn.Linear(4, 2), torch.randn(2, 4)), own)
    assert [case if dtype is torch.float64 else None for dtype, _, case, _ in found] == minded
    assert found[-1] == (None, None, False, False) and not any(lend for *_, lend in found)
    lent = [lend for *_, lend in precisions(make_call(nn.Linear(4, 2), torch.randn(2, 4)), own, large=True)]
    assert lent == [*[True] * (len(minded) - 1), *[False] * len(minded)]


def test_the_fast_path_of_attention_is_off_inside_and_as_before_after() -> None:
    before, inside = torch.backends.mha.get_fastpath_enabled(), []

    def failing() -> None:
        with no_fast_path():
            inside.append(torch.backends.mha.get_fastpath_enabled())
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert inside == [False] and torch.backends.mha.get_fastpath_enabled() == before


def test_the_model_can_run_in_single_precision_for_a_while_and_is_in_double_precision_again() -> None:
    model, x = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval(), torch.randn(5, 4)
    with opened(model, x) as session:
        double = session.function()(x.double())
        with session.single_function() as single:
            found = single(x)
        assert found.dtype == torch.float32 and torch.allclose(found.double(), double, atol=1e-5)
        assert model[0].weight.dtype == torch.float64
        assert torch.equal(session.function()(x.double()), double)
    assert torch.equal(model(x), found) and model[0].weight.dtype == torch.float32
