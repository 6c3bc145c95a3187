"""`check_rule` catches rules that are wrong, loose or missing, and tells slips apart from refusals."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.errors import NotCovered, RuleError
from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.flow import Gain, Transfer
from normgauge.instrument.testing import check_rule

EVERYWHERE = ("global", "ball:0.1", "point")


def test_a_wrong_rule_is_caught():
    class Twice(nn.Module):
        def forward(self, x):
            return 2 * x

    def once(step, incoming, ctx):
        return Transfer((Gain(ctx.full(0.0)),))

    def twice(step, incoming, ctx):
        return Transfer((Gain(ctx.full(math.log(2))),))

    with pytest.raises(
        AssertionError, match=r"user\.once states a gain for input 0: expected at most 1, got the slope 2"
    ):
        check_rule(Twice, (2, 3), rules=REGISTRY.extended({Twice: once}))
    shares = check_rule(Twice, (2, 3), rules=REGISTRY.extended({Twice: twice}), attained=True)
    assert set(shares) == set(EVERYWHERE) and min(shares.values()) > 0.999
    assert REGISTRY.lookup(Twice) is None  # nothing global changed


def test_a_loose_rule_is_caught_where_it_should_be_attained():
    class Half(nn.Module):
        def forward(self, x):
            return x / 2

    def loose(step, incoming, ctx):
        return Transfer((Gain(ctx.full(0.0)),))

    with pytest.raises(AssertionError, match="at least"):
        check_rule(Half, (2, 3), rules=REGISTRY.extended({Half: loose}), attained=0.9)


def test_an_uncovered_use_is_caught_and_may_be_accepted():
    with pytest.raises(AssertionError, match="a rule that covers this use"):
        check_rule(torch.lgamma, (2, 3))
    assert check_rule(torch.lgamma, (2, 3), unknown=True) == dict.fromkeys(EVERYWHERE, 0.0)


def test_an_understated_displacement_is_caught():
    def still(step, incoming, ctx):
        return Transfer((Gain(ctx.full(0.0)),), radius=ctx.full(1e-3))

    class Same(nn.Module):
        def forward(self, x):
            return x * 1.0

    with pytest.raises(AssertionError, match=r"user\.still states radius: expected at most 0.001, got 0.0999"):
        check_rule(Same, (2, 3), rules=REGISTRY.extended({Same: still}), scopes=("ball:0.1",))


def test_a_formula_that_does_not_end_with_the_gain_is_caught():
    class Double(nn.Module):
        def forward(self, x):
            return 2 * x

    for text, said in (("‖J‖ = 3", "expected the gain 2"), ("about 2", "expected a text that ends with")):

        def rule(step, incoming, ctx, text=text):
            return Transfer((Gain(ctx.log(2.0)),), worked=text)

        with pytest.raises(AssertionError, match=said):
            check_rule(Double, (2, 3), rules=REGISTRY.extended({Double: rule}), scopes=("point",))


class Squash(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 3.0

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * F.softsign(x)


def with_typo(step, incoming, ctx):
    return Transfer((Gain(ctx.log(step.module.sclae)),))


def with_wrong_name(step, incoming, ctx):
    return Transfer((Gain(ctx.log(scale)),))  # noqa: F821


def with_wrong_call(step, incoming, ctx):
    return Transfer((Gain(ctx.full()),))


@pytest.mark.parametrize(
    "run", [lambda r: check_rule(Squash, (2, 3), rules=r), lambda r: gauged(r)], ids=["check", "gauge"]
)
@pytest.mark.parametrize(
    ("rule", "kind"), [(with_typo, AttributeError), (with_wrong_name, NameError), (with_wrong_call, TypeError)]
)
def test_a_slip_in_a_rule_raises_its_own_error(run, rule, kind):
    with pytest.raises(RuleError, match=rf"user\.{rule.__name__} at .*Squash.* raised {kind.__name__}") as caught:
        run(ng.REGISTRY.extended({Squash: rule}))
    assert isinstance(caught.value.__cause__, kind)


def gauged(rules):
    return ng.gauge(
        nn.Sequential(nn.Linear(3, 3), Squash()), torch.ones(2, 3), scope="global", rules=rules, search=False
    )


@pytest.mark.parametrize(
    ("made", "said"), [(None, "got NoneType"), (Transfer(()), "got 0 gains for 1 inputs")], ids=["nothing", "no gains"]
)
def test_a_rule_that_returns_something_else_is_told(made, said):
    def rule(step, incoming, ctx):
        return made

    with pytest.raises(RuleError, match=said):
        gauged(ng.REGISTRY.extended({Squash: rule}))


def refusing(step, incoming, ctx):
    raise NotCovered("only for images")


def saying_unknown(step, incoming, ctx):
    return Transfer((Gain(ctx.full(math.inf)),), unknown="only for images")


@pytest.mark.parametrize("rule", [refusing, saying_unknown])
def test_a_rule_may_refuse(rule):
    reading = gauged(ng.REGISTRY.extended({Squash: rule}))
    assert reading.evidence == "unknown" and reading.log_upper == math.inf
    assert ["only for images" in f.why for f in reading.unknown] == [True]


def test_a_rule_of_the_library_refuses_as_before():
    """What the library's own rule does not cover is unknown, with the error's name, also when a user's rule asks it."""

    def broken(step, incoming, ctx):
        known = ng.REGISTRY.lookup(nn.LayerNorm)
        return known.function(step, incoming, ctx)

    reading = gauged(ng.REGISTRY.extended({Squash: broken}))
    assert "does not cover this use (TypeError" in reading.unknown[0].why
