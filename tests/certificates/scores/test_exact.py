"""Scores of networks small enough to work out by hand."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import normgauge as ng
from normgauge.certificates.facts.cells import one_cell, voronoi
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.scores import norms
from normgauge.certificates.scores.flatness import score_pac_bayes, score_pac_bayes_aware
from normgauge.certificates.scores.function import (
    score_cell_sensitivity,
    score_input_gradient,
    score_margin,
    score_spherical_sharpness,
)
from normgauge.certificates.scores.norms import score_path_norm
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


def test_the_slope_of_the_margin_is_that_of_the_linear_map():
    net = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    x, y = torch.ones(7, 2), torch.zeros(7, dtype=torch.long)
    assert score_input_gradient(net, x, y) == pytest.approx(5.0)


def test_the_path_norm_counts_biases_and_every_path():
    net = nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, -2.0]]))
        net[0].bias.fill_(3.0)
        net[2].weight.copy_(torch.tensor([[2.0], [-1.0]]))
        net[2].bias.copy_(torch.tensor([0.5, 0.0]))
    assert score_path_norm(net, torch.zeros(1, 2)) == pytest.approx((1 + 4 + 9) * (4 + 1) + 0.25)


def test_a_product_of_path_weights_goes_through_sums_of_branches():
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(1, 1, bias=False)

        def forward(self, x):
            return x + torch.relu(self.inner(x))

    net = Residual()
    with torch.no_grad():
        net.inner.weight.fill_(3.0)
    assert score_path_norm(net, torch.zeros(1, 1)) == pytest.approx(1 + 9)


@pytest.mark.parametrize("stride", [1, 2])
def test_true_norms_are_those_of_the_dense_map_and_fft_those_of_the_circle(stride):
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 3, 3, stride=stride, padding=1, bias=False).double()
    dense = torch.stack([conv(e.view(1, 2, 5, 5)).flatten() for e in torch.eye(50, dtype=torch.float64)], 1)
    dense = dense.detach()
    (true,) = norms.convolved_squares(conv, torch.zeros(1, 2, 5, 5, dtype=torch.float64), circular=False)
    assert math.sqrt(true) == pytest.approx(float(torch.linalg.matrix_norm(dense, 2)), rel=1.1e-2)
    wrapped = nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular", bias=False).double()
    wrapped.weight = conv.weight
    dense = torch.stack([wrapped(e.view(1, 2, 5, 5)).flatten() for e in torch.eye(50, dtype=torch.float64)], 1)
    dense = dense.detach()
    (circular,) = norms.convolved_squares(conv, torch.zeros(1, 2, 5, 5, dtype=torch.float64), circular=True)
    assert math.sqrt(circular) == pytest.approx(float(torch.linalg.matrix_norm(dense, 2)), rel=1e-9)


def test_groups_have_the_norm_of_their_largest_block():
    conv = nn.Conv2d(2, 2, 1, groups=2, bias=False).double()
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([2.0, 7.0]).view(2, 1, 1, 1))
    for circular in (True, False):
        (square,) = norms.convolved_squares(conv, torch.zeros(1, 2, 4, 4, dtype=torch.float64), circular=circular)
        assert square == pytest.approx(49.0, rel=1e-2)


def test_pac_bayes_terms_add_up_to_the_published_formula():
    w = {"a": torch.tensor([[3.0, 4.0]], dtype=torch.float64)}
    terms = score_pac_bayes(w, 0.5, 100)
    assert sum(terms.values()) == pytest.approx(25 / (4 * 0.25) + math.log(200) + 10)
    moved = {"a": torch.tensor([[1.0, 0.0]], dtype=torch.float64)}
    terms = score_pac_bayes_aware(w, moved, 0.5, 100)
    over = 1e-6 + 1.25 * 25 / 2
    expected = (math.log(over / (1e-6 + 0.25)) + math.log(over / 1e-6)) / 4
    assert sum(terms.values()) == pytest.approx(expected + math.log(200) + 10)


def test_cell_sensitivity_is_the_mean_over_pairs_of_one_cell_by_hand():
    train = DataSample(torch.tensor([[0.0], [0.1], [10.0]]), torch.tensor([0, 0, 1]))
    fresh = DataSample(torch.tensor([[0.2], [9.0]]), None)
    sure, other = [50.0, 0.0], [0.0, 50.0]
    here, there = torch.tensor([sure, other, other]), torch.tensor([sure, other])
    cells = voronoi(torch.tensor([[0.0], [10.0]]))
    value, mass = score_cell_sensitivity((train, here), (fresh, there), cells)
    assert value == pytest.approx((2 / 3) * 0.5, abs=1e-12)
    assert mass == 1.0
    value, _ = score_cell_sensitivity((train, here), (fresh, there), one_cell())
    assert value == pytest.approx(3 / 6, abs=1e-12)


def test_cells_without_fresh_points_are_left_out_and_their_mass_said():
    train = DataSample(torch.tensor([[0.0], [10.0]]), torch.tensor([0, 1]))
    fresh = DataSample(torch.tensor([[0.2]]), None)
    said = torch.zeros(2, 2), torch.zeros(1, 2)
    cells = voronoi(torch.tensor([[0.0], [10.0]]))
    assert score_cell_sensitivity((train, said[0]), (fresh, said[1]), cells) == (0.0, 0.5)
    far = DataSample(torch.tensor([[10.0]]), torch.tensor([1]))
    with pytest.raises(InputError, match="more unlabeled data"):
        score_cell_sensitivity((far, said[0][:1]), (fresh, said[1]), cells)


def test_spherical_sharpness_of_one_weight_is_its_square_times_the_curvature():
    net = nn.Linear(1, 2, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[2.0], [0.0]]))
    x, y = torch.ones(3, 1, dtype=torch.float64), torch.zeros(3, dtype=torch.long)
    p = 1 / (1 + math.exp(-2.0))
    assert score_spherical_sharpness(net, x, y) == pytest.approx(4 * 2 * p * (1 - p), rel=1e-3)


def test_capacity_over_margin_is_the_reading_over_the_margin():
    net, data = nn.Linear(2, 2, bias=False), sample()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[5.0, 0.0], [0.0, 5.0]]))
    kept = data.part((data.inputs[:, 0] - data.inputs[:, 1]).abs() > 0.1)
    reading = ng.gauge(net, kept.inputs[:2], search=False)
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
