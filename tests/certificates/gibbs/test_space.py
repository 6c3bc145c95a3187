from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from normgauge.certificates.case import Case
from normgauge.certificates.gibbs.posterior import grid_divergence, proportional
from normgauge.certificates.gibbs.space import weight_space
from normgauge.core.errors import InputError
from tests.certificates.rows.made import case_of, points, trained

TRAIN = points(2000, 0)


def scaled(model: nn.Module, factors: tuple[float, ...]) -> nn.Module:
    """The same function: each row under the BatchNorm times a factor, its statistics along with it."""
    twin, factor = copy.deepcopy(model), torch.tensor(factors)
    with torch.no_grad():
        for layer in twin.layers:  # type: ignore[union-attr]
            linear, norm = layer.linear, layer.norm
            linear.weight.mul_(factor[:, None])
            linear.bias.mul_(factor)
            norm.running_mean.mul_(factor)
            norm.running_var.add_(norm.eps).mul_(factor**2).sub_(norm.eps)
    return twin


@pytest.fixture(scope="module")
def bn_case() -> Case:
    return case_of(trained(TRAIN), TRAIN, epochs=2)


def test_without_canonical_scales_the_divergence_would_move(bn_case: Case) -> None:
    plain, moved = (
        weight_space(net, TRAIN[0][:1], settle=False) for net in (bn_case.model, scaled(bn_case.model, (10.0,) * 8))
    )
    settled = [weight_space(net, TRAIN[0][:1]) for net in (bn_case.model, scaled(bn_case.model, (10.0,) * 8))]
    name = "layers.0.linear.weight"
    assert torch.allclose(moved.mean[name], 10 * plain.mean[name])
    assert torch.allclose(settled[0].mean[name], settled[1].mean[name], atol=1e-4)


def test_a_layer_norm_network_scaled_by_ten_pays_the_same() -> None:
    model = trained(TRAIN, "layer")
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.layers[0].linear.weight.mul_(10)  # type: ignore[union-attr, index]
        twin.layers[0].linear.bias.mul_(10)  # type: ignore[union-attr, index]
    costs = [grid_divergence(proportional(weight_space(net, TRAIN[0][:1]).mean, 0.3), {}) for net in (model, twin)]
    assert costs[0] == pytest.approx(costs[1], rel=1e-4)


class Buffered(nn.Module):
    """A stored tensor that may have come from D, a causal mask that did not, a computed one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 2)
        self.register_buffer("shift", torch.ones(6))
        self.register_buffer("mask", torch.full((2,), -math.inf).masked_fill(torch.ones(2).bool(), 0.0))
        self.register_buffer("never", torch.full((2,), -math.inf))
        self.register_buffer("computed", torch.ones(6), persistent=False)

    shift: Tensor
    computed: Tensor

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x - self.shift * self.computed)
        return out


def test_buffers_get_noise_saved_or_not_unless_they_are_declared() -> None:
    where = weight_space(Buffered(), TRAIN[0][:1])
    assert {"shift", "mask", "computed"} <= set(where.mean) and "never" not in where.mean
    assert "computed" not in weight_space(Buffered(), TRAIN[0][:1], data_free=("computed",)).mean
    moved = {**where.mean, "shift": where.mean["shift"] + 1}
    assert not torch.equal(where(where.mean, TRAIN[0][:5]), where(moved, TRAIN[0][:5]))


@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
def test_running_statistics_become_weights(affine: bool) -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(8, affine=affine)
    norm.running_mean, norm.running_var = torch.randn(8), torch.rand(8) + 0.1
    model = nn.Sequential(nn.Linear(6, 8), norm, nn.ReLU(), nn.Linear(8, 2)).eval()
    where = weight_space(model, TRAIN[0][:1])
    assert torch.allclose(where(where.mean, TRAIN[0][:50]), model(TRAIN[0][:50]), atol=1e-5)
    assert not [name for name in where.mean if "running" in name]
    assert {"1.weight", "1.bias"} <= set(where.mean)
    assert not [m for m in where.model.modules() if isinstance(m, nn.BatchNorm1d)]


class Odd(nn.BatchNorm1d):
    """Not the map its class promises."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * self.running_var


def test_a_normalizer_that_cannot_be_taken_into_the_weights_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(6, 8), Odd(8), nn.Linear(8, 2)).eval()
    model[1].running_var.fill_(3.0)
    where = weight_space(model, TRAIN[0][:1])
    assert torch.allclose(where(where.mean, TRAIN[0][:50]), model(TRAIN[0][:50]), atol=1e-5)
    assert "would change what Sequential computes" in where.notes[0]
    other = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 2))
    monkeypatch.setattr("normgauge.certificates.gibbs.space._absorb", lambda twin: other)
    with pytest.raises(InputError, match="changes the output"):
        weight_space(model, TRAIN[0][:1])
