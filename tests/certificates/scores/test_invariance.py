"""Which scores see a change of scale that the function does not."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import normgauge as ng
from normgauge.certificates.scores.flatness import Search, score_noise
from normgauge.certificates.scores.fold import folded_model
from tests.certificates.scores.made import conv_net, images, rescaled, sample, scored, trained

FREE = (
    "path-norm",
    "path-norm-margin",
    "mag-flatness",
    "balanced-capacity-margin",
    "input-gradient",
    "noise-sensitivity",
    "cell-sensitivity",
    "inverse-margin",
    "train-loss",
)
SEEN = ("l2", "param-norm", "log-prod-fro", "log-prod-spec", "flatness", "pacbayes-orig", "log-sum-spec")
FRESH = 50


def learnt():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 2))
    return trained(net, sample(60), 200)


@pytest.fixture(scope="module")
def across_relu():
    net, data = learnt(), sample(60)
    twin = rescaled(net, torch.tensor([8.0, 0.125, 64.0, 1.0, 0.5, 2.0]))  # powers of two: the function to the bit
    more = {"unlabeled": sample(FRESH, seed=5)}
    return tuple(
        scored(m, data, more=more, reading=ng.gauge(m, data.inputs[:4], search=False), initial=net.state_dict())
        for m in (net, twin)
    )


@pytest.mark.parametrize("key", FREE)
def test_rescaling_across_a_relu_leaves_the_score(across_relu, key):
    one, other = (rows[key].value for rows in across_relu)
    assert one is not None
    assert other == pytest.approx(one, rel=2e-4, abs=1e-9)


@pytest.mark.parametrize("key", SEEN)
def test_rescaling_across_a_relu_moves_the_score(across_relu, key):
    one, other = (rows[key].value for rows in across_relu)
    assert abs(other - one) > 0.01 * abs(one)


@pytest.fixture(scope="module")
def under_batch_norm():
    data = images()
    net = trained(conv_net("batch"), data)
    twin = copy.deepcopy(net)
    with torch.no_grad():
        for conv, norm in ((twin[0], twin[1]), (twin[3], twin[4])):
            # the variance is the statistic that carries ε: it is made to scale with the rest
            scale = 16.0
            conv.weight.mul_(scale)
            conv.bias.mul_(scale)
            norm.running_mean.mul_(scale)
            norm.running_var.add_(norm.eps).mul_(scale**2).sub_(norm.eps)
    return tuple(scored(m, data, reading=ng.gauge(m, data.inputs[:4], search=False)) for m in (net, twin))


@pytest.mark.parametrize(
    "key", ["l2", "log-prod-spec", "log-prod-spec-true", "path-norm", "mag-flatness", "flatness", "spherical-sharpness"]
)
def test_scaling_under_batch_norm_leaves_every_score_since_it_is_folded(under_batch_norm, key):
    one, other = (rows[key].value for rows in under_batch_norm)
    assert one is not None
    assert other == pytest.approx(one, rel=1e-3)


@pytest.mark.parametrize("key", ["folded-capacity-margin", "balanced-capacity-margin"])
def test_scaling_under_batch_norm_leaves_the_capacity(under_batch_norm, key):
    one, other = (rows[key].value for rows in under_batch_norm)
    assert other == pytest.approx(one, abs=1e-3)


def test_the_folded_network_computes_the_same_and_the_model_is_untouched():
    data = images()
    net = trained(conv_net("batch"), data).train()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    twin = folded_model(net, data.inputs[:2])
    assert not [m for m in twin.modules() if isinstance(m, nn.BatchNorm2d)]
    assert net.training and all(torch.equal(v, net.state_dict()[k]) for k, v in before.items())
    assert torch.allclose(twin(data.inputs), net.eval()(data.inputs), atol=1e-5)


class Shared(nn.Module):
    """BatchNorm that cannot be folded: what it reads is read by another too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(2, 2), nn.BatchNorm1d(2)

    def forward(self, x):
        y = self.linear(x)
        return self.norm(y) + y


class Twice(nn.Module):
    """One linear map under two normalizers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.one, self.two = nn.Linear(2, 2), nn.BatchNorm1d(2), nn.BatchNorm1d(2)

    def forward(self, x):
        return self.two(self.linear(self.one(self.linear(x))))


@pytest.mark.parametrize(
    "net",
    [Shared(), Twice(), nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False))],
    ids=["shared", "twice", "no-statistics"],
)
def test_a_batch_norm_that_cannot_be_folded_stays(net):
    twin = folded_model(net.eval(), sample(4).inputs)
    assert [m for m in twin.modules() if isinstance(m, nn.BatchNorm1d)]
    assert torch.equal(twin(sample(8).inputs), net(sample(8).inputs))


def test_parametrized_weights_are_written_out():
    net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 3)), nn.ReLU(), nn.Linear(3, 2)).eval()
    twin = folded_model(net, sample(4).inputs)
    assert sorted(name for name, _ in twin.named_parameters()) == ["0.bias", "0.weight", "2.bias", "2.weight"]
    assert torch.allclose(twin(sample(4).inputs), net(sample(4).inputs))


def test_a_net_that_bears_more_noise_scores_lower():
    torch.manual_seed(0)
    x = torch.tensor([[1.0], [-1.0]]).repeat(50, 1)
    y = torch.tensor([0, 1]).repeat(50)
    net = nn.Linear(1, 2, bias=False)
    borne = []
    for size in (0.1, 1.0):
        with torch.no_grad():
            net.weight.copy_(torch.tensor([[size], [-size]]))
        borne.append(score_noise(net, x, y, search=Search(12, 40)))
        assert score_noise(net, x, y, aware=True, search=Search(12, 40)) == pytest.approx(
            score_noise(nn.Sequential(net), x, y, aware=True, search=Search(12, 40))
        )
    assert borne[1] == pytest.approx(10 * borne[0], rel=0.02)  # the noise that flips a sign grows with the weight
