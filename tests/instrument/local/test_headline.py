"""The number to quote: never above the balanced bound, tight where it can be, honest about how it is known."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Evidence, Scope
from normgauge.core.errors import InputError
from normgauge.instrument.local.journey import swept_ball
from normgauge.instrument.local.pieces import NotCarried
from normgauge.instrument.session import opened
from tests.instrument.local.nets import Fn, jacobian_norm, random_case

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
        assert reading.evidence is Evidence.PROVED and 0 <= reading.failure_probability < 1e-8
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
        ng.gauge(relu_net(), torch.randn(2, 8), scope="global", effort="much")
    quick = ng.gauge(relu_net(), torch.randn(2, 8), scope="ball:0.1", effort="quick")
    assert quick.method == "balanced" and quick.log_upper == quick.log_balanced


def test_a_step_outside_the_engine_leaves_a_computed_jacobian() -> None:
    class Grown(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (3 * x).exp()

    x = torch.randn(2, 5)
    point, ball = ng.readings(Grown(), x, ("point", "ball:0.1"))
    truth = max(jacobian_norm(Grown(), x[i : i + 1].double()) for i in range(2))
    assert point.evidence is Evidence.COMPUTED and math.exp(point.log_upper) == pytest.approx(truth, rel=1e-6)
    assert ball.method == "balanced" and ball.evidence is Evidence.PROVED
    assert any("computed in float64, not proved: exp" in note for note in point.notes)


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
    from normgauge.instrument.local import effort

    few = dataclasses.replace(effort.SPENDINGS["default"], units=8)
    monkeypatch.setitem(effort.SPENDINGS, "default", few)
    reading = ng.gauge(relu_net(), torch.randn(2, 8), scope="global")
    assert reading.method == "loop" and reading.evidence is Evidence.PROVED
    assert reading.log_lower <= reading.log_upper < reading.log_balanced


HIDDEN = {
    "a modulus written as a power": (lambda x: x.abs().pow(1.0), 1.0),
    "the larger of two branches": (lambda x: torch.maximum(x, -2 * x), 2.0),
    "the largest entry": (lambda x: torch.stack([x, -x]).amax(0), 1.0),
    "a spread": (lambda x: x.std(1, correction=0), 0.5),
    "a small kink": (lambda x: x * x.sigmoid() + x + 2e-4 * x.relu(), 1.5002),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_kink_that_a_symmetric_difference_hides_is_seen(name: str) -> None:
    function, truth = HIDDEN[name]
    assert ng.gauge(Fn(function), torch.zeros(1, 4), scope="point").log_upper >= math.log(truth) - 1e-9


def test_a_branch_that_is_detached_counts_however_small() -> None:
    reading = ng.gauge(Fn(lambda x: x.tanh() + 1e-5 * x.detach()), torch.zeros(1, 3), scope="point")
    assert reading.log_upper >= math.log(1 + 1e-5)


@pytest.mark.parametrize("exponent", [-160, -170, -300, 170])
def test_slopes_whose_squares_are_lost_are_not_called_zero(exponent: int) -> None:
    first, last = nn.Linear(2, 2, bias=False).double(), nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        first.weight.copy_(torch.eye(2)).mul_(10.0**exponent)
        last.weight.copy_(torch.eye(2))
    for reading in ng.readings(nn.Sequential(first, nn.ReLU(), last), torch.ones(1, 2, dtype=torch.float64)):
        assert reading.log_upper >= exponent * math.log(10) - 1e-6


def test_dropout_in_training_counts_with_every_mask() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 1, bias=False))
    model[1].weight.data.fill_(1.0)
    for seed in range(3):
        torch.manual_seed(seed)
        reading = ng.gauge(model, torch.ones(1, 2), scope="point", mode="train")
        assert reading.log_upper >= math.log(2 * math.sqrt(2)) - 1e-6


@pytest.mark.parametrize("function", [lambda x: x.sum(), lambda x: x.tanh().mean(), lambda x: x.data.tanh()])
def test_unusual_outputs_and_data_end_in_a_number(function) -> None:
    for reading in ng.readings(Fn(function), torch.randn(1, 3)):
        assert not math.isnan(reading.log_upper)


def test_a_budget_too_small_for_the_jacobian_still_gives_it_roughly(monkeypatch) -> None:
    from normgauge.instrument.local.effort import SPENDINGS

    for effort in ("quick", "default"):
        monkeypatch.setitem(SPENDINGS, effort, dataclasses.replace(SPENDINGS[effort], seconds=1e-9))
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(30, 40), nn.GELU(), nn.Linear(40, 40)), torch.randn(1, 30)
    quick, usual = (ng.gauge(model, x, scope="point", effort=effort) for effort in ("quick", "default"))
    assert quick.method == usual.method == "jacobian" and "effort=long would narrow it" in " ".join(quick.notes)
    assert usual.log_upper < usual.log_lower + 0.15 and usual.log_upper < quick.log_upper < quick.log_lower + 0.5


def dead_net() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    model[0].bias.data.fill_(-50.0)
    return model


@pytest.mark.parametrize("scope", ["point", "ball:0.1"])
def test_a_network_that_stands_still_has_slope_zero(scope: str) -> None:
    reading = ng.gauge(dead_net(), torch.randn(2, 4, dtype=torch.float64), scope=scope, search=False)
    assert (reading.log_upper, reading.log_lower) == (-math.inf, -math.inf) and reading.evidence is Evidence.PROVED
    assert all(row["log10_upper"] == -math.inf for row in reading.samples)


def test_a_living_sample_beside_a_dead_one_is_told_apart() -> None:
    x = torch.stack([torch.zeros(4), torch.full((4,), 500.0)]).double()
    model = dead_net()
    x[1] *= model[0].weight[0].detach().sign()
    reading = ng.gauge(model, x, scope="point", search=False)
    assert reading.samples[0]["log10_upper"] == -math.inf
    assert 10 ** reading.samples[1]["log10_upper"] == pytest.approx(jacobian_norm(model, x[1:]), rel=1e-6)


def test_cotangents_that_underflow_are_no_zero() -> None:
    class Returned(nn.Module):
        """x + x, the second by way of numbers so large that those on the way back are lost."""

        def forward(self, x: Tensor) -> Tensor:
            y = x
            for factor in (*[1e80] * 5, *[1e-80] * 5):
                y = y * factor
            return x + y

    reading = ng.gauge(Returned(), torch.full((1, 2), 1e-120, dtype=torch.float64), scope="point", search=False)
    assert math.exp(reading.log_upper) >= 2.0 and reading.method == "balanced"  # whose number it is


def test_many_samples_of_a_deep_network_are_left_to_more_effort(monkeypatch) -> None:
    from normgauge.instrument.local import headline

    torch.manual_seed(0)
    layers = [m for _ in range(2) for m in (nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU())]
    model, x = nn.Sequential(*layers), torch.randn(3, 6)
    assert ng.gauge(model, x, scope="ball:0.001", search=False).method == "open units"
    monkeypatch.setattr(headline, "DESCENT_STEP", 1e3)
    reading = ng.gauge(model, x, scope="ball:0.001", search=False)
    assert reading.method == "balanced" and headline.MORE in reading.notes


def test_around_many_samples_multipliers_are_not_tuned_on_the_way_which_is_said(monkeypatch) -> None:
    from normgauge.instrument.local import headline

    torch.manual_seed(0)
    layers = [m for _ in range(2) for m in (nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU())]
    model, x = nn.Sequential(*layers), torch.randn(3, 6)
    tuned = ng.gauge(model, x, scope="ball:0.01")
    monkeypatch.setattr(headline, "TUNED", 0.0)
    reading = ng.gauge(model, x, scope="ball:0.01")
    assert reading.method == tuned.method == "open units" and reading.log_upper >= tuned.log_lower
    assert headline.UNTUNED in reading.notes and headline.UNTUNED not in tuned.notes
    assert headline.UNTUNED not in ng.gauge(model, x[:1], scope="ball:0.01", search=False).notes  # alone


def test_a_ball_is_never_above_all_inputs_in_whatever_order_they_are_read() -> None:
    model, x, radius = random_case(2)  # its ball is so large that the sweep through it gives more than all inputs
    for scopes in (("global", f"ball:{radius!r}"), (f"ball:{radius!r}", "global")):
        found = {reading.scope.kind: reading for reading in ng.readings(model, x, scopes, search=False)}
        assert found["ball"].log_upper == found["global"].log_upper and found["ball"].method == "everywhere"
        assert found["ball"].multipliers == found["global"].multipliers


def test_a_ball_that_falls_back_takes_the_bound_over_all_inputs_where_that_costs_little(monkeypatch) -> None:
    from normgauge.instrument.local import headline

    sweep = headline.swept_sample  # as if no multipliers were found in a ball
    monkeypatch.setattr(headline, "swept_sample", lambda *a: sweep(*a) if math.isinf(a[3]) else None)
    x = torch.randn(2, 8)
    balanced, ball, everywhere = (
        ng.gauge(relu_net(), x, scope=scope, effort=effort, search=False)
        for scope, effort in (("ball:3", "quick"), ("ball:3", "default"), ("global", "default"))
    )
    assert ball.method == "everywhere" and ball.log_upper == everywhere.log_upper < balanced.log_upper
    assert all(row["log10_upper"] <= ball.log10_upper for row in ball.samples)


class LayerBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn, self.ln = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.LayerNorm(16)
        self.up, self.down, self.head = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.bn(self.stem(x)))
        return self.head(h + self.down(torch.relu(self.up(self.ln(h)))))


def rescaled(model: LayerBlock, decades: float) -> LayerBlock:
    """The same function with every channel before BatchNorm and between the ReLU's maps times a factor of its own."""
    t, s = (10 ** (decades * (torch.rand(n, dtype=torch.float64) - shift)) for n, shift in ((16, 0.0), (32, 0.5)))
    with torch.no_grad():
        for tensor in (model.stem.weight, model.stem.bias, model.bn.running_mean):
            tensor.mul_(t.reshape(-1, *[1] * (tensor.ndim - 1)))
        model.bn.running_var.copy_(t**2 * (model.bn.running_var + model.bn.eps) - model.bn.eps)
        model.up.weight.mul_(s[:, None])
        model.up.bias.mul_(s)
        model.down.weight.div_(s)
    return model


def test_multipliers_whose_proof_rounding_spoils_are_drawn_back_not_given_up() -> None:
    x = torch.randn(2, 8, dtype=torch.float64)
    uppers = []
    for decades in (0.0, 3.0):
        torch.manual_seed(0)
        model = LayerBlock().double().eval()
        reading = ng.gauge(rescaled(model, decades), x, scope="global", search=False)
        uppers.append(reading.log10_upper)
        assert reading.method == "open units"
    assert uppers[1] == pytest.approx(uppers[0], abs=0.01)


class Labelled(nn.Module):
    """A network with a second input, one row a sample."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.table = nn.Linear(6, 8), nn.Linear(8, 3), nn.Embedding(2, 8)

    def forward(self, x: Tensor, kind: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x) + self.table(kind)))


def test_inputs_beside_the_measured_one_go_with_their_sample() -> None:
    reading = ng.gauge(Labelled(), {"x": torch.randn(2, 6), "kind": torch.tensor([0, 1])}, scope="point")
    assert reading.evidence is Evidence.PROVED and reading.method == "jacobian"


def test_an_input_for_the_whole_batch_is_not_cut_to_a_sample_that_hides_it() -> None:
    class Shared(nn.Module):
        def forward(self, x: Tensor, scale: Tensor) -> Tensor:
            return x * scale.sum() + 0 * scale[:, None]

    # at 0 the sample alone has the output of its batch, whatever it is multiplied by; the slope is 4
    reading = ng.gauge(Shared(), {"x": torch.zeros(2, 6), "scale": torch.tensor([1.0, 3.0])}, scope="point", input="x")
    assert reading.upper >= 4.0


def test_an_input_that_hides_at_the_sample_is_seen_beside_it() -> None:
    class Hiding(nn.Module):
        def forward(self, x: Tensor, scale: Tensor) -> Tensor:
            return x + (x - 0.25) * (scale.sum() - 1) + 0 * scale[:, None]

    # alone, with its own scale of 1, each sample would have the slope 1 and the same output; in its batch it has 2
    given = {"x": torch.full((2, 6), 0.25), "scale": torch.tensor([1.0, 1.0])}
    assert ng.gauge(Hiding(), given, scope="point", input="x").upper >= 2.0 - 1e-9


def why_not_proved(model: nn.Module, x: Tensor, **asked: object) -> tuple[ng.Reading, str]:
    reading = ng.gauge(model, x, search=False, **asked)
    (why,) = [note.partition("not proved: ")[2] for note in reading.notes if "not proved: " in note]
    return reading, why


class Steep(nn.Module):
    """Attention behind values of any size, in a module of a name."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.mix, self.size = Fn(lambda x: nn.functional.scaled_dot_product_attention(x / size, x / size, x)), size

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(self.size * x)


def test_the_reason_why_a_jacobian_is_not_proved_is_the_true_one(monkeypatch) -> None:
    """A step without a kink is not said to have one, and what is named is a layer of the reading."""
    monkeypatch.setattr("normgauge.instrument.local.sweep.MOST_BACKWARDS", 0)
    torch.manual_seed(0)
    reading, why = why_not_proved(Steep(1e9), torch.randn(1, 3, 4))
    name, _, reason = why.partition(": ")
    assert reading.layer(name).kind == "scaled_dot_product_attention"
    assert reason == "as far as rounding is bounded up to there, too many of its slopes are undecided"
    net, x = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU()), torch.zeros(1, 3)
    with opened(net, x) as session, pytest.raises(NotCarried, match=r"^1: too many units lie on a kink, as far as"):
        swept_ball(session.trace, session.composed(Scope.parse("point")), 0, 0.0, session.native, 1)


def test_no_effort_is_said_to_help_where_none_does() -> None:
    for effort in ("quick", "long"):
        _, why = why_not_proved(nn.Sequential(Steep(1.0), nn.Linear(4, 501)), torch.randn(1, 2, 4), effort=effort)
        assert why == "an output of more than 1,000 numbers a sample: have the model return fewer (of the last token)"


def test_a_sample_that_is_another_network_alone_is_the_reason() -> None:
    class Turned(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sin() if len(x) > 1 else x.cos()

    _, why = why_not_proved(Turned(), torch.randn(2, 3))
    assert why == "alone a sample does not take the steps to the output that it takes in its batch"


def test_a_reason_is_not_one_of_another_scope() -> None:
    """The ball gives up at a step; at the samples something else is why."""
    x = torch.randn(2, 5)
    model = Fn(lambda x: (3 * x).exp() if len(x) > 1 else x.sin())
    point = ng.readings(model, x, ("ball:0.1", "point"))[1]
    assert any("not proved: alone a sample does not" in note for note in point.notes)


def test_a_mask_that_hides_padding_is_named_beside_that_reason() -> None:
    """A model leaves out a mask that hides nothing, as transformers does: a sample without padding runs otherwise."""

    class Masked(nn.Module):
        def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
            return x.sin() if bool(attention_mask.all()) else (x * attention_mask).sin()

    batch = {"x": torch.randn(2, 3), "attention_mask": torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])}
    reading = ng.gauge(Masked(), batch, search=False)
    (why,) = [note for note in reading.notes if "not proved: " in note]
    assert "in its batch (an attention_mask hides padding in it" in why and "samples of one length" in why
