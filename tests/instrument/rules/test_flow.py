"""Arithmetic on what is known of a tensor: sums of slopes, infinities, rows of samples, facts that follow."""

from __future__ import annotations

import math

import pytest
import torch

from normgauge.core.bound import Scope
from normgauge.instrument.rules.flow import (
    INF,
    Context,
    Flow,
    Gain,
    SamplesMixed,
    Transfer,
    anchored_flow,
    apply_gain,
    chain_gains,
    endless,
    join_logs,
    settle_flow,
)


def context(samples: int = 1, scope: str = "ball:1") -> Context:
    return Context(Scope.parse(scope), samples)


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("disjoint", [False, True])
def test_slopes_add_or_add_in_squares(disjoint):
    slopes = [vector(2.0, 0.0), vector(3.0, 1e-200), vector(0.5, 0.0)]
    power = 2 if disjoint else 1
    wanted = [sum(float(s[i]) ** power for s in slopes) ** (1 / power) for i in range(2)]
    found = join_logs([s.log() for s in slopes], disjoint)
    assert math.log(wanted[0]) <= float(found[0]) <= math.log(wanted[0]) + 1e-9
    assert float(found[1]) == pytest.approx(math.log(1e-200))  # its square is below every float
    assert join_logs([vector(-INF), vector(-INF)], disjoint).tolist() == [-INF]
    assert join_logs([vector(-INF), vector(INF)], disjoint).tolist() == [INF]


def test_no_bound_absorbs_everything():
    assert apply_gain(vector(INF, -INF, 0.0, math.log(2)), vector(0.0, INF, INF, 3.0)).tolist() == [INF, INF, INF, 6.0]
    assert chain_gains(vector(INF, -INF, 1.0), vector(-INF, INF, 2.0)).tolist() == [INF, INF, 3.0]


def test_rows_of_samples_on_any_axis():
    x = torch.arange(24.0).reshape(2, 3, 4)
    assert context().rows(x, 0).equal(x.double().reshape(1, 6, 4))
    assert context(2).rows(x, 0).equal(x.double())
    assert context(3).rows(x, 1)[1].equal(x[:, 1].double())
    assert context(4).rows(x, -1)[3].equal(x[..., 3].double().reshape(6, 1))  # one entry a row
    assert context().rows(torch.tensor([3 + 4j]), 0).item() == 5
    assert context(2).rows(torch.zeros(0, 3), 0).shape == (2, 0, 0)


@pytest.mark.parametrize(("shape", "said"), [((), "one number"), ((5, 3), "does not hold 2 samples")])
def test_an_axis_without_the_samples_is_refused(shape, said):
    with pytest.raises(SamplesMixed, match=said):
        context(2).rows(torch.zeros(shape), 0)


def test_a_step_along_the_samples_is_refused():
    flow = settled(torch.zeros(2, 3), context(2))
    context(2).keep_apart(flow, torch.zeros(2, 3), (1, -1), "a sum")
    with pytest.raises(SamplesMixed, match="a sum over the samples"):
        context(2).keep_apart(flow, torch.zeros(2, 3), (-2,), "a sum")


def settled(centre: torch.Tensor, ctx: Context, **known: torch.Tensor) -> Flow:
    before = anchored_flow(centre, ctx.full(0.0), ctx.full(1.0), ctx.full(0.5), 0, ctx)
    return settle_flow(centre, Transfer((Gain(ctx.full(0.0)),), **known), (before,), ctx)


def test_what_moves_within_its_radius_keeps_the_facts():
    torch.manual_seed(0)
    centre, ctx = torch.randn(2, 3, 4).double(), context(2)
    flow = settled(centre, ctx, row=ctx.full(0.5))
    for _ in range(50):
        change = torch.randn(2, 3, 4).double()
        change *= 0.5 / change.norm(dim=2, keepdim=True)
        change *= (1 / change.flatten(1).norm(dim=1).clamp_min(1.0))[:, None, None]
        moved = ctx.rows(centre + change, 0)
        assert bool((moved.norm(dim=2).amax(1) <= flow.norm).all())
        assert bool((moved.amin((1, 2)) >= flow.low).all() and (moved.amax((1, 2)) <= flow.high).all())
    assert float(flow.high.max()) <= float(centre.max()) + 0.5 + 1e-9


def test_stated_facts_tighten_and_never_loosen():
    ctx, centre = context(), torch.ones(1, 4).double()
    plain, stated = settled(centre, ctx), settled(centre, ctx, radius=ctx.full(0.1), high=ctx.full(1.05))
    assert float(stated.radius) == pytest.approx(0.1) and float(stated.high) == pytest.approx(1.05)
    assert settled(centre, ctx, radius=ctx.full(9.0)).radius.equal(plain.radius)


def test_an_infinite_gain_says_whether_that_is_proved():
    finite, infinite = (Transfer((Gain(vector(log)),)) for log in (1.0, INF))
    assert endless(finite, "why", True) is finite
    assert endless(infinite, "why", True).unbounded == "why" == endless(infinite, "why", False).no_bound
