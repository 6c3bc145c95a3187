"""Scores of networks small enough to work out by hand."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import normgauge as ng
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.scores.function import (
    score_margin,
)
from normgauge.core.certificate import Consumed, RowKind
from normgauge.core.errors import InputError
from tests.certificates.scores.made import sample, scored, two_layers

M = 60


@pytest.fixture(scope="module")
def found():
    net, data = two_layers(), sample(M)
    start = nn.Sequential(*copy.deepcopy(list(net)))
    with torch.no_grad():
        start[0].weight.sub_(torch.diag(torch.tensor([1.0, 0.0])))
        start[2].weight.sub_(torch.diag(torch.tensor([0.0, 2.0])))
    # class 0 is (6 x0) against (5 x1): a net whose margins are small for some samples
    return scored(net, data, initial=start.state_dict(), lipschitz_term=0.25), data


EXACT = {
    "params": 8,
    "l2": math.sqrt(9 + 1 + 4 + 25),
    "l2-dist-init": math.sqrt(1 + 4),
    "fro-over-spec": 10 / 9 + 29 / 25,
    "param-norm": 39,
    "fro-dist": 5,
    "dist-spec-init": 5,
    "path-norm": 9 * 4 + 25,
}


EXACT_LOG = {
    "log-prod-spec": math.log(9 * 25),
    "log-sum-spec": math.log(2 * math.sqrt(9 * 25)),
    "log-prod-fro": math.log(10 * 29),
    "log-sum-fro": math.log(2 * math.sqrt(290)),
    "log-prod-spec-fft": math.log(225),
    "log-prod-spec-true": math.log(225),
}


@pytest.mark.parametrize("key", sorted(EXACT))
def test_root_scores_equal_the_sums_done_by_hand(found, key):
    assert found[0][key].value == pytest.approx(math.sqrt(EXACT[key] / M), rel=1e-6)


@pytest.mark.parametrize("key", sorted(EXACT_LOG))
def test_log_scores_equal_the_products_done_by_hand(found, key):
    assert found[0][key].value == pytest.approx((EXACT_LOG[key] - math.log(M)) / 2, rel=1e-6)


def test_the_margin_is_the_tenth_percentile_and_divides_each_score(found):
    rows, data = found
    x = data.inputs
    values = torch.where(data.labels == 0, 6 * x[:, 0] - 5 * x[:, 1], 5 * x[:, 1] - 6 * x[:, 0]).sort().values
    gamma = score_margin(two_layers()(x).detach(), data.labels) if values[5] > 0 else None
    if gamma is None:
        assert rows["inverse-margin"].kind is RowKind.NOT_APPLICABLE
        return
    assert gamma == pytest.approx(float(values[5]), rel=1e-5)
    assert rows["inverse-margin"].value == pytest.approx(math.sqrt(gamma**-2 / M), rel=1e-5)
    expected = (math.log(225) - 2 * math.log(gamma) - math.log(M)) / 2
    assert rows["log-prod-spec-margin"].value == pytest.approx(expected, rel=1e-5)
    expected = (math.log(2) + (math.log(225) - 2 * math.log(gamma)) / 2 - math.log(M)) / 2
    assert rows["log-sum-spec-margin"].value == pytest.approx(expected, rel=1e-5)
    expected = (math.log(225 * (1 / 9 + 4 / 25)) - 2 * math.log(gamma) - math.log(M)) / 2
    assert rows["log-spec-init-main"].value == pytest.approx(expected, rel=1e-5)
    expected = (math.log(225 * (10 / 9 + 29 / 25)) - 2 * math.log(gamma) - math.log(M)) / 2
    assert rows["log-spec-orig-main"].value == pytest.approx(expected, rel=1e-5)
    assert rows["path-norm-margin"].value == pytest.approx(math.sqrt(61 / gamma**2 / M), rel=1e-5)


def test_margins_losses_and_errors_of_five_samples():
    logits = torch.tensor([[2.0, 0.0], [0.0, 3.0], [5.0, 1.0], [0.0, 9.0], [1.0, 1.0]])
    labels = torch.tensor([0, 1, 0, 1, 0])
    assert score_margin(logits[:4], labels[:4]) == 2.0
    rows = scored(nn.Identity(), DataSample(logits, labels))
    assert rows["train-error"].value == pytest.approx(-0.2)  # the tie is wrong
    expected = math.fsum(math.log1p(math.exp(-v)) for v in (2, 3, 4, 9, 0)) / 5
    assert rows["train-loss"].value == pytest.approx(-expected, rel=1e-6)
    with pytest.raises(InputError, match="margin is not positive"):
        score_margin(logits, labels)


def test_capacity_over_margin_is_the_reading_over_the_margin():
    net, data = nn.Linear(2, 2, bias=False), sample()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[5.0, 0.0], [0.0, 5.0]]))
    kept = data.part((data.inputs[:, 0] - data.inputs[:, 1]).abs() > 0.1)
    reading = ng.gauge(net, kept.inputs[:2], scope="global", search=False)
    local = ng.gauge(net, kept.inputs[:2], scope="point", search=False)
    rows = scored(net, kept, reading=reading, local=local)
    gamma = score_margin(net(kept.inputs).detach(), kept.labels)
    for key in ("balanced-capacity-margin", "folded-capacity-margin", "local-capacity-margin"):
        assert rows[key].value == pytest.approx(math.log10(5 / gamma), abs=1e-6)
        assert rows[key].additive and sum(v for _, v in rows[key].terms) == pytest.approx(rows[key].value)


def test_the_term_of_theorem_20_and_the_baselines_are_passed_on(found):
    rows, data = found
    assert rows["theorem20-lipschitz"].value == 0.25
    logits = two_layers()(data.inputs).detach()
    assert rows["train-loss"].value == pytest.approx(-float(F.cross_entropy(logits, data.labels)), rel=1e-6)
    assert rows["train-error"].value == pytest.approx(-float((logits.argmax(1) != data.labels).double().mean()))
    assert rows["cell-sensitivity"].consumed == (Consumed.UNLABELED,)
