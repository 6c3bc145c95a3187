from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normgauge.certificates.scores import norms
from normgauge.certificates.scores.norms import multiplications, score_path_norm
from normgauge.core.certificate import RowKind
from tests.certificates.scores.made import sample, scored


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


def test_multiplications_are_weights_times_places():
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.Flatten(), nn.Linear(144, 3, bias=False))
    assert multiplications(net, torch.zeros(2, 1, 6, 6)) == 36 * 36 + 144 * 3


@pytest.mark.parametrize(("value", "fits"), [(0.0, True), (1.0, False)])
def test_padding_with_zeros_has_paths_and_padding_with_ones_has_not(value, fits):
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(nn.functional.pad(x, (1, 1), "constant", value))

    row = scored(Padded().eval(), sample(20))["path-norm"]
    assert (row.kind is RowKind.SCORE) is fits
