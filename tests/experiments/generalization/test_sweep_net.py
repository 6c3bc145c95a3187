"""One network of each kind, trained and scored on made-up images."""

from __future__ import annotations

import json
import math
import os

import pytest
import torch

from experiments.generalization import sweep_net
from experiments.generalization.sweep_net import Images
from experiments.generalization.sweep_plan import GRIDS, Net
from normgauge.certificates.scores import DataSample, cells_of

NETS = (
    Net("mlp", "batch", 2, 16, 0.05, 32, 0.0, 0, "made"),
    Net("cnn", "group", 3, 4, 0.05, 32, 1e-3, 0, "made"),
    Net("cnn", "none", 2, 4, 0.05, 32, 0.0, 1, "made"),
)


def made(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of 8x8 in ten classes: a bright spot whose place is the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 10
    x = 0.7 * torch.randn(count, 1, 8, 8, generator=generator)
    for k in range(10):
        x[labels == k, 0, k % 5 + 1, 3 * (k // 5) + 2] += 4.0
    return x, labels


@pytest.fixture(scope="module")
def shown() -> Images:
    train, fresh, test = made(200, 0), made(200, 1), made(200, 2)
    return Images(*train, fresh[0], *test, cells_of(DataSample(fresh[0], None)))


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.key)
def test_one_network_is_trained_to_the_target_scored_and_tested(net, shown):
    told = sweep_net.run(net, shown, steps=600)
    assert told["reached"] and told["train_loss"] <= sweep_net.TARGET
    assert told["gap"] == pytest.approx(told["test_error"] - told["train_error"])
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    scores = told["scores"]
    assert {"params", "fro-dist", "cell-sensitivity", "balanced-capacity-margin", "mag-flatness"} <= set(scores)
    assert ("path-norm" in scores) is (net.norm != "group")
    assert all(map(math.isfinite, scores.values()))


def test_a_network_is_the_same_each_time(shown):
    one, other = (sweep_net.run(NETS[0], shown, steps=14) for _ in range(2))
    assert one["scores"] == other["scores"] and one["test_loss"] == other["test_loss"]


def test_a_network_out_of_steps_is_counted_as_not_reached(shown):
    told = sweep_net.run(NETS[0], shown, steps=1)
    assert not told["reached"] and told["epochs"] == 1 and told["scores"]


def test_a_network_that_diverges_has_no_scores(shown):
    told = sweep_net.run(Net("mlp", "none", 2, 16, 1e9, 32, 0.0, 0, "made"), shown, steps=20)
    assert told["diverged"] and told["scores"] == {} and not told["reached"]
    json.dumps(told, allow_nan=False)


@pytest.mark.data
@pytest.mark.skipif("NORMGAUGE_DATA" not in os.environ, reason="NORMGAUGE_DATA names no folder of data")
def test_the_real_images_are_disjoint_and_scaled():
    here = sweep_net.images("fashion_mnist", 300, 200, 100)
    assert len(here.train) == 300 and len(here.fresh) == 200 and len(here.test) == 100
    assert float(here.train.mean()) == pytest.approx(0.0, abs=1e-4)
    assert here.cells.cells == 20


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)], ids=["fashion", "cifar"])
@pytest.mark.parametrize("norm", GRIDS["cnn"]["norm"])
def test_a_cnn_fits_its_images_and_has_one_normalizer_a_convolution(norm, shape):
    net = sweep_net.build(Net("cnn", norm, 3, 8, 0.1, 32, 0.0, 0), shape)
    assert net.eval()(torch.zeros(2, *shape)).shape == (2, 10)
    normalizers = [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d | torch.nn.GroupNorm)]
    assert len(normalizers) == (0 if norm == "none" else 3)
