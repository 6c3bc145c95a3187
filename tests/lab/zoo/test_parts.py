"""Normalizers as the networks build them."""

from __future__ import annotations

import pytest
import torch

from normgauge.lab.zoo import build_network, mlp
from tests.lab.zoo.networks import train_steps


def test_instance_norm_of_vectors_normalizes_each_group() -> None:
    norm = mlp((4, 16, 2), norm="instance", groups=4).layers[0].norm
    out = norm(5 * torch.randn(3, 16, generator=torch.Generator().manual_seed(0)) + 2).view(3, 4, 4)
    torch.testing.assert_close(out.mean(-1), torch.zeros(3, 4), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.var(-1, correction=0), torch.ones(3, 4), atol=1e-3, rtol=0)


@pytest.mark.parametrize("norm", ["batch", "layer", "group", "instance", "rms"])
@pytest.mark.parametrize("net", ["mlp", "resnet20"])
def test_a_gain_without_a_bias(net: str, norm: str) -> None:
    model = build_network(net, norm=norm, affine="gamma", groups=4)
    image = torch.randn(6, *((64,) if net == "mlp" else (3, 32, 32)), generator=torch.Generator().manual_seed(0))
    train_steps(model, image, torch.arange(6) % 5)
    names = [name.rpartition(".")[2] for name, _ in model.named_parameters() if "norm" in name or "bn" in name]
    assert set(names) == {"weight"}
