"""A module is a normalizer by what it computes, however it is written; nothing else is taken for one."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.geometry.dynamics.motion import RadialIdentity
from normgauge.instrument.rules.tried import in_training, of_module


class Permuted(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Subclass(nn.LayerNorm):
    pass


class Function(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias)


class ByHand(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(n)), 1e-6

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


class Frozen(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.register_buffer("mean", torch.zeros(n))
        self.register_buffer("variance", torch.ones(n))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.mean, self.variance, self.weight)


class Unit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)


WAYS = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(8), (6, 8), "batch"),
    "LayerNorm": (lambda: nn.LayerNorm(8), (6, 8), "layer"),
    "RMSNorm": (lambda: nn.RMSNorm(8, eps=1e-5), (6, 8), "rms"),
    "GroupNorm": (lambda: nn.GroupNorm(2, 8), (6, 8), "group"),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4), (6, 4, 5, 5), "instance"),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), (6, 4, 5, 5), "response"),
    "subclass": (lambda: Subclass(8), (6, 8), "layer"),
    "permuted": (lambda: Permuted(4), (6, 4, 5, 5), "layer"),
    "function": (lambda: Function(8), (6, 8), "layer"),
    "by hand": (lambda: ByHand(8), (6, 8), "rms"),
    "frozen": (lambda: Frozen(8), (6, 8), "batch"),
    "length": (Unit, (6, 8), "length"),
}


@pytest.mark.parametrize("name", WAYS)
def test_it_is_recognised(name):
    make, shape, kind = WAYS[name]
    assert of_module(make(), torch.randn(*shape)).kind == kind


def test_other_modules_are_no_normalizers():
    assert of_module(nn.ReLU()) is None and of_module(nn.Linear(8, 8), torch.randn(6, 8)) is None


def test_train_mode_is_asked_without_touching_the_module():
    norm = nn.BatchNorm1d(3).eval()
    assert of_module(norm).stored is not None and in_training(norm).stored is None
    assert not norm.training


class Outside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 0.3)


def test_an_epsilon_outside_the_root_is_taken_as_it_is():
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(8, 8), Outside(), nn.Linear(8, 3)).double(), torch.randn(6, 8).double()
    assert of_module(net[1]).where == "outside"
    with RadialIdentity(net, ["1"]) as identity:
        net(x).square().sum().backward()
    found = sum((t * t.grad).sum() for t in (net[0].weight, net[0].bias))
    torch.testing.assert_close(identity.predicted["1"].sum(), found, rtol=1e-6, atol=1e-12)


class Noisy(ByHand):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.dropout(x, 0.5))


def test_trying_a_module_leaves_hooks_and_random_numbers_alone():
    heard: list[int] = []
    module = Noisy(8)
    module.register_forward_hook(lambda *given: heard.append(1))
    before = torch.get_rng_state()
    of_module(module)
    of_module(module, torch.randn(3, 8, generator=torch.Generator().manual_seed(0)))
    assert heard == [] and torch.equal(torch.get_rng_state(), before)


class ByHandFrozen(nn.Module):
    def __init__(self, n: int, eps: float = 1e-3) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(n) + 0.5)
        self.register_buffer("middle", torch.randn(n))
        self.register_buffer("square", torch.rand(n) + 0.1)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.middle) * self.gain / (self.square + self.eps).sqrt()


def test_stored_statistics_used_by_hand_are_each_modules_own():
    one, other = ByHandFrozen(5), ByHandFrozen(5)
    for module in (one, other):
        form = of_module(module)
        assert form.kind == "batch" and form.eps == 1e-3 and form.stored[1] is module.square
        x = torch.randn(3, 5)
        scale, offset = form.affine()
        torch.testing.assert_close((scale * x + offset).float(), module(x))
    reading = ng.gauge(one, torch.randn(4, 5), scope="global", search=False)
    (row,) = reading.layers
    assert row.name == "batch_norm" and row.sigma["eps"] == 1e-3
    exact = (one.gain.double() / (one.square.double() + 1e-3).sqrt()).abs().max().log10().item()
    assert exact <= reading.log10_upper <= exact + 1e-6


@pytest.mark.parametrize("eps", [1e-9, 0.0012345678901])
def test_an_epsilon_whose_digits_are_not_sure_is_not_guessed(eps):
    assert of_module(ByHandFrozen(5, eps)) is None
    reading = ng.gauge(ByHandFrozen(5, eps), torch.randn(4, 5), scope="global", search=False)
    assert reading.layers and all(layer.sigma is None for layer in reading.layers)


def test_a_rule_of_the_users_comes_before_what_was_recognised():
    def twice(step, incoming, ctx):
        return ng.instrument.rules.Transfer((ng.instrument.rules.Gain(ctx.log(2.0)),))

    rules = ng.REGISTRY.extended({ByHandFrozen: twice})
    reading = ng.gauge(ByHandFrozen(5), torch.randn(4, 5), scope="global", search=False, rules=rules)
    assert [layer.rule for layer in reading.layers] == ["user.twice"]


class Scaled(nn.Module):
    """Gains that are made of its tensors: 1 + w as Gemma has it, or one number for all entries."""

    def __init__(self, weight: Tensor, one: float) -> None:
        super().__init__()
        self.weight, self.one = nn.Parameter(weight), one

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * (self.one + self.weight)


def test_gains_that_are_made_of_a_modules_tensors():
    weight = torch.tensor([0.1, 0.2, 0.3])
    torch.testing.assert_close(of_module(Scaled(weight, 1.0)).gamma, 1 + weight)
    assert of_module(Scaled(weight, 0.0)).gamma is not None
    alone, x = Scaled(torch.tensor([3.0]), 0.0), torch.randn(4, 6)
    assert of_module(alone) is None  # how many entries share it only values tell
    torch.testing.assert_close(of_module(alone, x).gamma.float(), torch.full((6,), 3.0))


def test_batch_statistics_by_hand_are_those_of_a_batch_norm():
    def by_hand(x: Tensor) -> Tensor:
        return (x - x.mean(0)) / torch.sqrt(x.var(0, unbiased=False) + 1e-5)

    class Hand(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return by_hand(x)

    x = torch.randn(12, 5)
    for scope in ("point", "global"):
        mine, theirs = (
            ng.gauge(module, x, scope=scope, mode="train", search=False)
            for module in (Hand(), nn.BatchNorm1d(5, affine=False))
        )
        assert mine.log10_upper == pytest.approx(theirs.log10_upper, abs=1e-8)
    assert of_module(Hand(), x).kind == "batch"


def test_stored_statistics_of_a_single_channel_are_told_apart():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("m", torch.tensor([-0.97]))
            self.register_buffer("v", torch.tensor([0.16]))

        def forward(self, x):
            return F.batch_norm(x, self.m, self.v)

    reading = ng.gauge(Own().eval(), torch.randn(4, 1, 3), scope="global", search=False)
    assert 10**reading.log10_upper == pytest.approx((0.16 + 1e-5) ** -0.5)


class Stored(nn.Module):
    """Stored statistics used by hand, and something else far out."""

    def __init__(self, far: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.far = far
        for name in ("weight", "bias", "mean", "variance"):
            self.register_buffer(name, 0.5 + torch.rand(6, generator=torch.Generator().manual_seed(len(name))))

    def forward(self, x: Tensor) -> Tensor:
        return self.far(x, (x - self.mean) * torch.rsqrt(self.variance + 1e-5) * self.weight + self.bias)


FAR = {
    "a ramp": lambda x, y: y + 5 * torch.relu(x - 30),
    "another branch": lambda x, y: torch.where(x > 30, 50 * x, y),
    "a decision": lambda x, y: 100 * x if x.max() > 30 else y,
    "a decision by shape": lambda x, y: y + 5 * torch.relu(x - 30) if len(x) == 5 else y,
    "a rounded quotient": lambda x, y: y + torch.div(x, 40.0, rounding_mode="trunc"),
}


@pytest.mark.parametrize("far", FAR.values(), ids=FAR)
def test_statistics_used_by_hand_are_no_excuse_for_what_else_is_computed(far):
    net, x = Stored(far), torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    reading = ng.gauge(net, x, scope="global", search=False)
    high = torch.full((5, 6), 40.0)
    slope = float((net(high + 1e-3) - net(high - 1e-3)).norm() / (2e-3 * high.norm() / 40.0))
    assert reading.log_upper == math.inf or reading.log_upper >= math.log(slope) - 1e-3


def test_statistics_used_by_hand_are_one_step():
    reading = ng.gauge(Stored(lambda x, y: y), torch.randn(5, 6), scope="global", search=False)
    assert [layer.rule for layer in reading.layers] == ["norm_batch.batch_norm"] and reading.layers[0].sigma


class Configured(nn.Module):
    """Its ε is kept in an object, where it may change."""

    def __init__(self, config: dict[str, float]) -> None:
        super().__init__()
        self.weight, self.config = nn.Parameter(torch.ones(6)), config

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config["eps"])


def test_settings_that_change_unseen_are_looked_at_each_time():
    config = {"eps": 1e-6}
    norm = Configured(config)
    for config["eps"] in (1e-6, 1e-2):
        found = of_module(norm)
        assert found is not None and found.eps == config["eps"]
