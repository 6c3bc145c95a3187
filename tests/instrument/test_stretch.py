"""What each layer makes of the steepest direction."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Scope
from normgauge.core.spelled import LN10
from normgauge.instrument.measure import gauge
from normgauge.instrument.session import opened
from normgauge.instrument.stretch import reached, slacks, steepest_direction
from normgauge.render.verdict import verdict_line
from tests.fuzz.nets import make_case
from tests.instrument.claimed_rules import Tenth, Triple, claimed, rule_of

pytestmark = pytest.mark.usefixtures("brief_search")


def test_a_slope_above_a_layers_bound_refutes_though_the_total_holds():
    model = nn.Sequential(Triple(), Tenth())
    rules = claimed(triple=rule_of(2.0), tenth=rule_of(10.0))
    point, ball, everywhere = ng.readings(model, torch.randn(3, 4), rules=rules)
    for reading in (ball, everywhere):
        assert reading.evidence is ng.Evidence.REFUTED and reading.log_upper == math.inf
        assert "a slope of 3 was found at the output of 0, where at most 2 had been computed" in verdict_line(reading)
    assert point.evidence is ng.Evidence.COMPUTED  # followed over a short way, which a point has no room for


def test_rounding_on_the_way_refutes_nothing():
    """Changes of 1e-6 on values of 1e9: what a layer seems to reach is rounding, and is not told."""

    class Far(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.far = nn.Linear(4, 4)
            self.far.weight.data, self.far.bias.data = torch.eye(4), torch.full((4,), 1e9)

        def forward(self, x: Tensor) -> Tensor:
            return self.far(x).tanh() + x

    for scope in ("ball:0.1", "global"):
        reading = ng.gauge(Far(), torch.linspace(-2, 2, 12).reshape(3, 4), scope=scope)
        assert reading.evidence is ng.Evidence.PROVED and reading.layer("far").log_reached is None


def test_slacks_add_up_to_the_gap_of_a_chain() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    reading = gauge(model, torch.randn(4, 8, dtype=torch.float64), scope="point", search=False)
    gap = (reading.log_capacity - reading.log_lower) / LN10
    assert sum(r.log_slack or 0 for r in reading.layers) / LN10 == pytest.approx(gap, abs=0.02)
    owner = reading.gap_owner()
    assert owner is not None and owner.log_slack == max(r.log_slack or 0 for r in reading.layers)


def test_the_steepest_direction_is_the_top_singular_vector() -> None:
    matrix = torch.diag(torch.tensor([1.0, 9.0, 2.0], dtype=torch.float64)) + 0.1
    found = steepest_direction(lambda x: x @ matrix.T, torch.ones(1, 3, dtype=torch.float64), 1e-6)
    top = torch.linalg.svd(matrix).Vh[0]
    assert float(found.norm()) == pytest.approx(1.0) and abs(float(found[0] @ top)) > 0.999
    assert steepest_direction(lambda x: 0 * x, torch.ones(1, 3, dtype=torch.float64), 1e-6).eq(0).all()


def test_how_much_a_direction_has_grown_is_told_at_every_step() -> None:
    model, x = nn.Sequential(Triple(), Tenth()), torch.ones(1, 4, dtype=torch.float64)
    with opened(model, x) as session:
        found = reached(session.retrace(x), session.retrace(x + 1e-3))
        bound = session.bounds(session.composed(Scope.parse("global")))[1]
        slack = slacks(bound, session.trace, session.retrace(x), session.retrace(x + 1e-3))
    assert [math.exp(log) for log in found.values()] == pytest.approx([3.0, 0.3])
    assert list(slack.values()) == pytest.approx([0.0, 0.0], abs=1e-6)


class Words(nn.Module):
    """A small language model: embedded tokens, attention, a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.norm, self.head = nn.Embedding(20, 8), nn.LayerNorm(8), nn.Linear(8, 5)
        self.first = nn.Linear(8, 8)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.norm(self.table(ids))
        mixed = torch.nn.functional.scaled_dot_product_attention(h, h, self.first(h))
        return self.head(h + mixed)


@pytest.mark.parametrize("shape", [(1, 6), (3, 6)])
def test_every_layer_behind_an_embedding_has_its_slack_and_reach(shape: tuple[int, int]):
    ids = torch.randint(20, shape, generator=torch.Generator().manual_seed(0))
    reading = ng.gauge(Words(), ids, scope="point")
    assert len(reading.samples) == shape[0] and reading.method == "jacobian"
    assert all(layer.log_slack is not None and layer.log_reached is not None for layer in reading.layers)
    assert reading.layer("head").log_reached == pytest.approx(reading.log_lower, abs=1e-4)
    worst = max(range(shape[0]), key=lambda i: reading.samples[i]["log10_lower"])
    one = ng.gauge(Words(), ids[worst : worst + 1], scope="point")
    for layer in one.layers:  # the same walk, whoever else is in the batch
        assert layer.log_reached == pytest.approx(reading.layer(layer.name).log_reached, abs=1e-5)


def test_the_headline_of_tokens_is_the_jacobian_from_the_embedding_on():
    ids, model = torch.tensor([[3, 1, 4, 1, 5]]), Words().double()

    def onward(h: Tensor) -> Tensor:
        with torch.no_grad():
            given = model.table(ids)
        keep = model.table.forward
        model.table.forward = lambda _: given + h
        try:
            return model(ids)
        finally:
            model.table.forward = keep

    jacobian = torch.autograd.functional.jacobian(onward, torch.zeros(1, 5, 8, dtype=torch.float64)).reshape(25, 40)
    reading = ng.gauge(model, ids, scope="point")
    assert math.exp(reading.log_upper) == pytest.approx(float(torch.linalg.matrix_norm(jacobian, 2)), rel=1e-6)


def test_a_bag_of_words_is_proved_word_by_word():
    torch.manual_seed(0)

    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.last = nn.Embedding(20, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))

        def forward(self, ids: Tensor) -> Tensor:
            return self.last(self.table(ids).mean(1))

    reading = ng.gauge(Bag(), torch.randint(20, (3, 6)), scope="point")
    assert reading.evidence is ng.Evidence.PROVED and reading.method == "jacobian"
    assert reading.log_upper - reading.log_lower < 1e-6


def test_what_a_normalizer_of_one_number_leaves_is_rounding() -> None:
    """Less its own mean a number is 0 up to rounding, whose changes refute nothing (met by the fuzz)."""
    case = make_case(21_000_317)
    reading = ng.gauge(case.model, case.batch, scope="global", mode=case.mode, search=False)
    assert str(reading.evidence) == "proved"


@pytest.mark.parametrize("seed", range(4))
def test_groups_of_one_entry_behind_a_steep_layer_refute_nothing(seed: int) -> None:
    """γ/√ε times the last digits of what is cancelled: 1000 times more than what the step reads errs by."""

    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steep, self.single = nn.RMSNorm(3, eps=1e-8), nn.GroupNorm(3, 3)
            self.first, self.last = nn.Linear(1, 3, bias=False), nn.Linear(3, 2, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            y = self.steep(self.first(x))
            return self.last(self.single(y.clamp(0, 6)) - y)

    torch.manual_seed(seed)
    model = Beside().double()
    model.single.weight.data.normal_().mul_(3)
    model.steep.weight.data.normal_().mul_(3)
    for x in (torch.zeros(2, 1), torch.randn(2, 1)):
        reading = ng.gauge(model, x.double(), scope="ball:0.05", search=False)
        assert reading.evidence is ng.Evidence.PROVED


def test_a_step_claimed_to_be_constant_is_refuted_all_the_same() -> None:
    """What a step makes of the last digits of its input is no excuse for what it makes of the input."""
    model = nn.Sequential(Triple(), Tenth())
    rules = claimed(triple=rule_of(1e-6), tenth=rule_of(1e6))
    reading = ng.gauge(model, torch.randn(3, 4), scope="global", rules=rules)
    assert reading.evidence is ng.Evidence.REFUTED
