"""The loop's bound: above every slope that the ranges allow, on random networks; None where it does not apply."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from normgauge.instrument.loop import LoopBound, LoopEffort, bound, loop_bound
from normgauge.instrument.loop.weighted_loop import WeightedLoop
from tests.instrument.loop.loop_nets import built, is_elementwise, random_net, read, steepest_of_slopes

QUICK = LoopEffort(steps=40)


def found(net: nn.Module, x: Tensor, effort: LoopEffort = QUICK) -> LoopBound | None:
    with read(net, x) as (session, parts, folded):
        return loop_bound(session, parts, folded, effort)


def jacobians(net: nn.Module, x: Tensor, count: int) -> float:
    """The largest Jacobian norm at random points."""
    generator = torch.Generator().manual_seed(0)
    best = 0.0
    for k in range(count):
        point = torch.randn(x[:1].shape, generator=generator, dtype=torch.float64) * 2.0 ** (k % 5 - 1)
        jacobian = torch.autograd.functional.jacobian(net, point)
        best = max(best, float(torch.linalg.matrix_norm(jacobian.reshape(-1, point.numel()), 2)))
    return best


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 20, 5))
def test_no_slope_lies_above_it(first: int) -> None:
    for seed in range(first, first + 5):
        net, x = random_net(seed)
        with read(net, x) as (session, parts, folded):
            proved = loop_bound(session, parts, folded, QUICK)
            mid = built(session, parts)
        assert proved is not None and mid is not None, seed
        assert jacobians(net, x, 20) <= math.exp(proved.total), seed
        if is_elementwise(mid):
            assert steepest_of_slopes(mid, 60) <= math.exp(proved.total), seed


@pytest.mark.parametrize("seed", [6, 18])
def test_it_is_met_by_slopes_inside_the_ranges(seed: int) -> None:
    net, x = random_net(seed)
    with read(net, x) as (session, parts, folded):
        proved = loop_bound(session, parts, folded, LoopEffort(steps=150))
        mid = built(session, parts)
    assert proved is not None and mid is not None
    assert 0.99 * math.exp(proved.total) <= steepest_of_slopes(mid, 200) <= math.exp(proved.total)


def test_random_starts_prove_what_the_whole_matrix_does(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = random_net(7)
    dense = found(net, x)
    monkeypatch.setattr(bound, "DENSE_LIMIT", 0)
    random = found(net, x)
    assert dense is not None and random is not None
    assert dense.chance == 0.0 < random.chance <= 1e-8
    assert torch.equal(dense.weights, random.weights)
    assert dense.log_norm - 1e-6 <= random.log_norm <= dense.log_norm + 0.06


def test_a_chance_is_counted_where_the_bound_is_the_smaller_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound, "DENSE_LIMIT", 0)
    net, x = random_net(7)
    with read(net, x) as (session, parts, folded):
        before = session.failure_probability
        proved = loop_bound(session, parts, folded, QUICK)
        assert proved is not None and proved.total < folded.total
        assert session.failure_probability == pytest.approx(before + proved.chance)


def test_the_norm_is_that_of_the_dense_matrix_for_any_weights() -> None:
    net, x = random_net(4)
    with read(net, x) as (session, parts, _):
        mid = built(session, parts)
    assert mid is not None
    generator = torch.Generator().manual_seed(1)
    for scale in (0.0, 1.0, 4.0):
        start = bound.first_weights(mid)
        theta = start + scale * torch.randn(start.shape, generator=generator, dtype=torch.float64)
        truth = float(torch.linalg.matrix_norm(WeightedLoop(mid, theta).push(torch.eye(sum(mid.entered)).double()), 2))
        proved = bound.proved_loop(mid, theta, QUICK)
        assert proved is not None
        assert truth <= math.exp(proved.log_norm) <= truth * (1 + 1e-6)


def test_it_is_the_same_twice_and_leaves_the_model_and_the_random_numbers_alone() -> None:
    net, x = random_net(1)
    before = {name: t.clone() for name, t in net.state_dict().items()}
    state = torch.random.get_rng_state()
    first, second = found(net, x), found(net, x)
    assert first is not None and second is not None and first.total == second.total
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[name], t) for name, t in net.state_dict().items())


class Mixing(nn.Module):
    """Samples that see each other's mean."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x - x.mean(0, keepdim=True)))


class Counting(nn.Module):
    """A scale that depends on how many samples there are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x)) * float(len(x))


class Product(nn.Module):
    """Two bounded branches multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.layer(x)) * torch.tanh(self.other(x))


@pytest.mark.parametrize("make", [Mixing, Counting, Product, lambda: nn.Linear(4, 4)])
def test_what_it_does_not_cover_gives_none(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    assert found(make().double().eval(), torch.randn(7, 4).double()) is None


@pytest.mark.parametrize("shape", [(4,), (1, 4), (9, 4)])
def test_one_vector_and_any_number_of_samples_give_the_same(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    proved, usual = found(net, torch.randn(shape).double()), found(net, torch.randn(2, 4).double())
    assert proved is not None and usual is not None
    assert proved.total == pytest.approx(usual.total, abs=1e-2)


@pytest.mark.parametrize("norm", [lambda: nn.LayerNorm(6), lambda: nn.Softmax(-1)])
def test_a_step_of_which_only_a_constant_is_known_has_one_weight(norm: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), norm(), nn.Linear(6, 3)).double()
    x = torch.randn(2, 4).double()
    with read(net, x) as (session, parts, folded):
        mid = built(session, parts)
        proved = loop_bound(session, parts, folded, QUICK)
    assert mid is not None and [node.groups for node in mid.uncertain] == [6, 1]
    assert proved is not None and jacobians(net, x, 20) <= math.exp(proved.total)


def test_the_seed_of_a_proof_does_not_see_the_order_of_sums() -> None:
    theta = torch.arange(3.0, dtype=torch.float64)
    image = torch.randn(40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def seed(image: Tensor, theta: Tensor) -> int:
        return bound.loop_seed(SimpleNamespace(entered=[4], samples=1, push=lambda _: image[None]), theta)  # type: ignore[arg-type]

    assert seed(image * (1 + 4e-15) - 1e-16, theta) == seed(image, theta)
    assert len({seed(image, theta), seed(image * (1 + 1e-4), theta), seed(image, theta + 1e-15)}) == 3
    assert seed(0 * image, theta) == seed(-0 * image, theta)
