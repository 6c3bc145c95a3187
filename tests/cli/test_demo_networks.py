"""The rescaled twins of the demo."""

from __future__ import annotations

import pytest
import torch

from normgauge.cli.demo_networks import rescaled_twin
from normgauge.lab.zoo import mlp


@pytest.fixture
def net():
    torch.manual_seed(0)
    model = mlp((6, 8, 8, 3), norm="batch")
    model(torch.randn(64, 6))  # running statistics worth the name
    return model.eval()


@pytest.mark.parametrize("span", [(0.0, 0.0), (3.0, 3.0), (-2.0, 4.0), (-9.0, -9.0)])
def test_rescaling_leaves_the_function_alone(net, span):
    x = torch.randn(10, 6, dtype=torch.float64)
    twin, same = rescaled_twin(net, x, *span), rescaled_twin(net, x, 0.0, 0.0)
    assert torch.allclose(twin(x), same(x), rtol=1e-9, atol=1e-9)
    variances = [buffer for name, buffer in twin.named_buffers() if name.endswith("running_var")]
    assert len(variances) == 2 and all((variance >= 0).all() for variance in variances)
    weights = [layer.linear.weight / other.linear.weight for layer, other in zip(twin.layers, same.layers, strict=True)]
    assert all((ratio != 1).any() for ratio in weights) is (span != (0.0, 0.0))


def test_rescaling_moves_the_weights_of_the_copy_only(net):
    before = net.layers[0].linear.weight.clone()
    twin = rescaled_twin(net, torch.randn(4, 6, dtype=torch.float64), 3.0, 3.0)
    assert torch.allclose(twin.layers[0].linear.weight, 1000 * before.double())
    assert torch.equal(net.layers[0].linear.weight, before)
