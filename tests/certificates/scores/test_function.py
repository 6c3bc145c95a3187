from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normgauge.certificates.facts.cells import one_cell, voronoi
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.scores.function import (
    score_cell_sensitivity,
    score_input_gradient,
    score_spherical_sharpness,
)
from normgauge.core.errors import InputError


def test_the_slope_of_the_margin_is_that_of_the_linear_map():
    net = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    x, y = torch.ones(7, 2), torch.zeros(7, dtype=torch.long)
    assert score_input_gradient(net, x, y) == pytest.approx(5.0)


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
