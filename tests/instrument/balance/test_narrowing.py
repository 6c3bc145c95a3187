"""Radii in balls: the same in every gauge, and never below how far a value moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Scope
from normgauge.core.compare import compare_readings
from normgauge.instrument.balance import WeightedRadii
from normgauge.instrument.compose import Composition, compose
from normgauge.instrument.rules.flow import Flow
from normgauge.instrument.session import Session, opened
from normgauge.instrument.testing.audit import facts_broken
from normgauge.instrument.trace.step import Step
from normgauge.render.difference import difference_verdict
from tests.conftest import balanced_alone
from tests.instrument.balance.gauges import (
    CHANGES,
    EVERY,
    TokenNet,
    changed,
    factors,
    gauge_net,
    norm_shift,
    query_key,
    write,
)

SAME = 0.01  # decades; the rescalings move single norms by four, and the search ends within a few thousandths
BALLS = ("ball:0.01", "ball:0.1", "ball:0.5")


def balanced(net: nn.Module, x: Tensor, scopes: tuple[str, ...] = BALLS) -> list[float]:
    return [reading.log10_balanced for reading in ng.readings(net, x, scopes, search=False, effort="quick")]


@pytest.mark.parametrize(("norm", "change"), EVERY)
def test_the_balanced_bound_of_a_ball_is_the_same_in_every_gauge(norm: str, change: Callable[[Any], None]) -> None:
    net, x = gauge_net(norm)
    assert balanced(changed(net, change, x), x) == pytest.approx(balanced(net, x), abs=SAME)


def test_a_common_factor_of_queries_and_keys_moves_no_ball() -> None:
    torch.manual_seed(0)
    net, x = TokenNet().double().eval(), torch.randn(3, 4, 6, dtype=torch.float64)
    assert balanced(changed(net, query_key, x), x) == pytest.approx(balanced(net, x), abs=SAME)


@pytest.mark.parametrize("scope", ["point", "global"])
def test_a_row_added_under_the_groups_of_a_normalizer_moves_no_bound(scope: str) -> None:
    net, x = gauge_net("group")
    assert balanced(changed(net, norm_shift, x), x, (scope,)) == pytest.approx(balanced(net, x, (scope,)), abs=SAME)


class PreNorm(nn.Module):
    """A residual stream that LayerNorms alone read: its mean counts nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.up, self.down, self.head = (nn.Linear(i, o) for i, o in ((6, 8), (8, 8), (8, 8), (8, 3)))
        self.norm, self.last = nn.LayerNorm(8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        return self.head(self.last(h + self.down(torch.relu(self.up(self.norm(h))))))


def stream_mean(net: Any) -> None:
    """One row added to all rows of every map that writes to the stream."""
    for writer in (net.stem, net.down):
        writer.weight.add_(torch.arange(writer.weight.shape[1]).double())


def test_the_mean_of_a_stream_that_only_layer_norms_read_moves_no_bound() -> None:
    torch.manual_seed(0)
    net, x = PreNorm().double().eval(), torch.randn(5, 6, dtype=torch.float64)
    scopes = ("point", "ball:0.1", "global")
    assert balanced(changed(net, stream_mean, x), x, scopes) == pytest.approx(balanced(net, x, scopes), abs=SAME)


def test_a_stream_that_is_read_with_its_mean_keeps_it() -> None:
    """The head reads the stream itself: a row added to all rows counts, and the slopes found say so."""

    class Read(PreNorm):
        def forward(self, x: Tensor) -> Tensor:
            h = self.stem(x)
            return h + self.down(torch.relu(self.up(self.norm(h))))

    torch.manual_seed(0)
    net, x = Read().double().eval(), torch.randn(5, 6, dtype=torch.float64)
    with torch.no_grad():
        stream_mean(net)
    for reading in ng.readings(net, x, ("point", "ball:0.1", "global")):
        assert 1 < reading.log10_lower <= reading.log10_upper <= reading.log10_balanced


class Recorded(WeightedRadii):
    """Keeps what rules were told of each value that reaches them, and whether its mean counts."""

    def __init__(self, parts: Composition, theta: Tensor | None) -> None:
        super().__init__(parts, theta, {})
        self.told: dict[int, list[tuple[bool, Flow]]] = {}

    def seen(self, step: Step, incoming: tuple[Flow, ...]) -> tuple[Flow, ...]:
        flows = super().seen(step, incoming)
        for value, flow, own in zip(step.inputs, flows, incoming, strict=True):
            means = flow is own or not self.weighting.means_unread.get(value.index)
            self.told.setdefault(value.index, []).append((means, flow))
        return flows


def far_points(session: Session, source: Tensor, radius: float) -> Iterator[Tensor]:
    """Every sample moved by ``radius``: along the steepest directions at the samples, and others."""
    jacobian = torch.autograd.functional.jacobian(lambda x: session.function()(x).sum(0), source)
    steepest = torch.linalg.svd(jacobian.movedim(1, 0), full_matrices=False).Vh
    for way in (*steepest.movedim(1, 0), *torch.randn(8, *source.shape, dtype=torch.float64)):
        yield source + radius * (1 - 1e-9) * way / torch.linalg.vector_norm(way, dim=1, keepdim=True)


def moved_by(way: Tensor, means: bool, parts: int) -> Tensor:
    """How far the values of each sample moved, their means apart where these do not count."""
    blocks = way.unflatten(1, (parts, -1))
    return torch.linalg.vector_norm(way if means else (blocks - blocks.mean(2, keepdim=True)).flatten(1), dim=1)


def several_gauges(name: str) -> Iterator[tuple[nn.Module, Tensor]]:
    """A network as it is and in other gauges, each with weights of its own."""
    if name == "stream":
        torch.manual_seed(0)
        net, x = PreNorm().double().eval(), torch.randn(5, 6, dtype=torch.float64)
        yield from ((net, x), (changed(net, stream_mean, x), x))
    else:
        for seed, change in enumerate((lambda net: None, *CHANGES[name])):
            net, x = gauge_net(name, seed)
            yield changed(net, change, x), x


@pytest.mark.parametrize("radius", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("name", [*CHANGES, "stream"])
def test_no_value_moves_farther_than_rules_are_told(name: str, radius: float) -> None:
    for net, x in several_gauges(name):
        with opened(net, x) as session:
            plain = compose(
                session.trace, session.options.registry, session.composed(Scope.parse(f"ball:{radius}")).ctx
            )
            theta = session.bounds(session.composed(Scope.parse("point")))[1].theta
            other = torch.zeros(WeightedRadii(plain, None, {}).weighting.free) if theta is None else theta
            noise = torch.randn_like(other)
            for weights in (theta, other + noise, other + 2 * noise + 5, other - 2 * noise - 5):  # all of them prove
                radii = Recorded(plain, weights)
                parts = compose(session.trace, session.options.registry, plain.ctx, None, radii)
                for point in far_points(session, x, radius):
                    there = session.retrace(point)
                    assert not [*facts_broken(parts, there)]
                    for step, new in zip(parts.trace.steps, there.steps, strict=True):
                        index, way = step.outputs[0].index, new.outputs[0].tensor - step.outputs[0].tensor
                        for means, flow in radii.told.get(index, ()):
                            length = moved_by(way, means, 4 if name == "group" else 1)
                            assert bool((length <= flow.radius).all()) and bool((length <= flow.row).all())


def test_behind_one_centred_map_the_radius_is_attained() -> None:
    """‖PW‖·R, where the rules' own is ‖W‖·R."""
    net, x = gauge_net("layer")
    with opened(changed(net, norm_shift, x), x) as session:
        parts = session.composed(Scope.parse("ball:0.1"))
        plain = compose(session.trace, session.options.registry, parts.ctx)
        radii = Recorded(plain, parts.radius_weights)
        compose(session.trace, session.options.registry, parts.ctx, None, radii)
    first = parts.trace.steps[0].outputs[0].index
    weight = net.stem.weight.detach()
    size = 0.1 * float(torch.linalg.matrix_norm(weight - weight.mean(0), 2))
    [(means, told)] = radii.told[first]
    assert not means
    assert size <= float(told.radius[0]) <= 1.01 * size
    assert float(plain.flows[first].radius[0]) > 10 * size
    assert float(parts.flows[first].radius[0]) == pytest.approx(float(plain.flows[first].radius[0]))  # W itself moves


@pytest.mark.parametrize("norm", ["layer", "rms", "group"])
def test_slopes_found_stay_below_in_every_gauge(norm: str) -> None:
    for place, change in enumerate(CHANGES[norm]):
        net, x = gauge_net(norm, seed=place)
        reading = ng.gauge(changed(net, change, x), x, scope="ball:0.1", effort="quick")
        assert reading.log10_lower <= reading.log10_upper <= reading.log10_balanced
        way = torch.randn(200, *x.shape, dtype=torch.float64)
        near = x + 0.1 * (1 - 1e-9) * way / torch.linalg.vector_norm(way, dim=2, keepdim=True)
        jacobians = torch.autograd.functional.jacobian(lambda x, f=net: f(x).sum(0), near.flatten(0, 1)).movedim(1, 0)
        assert math.log10(float(torch.linalg.matrix_norm(jacobians, 2).max())) < reading.log10_upper


def test_a_network_whose_gains_know_no_radius_is_composed_once() -> None:
    net, x = gauge_net("batch")
    with opened(net, x) as session:
        assert session.composed(Scope.parse("ball:0.1")).radius_weights is None
    net, x = gauge_net("layer")
    with opened(net, x) as session:
        assert session.composed(Scope.parse("ball:0.1")).radius_weights is not None


def test_diff_sees_another_gauge_in_a_ball() -> None:
    net, x = gauge_net("layer")
    with balanced_alone():
        one, two = (ng.gauge(n, x, "ball:0.1", search=False) for n in (net, changed(net, norm_shift, x)))
    found = compare_readings(one, two)
    assert found.other_gauge and "The same capacity in another gauge" in " ".join(difference_verdict(found))


def test_a_network_too_wide_for_a_long_descent_keeps_its_bound_under_layer_norm() -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Linear(300, 300), nn.LayerNorm(300), nn.ReLU())]
    net, x = nn.Sequential(*layers, nn.Linear(300, 5)).double().eval(), torch.randn(2, 300, dtype=torch.float64)

    def both(twin: Any) -> None:
        write(twin[4], factors(300))
        twin[6].weight.div_(factors(300))
        twin[3].weight.add_(factors(300))

    assert balanced(changed(net, both, x), x) == pytest.approx(balanced(net, x), abs=SAME)
