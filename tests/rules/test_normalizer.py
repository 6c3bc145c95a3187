"""One normalizer, twelve ways to write it: every part that should know it does, asked through what it tells users."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.dynamics.motion import RadialIdentity
from normgauge.monitor.layers import find_layers
from normgauge.rules.tried import of_module


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


# kind; then whether a reading has its σ, advice sees ε decide, it can be taken out, a monitor follows it, and the
# radial gradient behind it is predicted. Stored statistics have no ε to decide and leave nothing scale-free; a division
# by the length alone has no ε to speak of and no weight to follow; local responses have no σ.
WAYS = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(8), (6, 8), "batch", True, True, True, True, True),
    "LayerNorm": (lambda: nn.LayerNorm(8), (6, 8), "layer", True, True, True, True, True),
    "RMSNorm": (lambda: nn.RMSNorm(8, eps=1e-5), (6, 8), "rms", True, True, True, True, True),
    "GroupNorm": (lambda: nn.GroupNorm(2, 8), (6, 8), "group", True, True, True, True, True),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4), (6, 4, 5, 5), "instance", True, True, True, True, True),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), (6, 4, 5, 5), "response", False, False, True, False, False),
    "subclass": (lambda: Subclass(8), (6, 8), "layer", True, True, True, True, True),
    "permuted": (lambda: Permuted(4), (6, 4, 5, 5), "layer", True, True, True, True, True),
    "function": (lambda: Function(8), (6, 8), "layer", True, True, True, True, True),
    "by hand": (lambda: ByHand(8), (6, 8), "rms", True, True, True, True, True),
    "frozen": (lambda: Frozen(8), (6, 8), "batch", True, False, True, True, False),
    "length": (lambda: Unit(), (6, 8), "length", False, False, True, False, False),
}


@pytest.fixture(params=WAYS)
def way(request):
    make, shape, *expected = WAYS[request.param]
    torch.manual_seed(0)
    first = nn.Linear(8, 8) if len(shape) == 2 else nn.Conv2d(4, 4, 3, padding=1)
    net = nn.Sequential(first, make(), nn.Flatten(), nn.Linear(8 if len(shape) == 2 else 100, 3)).train()
    return net, torch.randn(*shape), expected


def test_it_is_recognised(way):
    net, x, (kind, *_) = way
    assert of_module(net[1], net[0](x)).kind == kind
    assert of_module(nn.ReLU()) is None and of_module(net[0], x) is None


def test_a_reading_has_its_sigma(way):
    net, x, (_, sigma, *_) = way
    reading = ng.gauge(net, x, scope="point", mode="train", search=False, balance=False)
    assert any(layer.sigma for layer in reading.layers) is sigma


def test_advice_sees_it(way):
    net, x, (_, _, advice, *_) = way
    with torch.no_grad():
        for tensor in net[0].parameters():
            tensor.mul_(1e-6)
    found = ng.advise(net, x, mode="train").remarks
    assert any(remark.kind == "epsilon decides" and remark.layer.startswith("1") for remark in found) is advice


def test_it_can_be_taken_out(way):
    net, x, (_, _, _, out, *_) = way
    asked = ng.what_if(net, x, scope="point", mode="train", search=False, balance=False)
    assert (net[1].training and "1 (" in asked.without("1").reading.notes[0]) is out


def test_a_monitor_follows_it(way):
    net, _, (_, _, _, _, followed, _) = way
    assert any(layer.role == "norm" for layer in find_layers(net)) is followed


def test_the_radial_gradient_is_predicted(way):
    net, x, (*_, radial) = way
    net, x = net.double(), x.double()
    if not radial:
        with pytest.raises(ng.NormgaugeError, match=r"normalizer|affine"), RadialIdentity(net, ["1"]):
            net(x).square().sum().backward()
        return
    with RadialIdentity(net, ["1"]) as identity:
        net(x).square().sum().backward()
    first = net[0]
    found = sum((t * t.grad).sum() for t in (first.weight, first.bias))
    torch.testing.assert_close(identity.predicted["1"].sum(), found, rtol=1e-6, atol=1e-12)


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


@pytest.mark.parametrize("own", [True, False, None])
def test_statistics_are_taken_from_where_the_call_says(own):
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            given = {} if own is None else {"use_input_stats": own}
            return F.instance_norm(x, torch.zeros(3), torch.full((3,), 4.0), **given)

    reading = ng.gauge(Net(), torch.randn(2, 3, 20) * 1e-3, scope="global", search=False, balance=False)
    assert (reading.log10_upper > 2) is (own is not False)
