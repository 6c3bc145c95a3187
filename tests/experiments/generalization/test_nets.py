"""The networks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from experiments.generalization import nets
from normgauge import NormgaugeError


@pytest.mark.parametrize("kind", ["mlp", "cnn", "resnet18"])
@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
def test_networks_have_their_norm(kind: str, norm: str) -> None:
    model = nets.build(kind, norm, (3, 16, 16), width=4, depth=2).eval()
    assert model(torch.zeros(2, 3, 16, 16)).shape == (2, 10)
    normalizers = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert bool(normalizers) == (norm == "batch")
    others = [m for m in model.modules() if isinstance(m, nn.LayerNorm | nn.GroupNorm)]
    assert bool(others) == (norm == "layer")


def test_seeds_make_weights_and_leave_the_random_state() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, again, other = (nets.build("cnn", "none", (1, 8, 8), width=2, depth=1, seed=s) for s in (0, 0, 1))
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(first[0].weight, again[0].weight)  # type: ignore[index]
    assert not torch.equal(first[0].weight, other[0].weight)  # type: ignore[index]


def test_a_stage_has_so_many_convolutions() -> None:
    model = nets.cnn("batch", 1, 4, 2)
    shapes = [tuple(m.weight.shape[:2]) for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert shapes == [(4, 1), (4, 4), (8, 4), (8, 8), (16, 8), (16, 16)]


@pytest.mark.parametrize(("kind", "norm", "said"), [("vgg", "none", "mlp, cnn"), ("mlp", "weight", "none, batch")])
def test_unknown_names_are_refused(kind: str, norm: str, said: str) -> None:
    with pytest.raises(NormgaugeError, match=said):
        nets.build(kind, norm, (1, 8, 8))
