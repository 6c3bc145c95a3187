"""Which scores see a change of scale that the function does not."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import normgauge as ng
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
        scored(
            m,
            data,
            more=more,
            reading=ng.gauge(m, data.inputs[:4], scope="global", search=False),
            initial=net.state_dict(),
        )
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
    return tuple(
        scored(m, data, reading=ng.gauge(m, data.inputs[:4], scope="global", search=False)) for m in (net, twin)
    )


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
