"""Scales through products, convolutions and sums: counted in closed form, applied to networks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.geometry.symmetry.labels import Torus
from normgauge.geometry.symmetry.products import bilinear_labels
from tests.geometry.symmetry.right import assert_family, draw, families

PAIR = "scale handed from one side to the other"
X = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(5, 4, 6, 6, generator=torch.Generator().manual_seed(1))


def test_two_values_multiplied_may_share_a_scale_in_the_middle():
    n, k, m = 3, 4, 2
    torus = Torus()
    a, b = torus.fresh(n * k).reshape(n, k), torus.fresh(k * m).reshape(k, m)
    out = bilinear_labels(torus, a, b)
    solution = torus.solve()
    assert len(solution.free) == n + k + m - 1  # rows, columns, the middle, less one that all three share
    values = solution.values(torch.randn(len(solution.free), generator=torch.Generator().manual_seed(0)).double())
    left, right = values[a].exp(), values[b].exp()
    x, y = (torch.randn(*s, dtype=torch.float64) for s in ((n, k), (k, m)))
    assert torch.allclose((left * x) @ (right * y), values[out].exp() * (x @ y))


def flat(*layers: nn.Module, size: int) -> nn.Module:
    return nn.Sequential(*layers, nn.LeakyReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(size, 3))


NETS = {
    "kernel": (lambda: flat(nn.Conv2d(4, 5, 3), size=5), 5),
    "groups": (lambda: flat(nn.Conv2d(4, 6, 3, groups=2), size=6), 6),
    "transposed": (lambda: flat(nn.ConvTranspose2d(4, 5, 2), size=5), 5),
    "transposed groups": (lambda: flat(nn.ConvTranspose2d(4, 6, 2, groups=2), size=6), 6),
    "max pooled": (lambda: flat(nn.Conv2d(4, 5, 3), nn.MaxPool2d(2), size=5), 5),
    "bilinear": (lambda: flat(nn.Conv2d(4, 5, 3), nn.Upsample(scale_factor=2, mode="bilinear"), size=5), 5),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_every_output_channel_has_a_scale_that_the_head_takes_back(name):
    make, count = NETS[name]
    assert_family(draw(make()), IMAGES, PAIR, count, {"0.weight", "0.bias", f"{len(make()) - 1}.weight"})


class Scored(nn.Module):
    """Queries and keys, multiplied as two values; a standard deviation over what comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(self.q(x)) @ F.leaky_relu(self.k(x)).T


def test_queries_and_keys_hand_a_scale_over_channel_by_channel():
    assert_family(draw(Scored()), X, PAIR, 4, {"q.weight", "q.bias", "k.weight", "k.bias"})


class Tied(nn.Module):
    """One matrix, used twice, the second time transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 6))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.leaky_relu(F.linear(x, self.weight)), self.weight.T)


def test_a_tied_matrix_has_one_scale_for_both_uses():
    found, _ = families(draw(Tied()), X, PAIR)
    assert found == []  # a row that grows would grow in both places
