"""The rules' answers folded over the graph."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Scope
from normgauge.core.errors import RuleError, UnknownOpError
from normgauge.core.spelled import LN10
from normgauge.instrument.compose import has_diverged, mixing_step, own_gain
from normgauge.instrument.measure import gauge, readings
from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.flow import Context, Flow, Gain, Transfer
from normgauge.instrument.session import opened
from normgauge.instrument.trace.step import Step
from tests.instrument.trace.nets import Net, batch


@pytest.mark.parametrize("function", [lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2])), lambda x: x * x.prod()])
def test_one_number_for_all_samples_is_no_crash(function: Callable[[Tensor], Tensor]) -> None:
    for scope in ("point", "ball:0.1", "global"):
        ng.gauge(Net(function), batch(), scope=scope, search=False)


def double_it(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Twice.

    Holds:  here.
    """
    return Transfer((Gain(ctx.log(2.0)),))


def test_unknown_ops_user_rules_and_strict() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.special.i0e(x) + 0.5 * torch.special.erfcx(x.abs())  # steeper than 1.57 nowhere

    model = nn.Sequential(nn.Linear(3, 3), Odd())
    x = torch.rand(2, 3)
    reading = gauge(model, x, scope="global", search=False)
    assert reading.log_upper == math.inf and {f.name for f in reading.unknown} == {"1.special_i0e", "1.special_erfcx"}
    with pytest.raises(UnknownOpError, match=r"special_i0e.*special_erfcx"):
        gauge(model, x, scope="global", strict=True)
    known = gauge(model, x, scope="global", rules=REGISTRY.extended({Odd: double_it}), strict=True, search=False)
    assert math.isfinite(known.log_upper) and REGISTRY.lookup(Odd) is None


class Product(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x


def test_products_are_unbounded_globally_and_fine_elsewhere() -> None:
    model, x = Product(), torch.randn(3, 4)
    point, ball, everywhere = readings(model, x, ("point", "ball:0.1", "global"), search=False)
    assert everywhere.log_upper == math.inf and str(everywhere.evidence) == "proved"
    assert everywhere.unbounded and not everywhere.unknown
    assert math.exp(point.log_upper) == pytest.approx(2 * float(x.abs().max()), rel=1e-6)
    assert ball.log_upper > point.log_upper
    gauge(model, x, scope="global", strict=True, search=False)


@pytest.mark.parametrize("scale", [1e25, 1e-30])
def test_extreme_weights(scale: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(12)))
    with torch.no_grad():
        for layer in model:
            layer.weight *= scale
    reading = gauge(model, torch.randn(2, 3), scope="global", search=False)
    assert reading.log_upper / LN10 == pytest.approx(12 * math.log10(scale), abs=12)


@pytest.mark.parametrize("scope", ["point", "global"])
def test_diverged_networks_are_infinite_never_finite(scope: str) -> None:
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(12)), nn.LayerNorm(4)).double()
    with torch.no_grad():
        for layer in model[:-1]:
            layer.weight.fill_(1e40)
    reading = gauge(model, torch.ones(2, 4, dtype=torch.float64), scope=scope, search=False)
    assert reading.log_upper == math.inf and "diverged" in reading.unknown[0].why


class Diamond(nn.Module):
    """x → 2x → (3·, 5·) → sum → 7·: two ways from the input to the output, 2·3·7 and 2·5·7."""

    def forward(self, x: Tensor) -> Tensor:
        h = 2 * x
        return 7 * (3 * h + 5 * h)


def test_what_lies_behind_a_value_is_the_sum_over_its_ways_to_the_output() -> None:
    with opened(Diamond(), batch()) as session:
        parts = session.composed(Scope.parse("global"))
    onward = parts.to_output()
    ways = {value.index: 0.0 for step in parts.trace.steps for value in (*step.inputs, *step.outputs)}

    def walk(index: int, factor: float) -> None:
        """Every way from the output back, brute force."""
        ways[index] += factor
        for step in parts.trace.steps:
            for out in step.outputs:
                if out.index == index:
                    for value, gain in zip(step.inputs, parts.transfers[index].gains, strict=True):
                        walk(value.index, factor * math.exp(float(gain.log[0])))

    walk(parts.trace.output.index, 1.0)
    assert len(ways) == 6 and ways[parts.trace.sources[0].index] == pytest.approx(112)
    for index, total in ways.items():
        assert float(onward[index].exp()[0]) == pytest.approx(total)
    assert float(parts.log_upper.exp()[0]) == pytest.approx(112)


def test_diverged_means_nan_or_plus_infinity_but_no_mask() -> None:
    assert has_diverged(torch.tensor([1.0, math.nan])) and has_diverged(torch.tensor([math.inf]))
    assert has_diverged(torch.tensor([complex(0, math.inf)]))
    assert not has_diverged(torch.tensor([-math.inf, 2.0])) and not has_diverged(torch.empty(0))
    assert not has_diverged(torch.tensor([2**62]))


def test_a_layers_own_constant_is_its_largest_gain() -> None:
    one = Gain(torch.tensor([0.5, 2.0], dtype=torch.float64), lo=-1.0)
    two = Gain(torch.tensor([3.0, 1.0], dtype=torch.float64), lo=0.0)
    assert (own_gain(Transfer((one,))).lo, own_gain(Transfer((one,))).hi) == (-1.0, 2.0)
    assert (own_gain(Transfer((one, two))).lo, own_gain(Transfer((one, two))).hi) == (-math.inf, 3.0)


class Halved(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda ctx: 0.5, "expected a Transfer with one gain for each input, got float"),
        (lambda ctx: Transfer((Gain(ctx.log(0.5)),) * 2), "got 2 gains for 1 inputs"),
        (lambda ctx: ctx.lag(0.5), "raised AttributeError: .*lag.*Mend the rule"),
    ],
    ids=["no transfer", "two gains", "a slip"],
)
def test_a_mistake_in_a_users_rule_is_told_with_its_place(answer, words) -> None:
    rules = REGISTRY.extended({Halved: lambda step, incoming, ctx: answer(ctx)})
    with pytest.raises(RuleError, match=words):
        gauge(nn.Sequential(Halved()), batch(), scope="global", rules=rules, search=False)


def test_a_rule_that_gives_no_number_is_unknown() -> None:
    rules = REGISTRY.extended({Halved: lambda step, incoming, ctx: Transfer((Gain(ctx.full(math.nan)),))})
    reading = gauge(Halved(), batch(), scope="global", rules=rules, search=False)
    assert reading.log_upper == math.inf and "gave no number here" in reading.unknown[0].why


def test_a_sample_that_moves_with_others_is_seen_at_its_step() -> None:
    with opened(nn.Sequential(nn.Tanh(), nn.Tanh()).double(), batch()) as session:
        parts = session.composed(Scope.parse("point"))
    moved = torch.tensor([True, False, False])
    first, second = parts.trace.steps
    same = [(step, [out.tensor.clone() for out in step.outputs]) for step in (first, second)]
    assert mixing_step(parts, same, moved) is None
    same[1][1][0][0] += 1.0  # the sample that was moved
    assert mixing_step(parts, same, moved) is None
    same[1][1][0][2] += 1e-6
    assert mixing_step(parts, same, moved) is second
