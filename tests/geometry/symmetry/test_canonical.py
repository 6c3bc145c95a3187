"""`canonical`: the same function, and the same weights from every gauge."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import normgauge as ng
from normgauge.core.errors import InputError
from normgauge.geometry.symmetry.find import analysed
from normgauge.geometry.symmetry.verify import random_move
from tests.geometry.symmetry.right import bn_net


def conv_net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    ).eval()  # fmt: skip


X = torch.randn(12, 8, generator=torch.Generator().manual_seed(2))
IMAGES = torch.randn(6, 2, 6, 6, generator=torch.Generator().manual_seed(3))


def moved(model: nn.Module, batch: torch.Tensor) -> nn.Module:
    """The same function in other scales."""
    twin = copy.deepcopy(model)
    with analysed(model, batch, "train", strict=True) as found:
        state = dict(found.trial.state)
        for seed, generator in enumerate(found.generators):
            if generator.kind == "scale" or generator.what.startswith("scale"):
                state.update(random_move(generator, state, seed))
    named = {**dict(twin.named_parameters()), **dict(twin.named_buffers())}
    with torch.no_grad():
        for name, tensor in state.items():
            named[name].copy_(tensor)
    return twin


@pytest.mark.parametrize(("make", "batch"), [(bn_net, X), (conv_net, IMAGES)], ids=["dense", "images"])
def test_canonical_is_the_same_function_and_the_same_for_every_gauge(make, batch):
    model = make()
    other = moved(model, batch)
    assert not torch.allclose(other[0].weight, model[0].weight, rtol=0.05)
    first, second = ng.canonical(model, batch), ng.canonical(other, batch)
    assert first.eval_defect < 1e-5 and first.train_defect < 1e-2
    with torch.no_grad():
        change = (first.model(batch) - model(batch)).norm() / model(batch).norm()
    assert change < 1e-5
    assert torch.allclose(
        first.model[0].weight.flatten(1).norm(dim=1), torch.ones(len(first.model[0].weight)), atol=1e-5
    )
    assert first.model[0].bias.abs().max() < 1e-6
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_canonical_leaves_the_balanced_bound():
    model = bn_net()
    twin = ng.canonical(model, X).model
    bounds = [ng.gauge(m, X, scope="global", search=False).to_json()["log10_upper"] for m in (model, twin)]
    assert bounds[0] == pytest.approx(bounds[1], abs=1e-3)


def test_canonical_leaves_scales_that_an_eps_makes_visible():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3)).eval()
    found = ng.canonical(model, X)
    assert found.eval_defect < 1e-6 and found.train_defect < 1e-6
    assert found.model[0].weight.mean(0).abs().max() < 1e-6  # rows under a mean are centred


def test_statistics_that_are_read_twice_are_no_gauge():
    """Scales of shared statistics, and of those behind another normalizer, are no symmetries in eval mode."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(8)
    shared = nn.Sequential(nn.Linear(6, 8), norm, nn.ReLU(), nn.Linear(8, 8), norm, nn.ReLU(), nn.Linear(8, 2))
    for _ in range(50):
        shared(torch.randn(32, 6))
    with pytest.raises(InputError, match="would change what Sequential computes in eval mode"):
        ng.canonical(shared.eval(), torch.randn(16, 6))
