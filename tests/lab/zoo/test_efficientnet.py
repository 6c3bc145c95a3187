"""EfficientNet-B3: torchvision's names and sizes, and stochastic depth."""

from __future__ import annotations

import pytest
import torch

from normgauge.lab.zoo import efficientnet_b3
from normgauge.lab.zoo.efficientnet import StochasticDepth
from tests.lab.zoo.networks import size, train_steps


def test_efficientnet_is_torchvisions() -> None:
    model = efficientnet_b3()
    state = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert size(model) == 10_711_602
    assert state["features.0.0.weight"] == (40, 3, 3, 3)
    assert state["features.0.1.running_mean"] == (40,)
    assert state["features.1.0.block.0.0.weight"] == (40, 1, 3, 3)  # depthwise: the first stage does not expand
    assert state["features.1.0.block.1.fc1.weight"] == (10, 40, 1, 1)
    assert state["features.1.0.block.2.0.weight"] == (24, 40, 1, 1)
    assert state["features.2.0.block.0.0.weight"] == (144, 24, 1, 1)
    assert state["features.2.0.block.2.fc1.weight"] == (6, 144, 1, 1)
    assert state["features.3.1.block.1.0.weight"] == (288, 1, 5, 5)
    assert state["features.7.1.block.3.1.bias"] == (384,)
    assert state["features.8.0.weight"] == (1536, 384, 1, 1)
    assert state["classifier.1.weight"] == (10, 1536)
    assert [len(stage) for stage in list(model.features)[1:-1]] == [2, 3, 3, 5, 5, 6, 2]
    drops = [module.p for module in model.modules() if isinstance(module, StochasticDepth)]
    assert drops == pytest.approx([0.2 * k / 26 for k in range(26)])


def test_stochastic_depth_drops_rows_in_training_only() -> None:
    layer, x = StochasticDepth(0.5), torch.ones(64, 2, 3, 3)
    kept = layer(x)
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(kept, kept[:, :1, :1, :1].expand_as(kept))
    assert layer.eval()(x) is x


def test_efficientnet_runs_and_trains() -> None:
    train_steps(efficientnet_b3(), torch.randn(4, 3, 32, 32), torch.arange(4), steps=1)


@pytest.mark.parametrize("norm", ["group", None])
def test_efficientnet_norms(norm: str | None) -> None:
    with torch.no_grad():
        assert efficientnet_b3(7, norm=norm).eval()(torch.randn(1, 3, 32, 32)).shape == (1, 7)
