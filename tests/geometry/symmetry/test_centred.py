"""What reads a centred value may add multiples of 1/γ to its rows: applied to networks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.geometry.symmetry.right import assert_family, draw, families

ADDED = "multiples of 1/gain added to rows that read a centred value"
TAKEN = "shift that multiples of 1/gain in the rows behind it take back"
X = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(7, 6, 4, generator=torch.Generator().manual_seed(1))


class Averaged(nn.Module):
    """Means over the last dimension."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(-1)


NETS = {
    "layer": (lambda: (nn.LayerNorm(5), nn.Linear(5, 3)), X, 3, {"2.weight", "2.bias"}),
    "no shift": (lambda: (nn.LayerNorm(5, elementwise_affine=False), nn.Linear(5, 3)), X, 3, {"2.weight"}),
    "batch norm behind": (
        lambda: (nn.LayerNorm(5), nn.Linear(5, 3, bias=False), nn.BatchNorm1d(3)), X, 3, {"2.weight"},
    ),
    "positions normalized together": (lambda: (nn.GroupNorm(2, 4), nn.Conv1d(4, 3, 2)), IMAGES, 0, set()),
    "their mean over positions": (
        lambda: (nn.GroupNorm(2, 4), Averaged(), nn.Linear(4, 3)), IMAGES, 2 * 3, {"3.weight", "3.bias"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_rows_take_multiples_of_the_inverse_gain(name):
    rest, x, count, names = NETS[name]
    first = nn.Linear(6, 5) if x is X else nn.Conv1d(6, 4, 1)
    model = draw(nn.Sequential(first, *rest()), seed=1)
    if count:
        assert_family(model, x, ADDED, count, names)
    else:  # no position has a sum of zero by itself
        assert families(model, x, ADDED)[0] == []


def test_a_matrix_without_bias_takes_back_a_shift_before_it():
    model = draw(nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3, bias=False)), seed=1)
    assert_family(model, X, TAKEN, 5, {"1.bias", "2.weight"})
    nn.init.zeros_(model[1].bias)  # there Σ β/γ is 0, and the rows cannot say anything
    assert families(model, X, TAKEN)[0] == []


@pytest.mark.parametrize("between", [nn.ReLU(), nn.Tanh()], ids=["relu", "tanh"])
def test_what_is_bent_is_no_longer_centred(between):
    model = draw(nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), between, nn.Linear(5, 3)))
    assert families(model, X, ADDED)[0] == []
