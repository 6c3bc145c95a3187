"""Local constants that leave out units that are off."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import normgauge as ng
from experiments.generalization import local, masked, nets


def network(norm: str) -> nn.Module:
    model = nets.build("mlp", norm, (1, 4, 4), width=24, depth=3, seed=1)
    if norm == "batch":
        model.train()
        torch.manual_seed(0)
        for _ in range(20):
            model(2 * torch.rand(64, 1, 4, 4) - 0.5)
    return model.eval()


def around(centre: torch.Tensor, radius: float, count: int = 400) -> torch.Tensor:
    torch.manual_seed(2)
    drawn = torch.randn(count, *centre.shape)
    length = drawn.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    return centre + drawn / length * radius * torch.rand(count, 1, 1, 1)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("radius", [0.0, 0.05, 0.5])
def test_no_slope_in_the_ball_is_larger(norm: str, radius: float) -> None:
    model = network(norm).double()
    torch.manual_seed(3)
    for centre in torch.rand(5, 1, 4, 4).double():
        proved = masked.largest(model, centre[None], radius)
        assert proved is not None
        seen = local.jacobians(model, around(centre, radius).double())
        assert float(seen.max().log10()) <= proved + 1e-9


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_from_the_pattern_at_the_centre_to_the_global_constant(norm: str) -> None:
    model, centres = network(norm), torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    constants = [masked.largest(model, centres, r) or 0.0 for r in (0.0, 0.02, 0.1, 1.0, 1e6)]
    assert constants == sorted(constants)
    assert constants[0] < constants[-1] - 0.05
    folded = ng.gauge(model, centres, scope="global", search=False, balance=False).log10_folded
    assert constants[-1] == pytest.approx(folded, abs=2e-3)  # what is left is the product of folded norms


def test_layernorm_and_convolutions_are_not_known() -> None:
    assert masked.folded(nets.build("mlp", "layer", (1, 4, 4), width=4)) is None
    assert masked.largest(nets.build("cnn", "none", (1, 8, 8), width=2, depth=1), torch.zeros(1, 1, 8, 8), 0.1) is None


def test_a_network_that_is_off_is_constant() -> None:
    model = nets.build("mlp", "none", (1, 2, 2), width=3, depth=1)
    with torch.no_grad():
        model.layers[0].linear.bias.fill_(-100.0)  # type: ignore[index, union-attr]
    assert masked.largest(model, torch.zeros(1, 1, 2, 2), 0.1) == -torch.inf


def test_batchnorm_without_statistics_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False))
    with pytest.raises(ValueError, match="no eval mode"):
        masked.folded(model)


def test_the_ball_grows_with_the_layers_before() -> None:
    one = torch.ones(1, 1).double()
    # the second unit is at −1 and off at the centre; the first layer makes 0.05 a movement of 5, which turns it on
    layers = [(100 * one, one[0]), (one, -2 * one[0]), (one, one[0])]
    centre = torch.zeros(1)
    assert masked.bound(layers, centre, 0.005) == -torch.inf
    assert masked.bound(layers, centre, 0.05) == pytest.approx(2.0)
