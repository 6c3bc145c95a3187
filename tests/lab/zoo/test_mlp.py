"""The MLP: every normalization option reaches its layers, and what does not fit is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from normgauge.core.errors import InputError
from normgauge.lab.zoo import build_network, mlp
from tests.lab.zoo.networks import IMAGE_NORMS, size, train_steps


@pytest.mark.parametrize("norm", IMAGE_NORMS)
@pytest.mark.parametrize("affine", [True, False])
def test_mlp_norms(norm: str | None, affine: bool) -> None:
    model = mlp((12, 16, 24, 5), norm=norm, affine=affine, eps=1e-3)
    train_steps(model, torch.randn(6, 12), torch.arange(6) % 5)
    names = dict(model.named_modules())
    assert ("layers.1.norm" in names) == (norm is not None)
    assert isinstance(names["layers.0.linear"], nn.Linear)
    assert isinstance(names["layers.0.act"], nn.ReLU)
    gains = [name for name, _ in model.named_parameters() if ".norm" in name]
    assert bool(gains) == (affine and norm is not None)


def test_mlp_options_reach_the_layers() -> None:
    model = mlp((4, 8, 2), norm="group", activation="tanh", eps=0.25, groups=2)
    norm = model.layers[0].norm
    assert isinstance(norm, nn.GroupNorm)
    assert (norm.num_groups, norm.eps) == (2, 0.25)
    assert isinstance(model.layers[0].act, nn.Tanh)
    assert mlp()(torch.zeros(3, 1, 8, 8)).shape == (3, 10)
    assert size(mlp((3, 2))) == 8


def test_mlp_with_some_layers_normalized() -> None:
    model = mlp((4, 8, 8, 8, 2), norm="batch", normalized=(0, 2))
    assert ["norm" in dict(layer.named_children()) for layer in model.layers] == [True, False, True]
    assert not any("norm" in name for name, _ in mlp((4, 8, 2), norm="batch", normalized=()).named_modules())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"norm": "batch", "normalized": (0, 2)}, r"\[2\] are no hidden layers; there are 2"),
        ({"norm": "batch", "affine": "beta"}, "affine='beta'"),
        ({"norm": "weight"}, "batch, layer"),
        ({"activation": "swish"}, "relu"),
        ({"norm": "group", "groups": 7}, "groups=7"),
        ({"sizes": (3,)}, "sizes"),
    ],
)
def test_mlp_refuses(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        build_network("mlp", **options)
