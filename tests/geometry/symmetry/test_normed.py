"""Weights that are divided by a norm."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import normgauge as ng
from normgauge.geometry.symmetry.normed import with_computed, write_back
from tests.geometry.symmetry.right import assert_family, checked, draw

VECTORS = [torch.randn(60, 6, generator=torch.Generator().manual_seed(s)) for s in range(4)]
SPECTRAL = parametrizations.spectral_norm
NORMED: dict[str, Callable[[], nn.Module]] = {
    "one": lambda: nn.Sequential(SPECTRAL(nn.Linear(6, 5)), nn.LeakyReLU(), nn.Linear(5, 3)),
    "two": lambda: nn.Sequential(SPECTRAL(nn.Linear(6, 5)), nn.LeakyReLU(), SPECTRAL(nn.Linear(5, 3))),
    "smooth": lambda: nn.Sequential(SPECTRAL(nn.Linear(6, 5)), nn.Tanh(), nn.Linear(5, 3)),
    "shifted through": lambda: nn.Sequential(
        nn.Linear(6, 5), SPECTRAL(nn.Linear(5, 5)), nn.LeakyReLU(), nn.Linear(5, 3)
    ),
    "linear": lambda: nn.Sequential(nn.Linear(6, 3), SPECTRAL(nn.Linear(3, 3)), nn.Linear(3, 3)),
    "kernel": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)), SPECTRAL(nn.Conv2d(1, 3, 2)), nn.LeakyReLU(), nn.Flatten(), nn.Linear(6, 2)
    ),
    "weight norm, shifted through": lambda: nn.Sequential(
        nn.Linear(6, 5), parametrizations.weight_norm(nn.Linear(5, 5)), nn.LeakyReLU(), nn.Linear(5, 3)
    ),
}


@pytest.mark.parametrize("name", NORMED)
def test_normalized_weights_are_complete(name):
    said, right = checked(draw(NORMED[name]()), VECTORS)
    assert said.dimension == right.nullity
    assert not said.not_looked_for and not said.rejected


def test_spectral_norm_by_hooks_is_complete():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather have its parametrizations used
        layer = nn.utils.spectral_norm(nn.Linear(6, 5))
    said = ng.symmetries(nn.Sequential(layer, nn.LeakyReLU(), nn.Linear(5, 3)), VECTORS[0], mode="eval")
    assert said.dimension == 5 and not said.not_looked_for


def test_a_moved_weight_is_written_as_direction_and_length():
    draws = torch.Generator().manual_seed(0)
    state = {
        "v": torch.randn(4, 3, generator=draws).double(),
        "g": torch.tensor([[1.0], [-2.0], [3.0], [0.5]]).double(),
    }
    (whole,) = [t for n, t in with_computed(state, {"w": ("v", "g", 0)}).items() if n == "w"]
    assert torch.allclose(whole, torch._weight_norm(state["v"], state["g"], 0))
    wanted = torch.randn(4, 3, generator=draws).double()
    for unit in (False, True):
        back = {**state, **write_back(state, ("v", "g", 0), wanted, unit)}
        assert torch.allclose(torch._weight_norm(back["v"], back["g"], 0), wanted)
        lengths = torch.ones(4).double() if unit else state["v"].norm(dim=1)
        assert torch.allclose(back["v"].norm(dim=1), lengths) and bool((back["g"].sign() == state["g"].sign()).all())


def test_the_length_of_a_direction_is_free_and_so_is_the_scale_under_a_spectral_norm():
    model = draw(nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 5)), nn.Tanh(), nn.Linear(5, 3)))
    name = "0.parametrizations.weight.original1"
    assert_family(model, VECTORS[0], "scale of the direction", 5, {name})
    model = draw(nn.Sequential(SPECTRAL(nn.Linear(6, 5)), nn.Tanh(), nn.Linear(5, 3)))
    assert_family(model, VECTORS[0], "scale of a spectrally", 1, {"0.parametrizations.weight.original"}, mode="eval")
