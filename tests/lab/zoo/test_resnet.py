"""The ResNets: torchvision's names, published sizes, the shortcut of option A."""

from __future__ import annotations

import pytest
import torch

from normgauge.core.errors import InputError
from normgauge.lab.zoo import cifar_resnet, resnet18
from tests.lab.zoo.networks import IMAGE_NORMS, size, train_steps


def test_resnet18_is_torchvisions() -> None:
    model = resnet18()
    state = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert size(model) == 11_181_642
    assert len(state) == 122
    assert list(state)[:6] == [
        "conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked",
    ]  # fmt: skip
    assert state["conv1.weight"] == (64, 3, 7, 7)
    assert state["layer1.1.conv2.weight"] == (64, 64, 3, 3)
    assert state["layer2.0.downsample.0.weight"] == (128, 64, 1, 1)
    assert state["layer2.0.downsample.1.running_var"] == (128,)
    assert state["layer4.1.bn2.bias"] == (512,)
    assert state["fc.weight"] == (10, 512)
    assert "layer1.0.downsample.0.weight" not in state


@pytest.mark.parametrize("norm", IMAGE_NORMS)
def test_resnet_norms(norm: str | None) -> None:
    train_steps(cifar_resnet(20, norm=norm), torch.randn(4, 3, 16, 16), torch.arange(4))
    with torch.no_grad():
        assert resnet18(4, stem="cifar", norm=norm).eval()(torch.randn(1, 3, 16, 16)).shape == (1, 4)


@pytest.mark.parametrize(("depth", "parameters"), [(20, 269_722), (32, 464_154), (44, 658_586), (56, 853_018)])
def test_cifar_resnet_sizes(depth: int, parameters: int) -> None:
    assert size(cifar_resnet(depth)) == parameters


def test_option_a_shortcut() -> None:
    shortcut = cifar_resnet(20).layer2[0].downsample
    assert shortcut is not None
    x = torch.randn(2, 16, 8, 8)
    out = shortcut(x)
    assert out.shape == (2, 32, 4, 4)
    assert torch.equal(out[:, 8:24], x[:, :, ::2, ::2])
    assert not out[:, :8].any()
    assert not out[:, 24:].any()


def test_a_depth_nobody_published_is_refused() -> None:
    with pytest.raises(InputError, match="20, 32, 44, 56"):
        cifar_resnet(21)
