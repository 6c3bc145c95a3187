"""Batch normalization: an affine map of each channel in eval mode, one spread a channel in training."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normgauge.instrument.rules.flow import Diagonal, SamplesMixed
from tests.cases import weight
from tests.instrument.rules.one_step import bound, check, composed, jacobian_norm, last

MEAN, VARIANCE, GAMMA, BETA = weight(3), weight(3).square() + 0.1, weight(3), weight(3) + 4


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 2, 2)])
def test_stored_statistics_are_an_affine_map_of_each_channel(shape):
    function = lambda x: F.batch_norm(x, MEAN, VARIANCE, GAMMA, BETA, eps=1e-3)  # noqa: E731
    upper = check(function, weight(*shape), exact=True, linear=True)
    assert upper == pytest.approx(float((GAMMA.abs() / (VARIANCE + 1e-3).sqrt()).max()), rel=1e-8)
    transfer, _ = last(function, weight(*shape))
    assert isinstance(transfer.gains[0].form, Diagonal) and transfer.worked.startswith("channel ")


def test_a_negative_variance_is_unknown():
    left = torch.full_like(VARIANCE, -0.9995e-3)
    assert "negative" in last(lambda x: F.batch_norm(x, MEAN, left, eps=1e-3), weight(4, 3))[0].unknown


def test_a_negative_variance_that_epsilon_outweighs_is_a_variance():
    check(lambda x: F.batch_norm(x, MEAN, -VARIANCE, GAMMA, eps=9.0), weight(4, 3), exact=True, linear=True)


@pytest.mark.parametrize("shape", [(6, 3), (3, 3, 4)])
def test_the_batchs_own_statistics_give_the_slope_at_a_point(shape):
    layer, x = nn.BatchNorm1d(3, affine=False, track_running_stats=False).double().train(), weight(*shape)
    assert bound(layer, x, "point") == pytest.approx(jacobian_norm(layer, x), rel=1e-6)
    check(layer, x, "ball:0.3")
    assert bound(layer, x) == pytest.approx(layer.eps**-0.5, rel=1e-6)


def test_batch_statistics_couple_the_samples():
    with pytest.raises(SamplesMixed, match="batch statistics"):
        composed(lambda x: F.batch_norm(x, None, None, training=True), weight(4, 3), "point", samples=4)


def test_the_facts_about_sigma_are_those_of_the_channels():
    facts = last(lambda x: F.batch_norm(x, MEAN, VARIANCE, GAMMA, eps=0.5), weight(4, 3))[0].sigma
    sigma = (VARIANCE + 0.5).sqrt()
    assert facts["min"] == pytest.approx(float(sigma.min())) and facts["max"] == pytest.approx(float(sigma.max()))
    assert facts["gamma_max"] == float(GAMMA.abs().max()) and facts["eps"] == 0.5
    assert torch.tensor(facts["log_inverse_l2"]).exp() == pytest.approx(float((1 / sigma).norm()), rel=1e-6)
