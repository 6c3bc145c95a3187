"""Local against global constants."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.generalization import data, local, nets
from experiments.generalization.place import Place

SETTINGS: dict[str, Any] = {
    "data": "digits",
    "seed": 0,
    "samples": 200,
    "norm": "layer",
    "width": 12,
    "depth": 1,
    "decays": [0.0],
    "noises": [0.0, 0.5],
    "radii": [0.01, 1.0],
    "points": 4,
    "recipe": {"epochs": 5, "batch": 50, "optimizer": "adamw", "lr": 5e-3},
}


def test_a_unit_measures_every_network(tmp_path: Path) -> None:
    told = local.run(SETTINGS, Place(tmp_path))
    assert [net["noise"] for net in told["nets"]] == [0.0, 0.5]
    for net in told["nets"]:
        low, high = net["balls"]
        # what is proved for more inputs is no smaller, and no slope at the samples is above what is proved there
        assert net["point"] <= low <= high <= net["global"]
        assert net["jacobian_mean"] <= net["jacobian_max"]
        assert net["masked"] == [None, None]
    assert told["nets"][1]["test_error"] > told["nets"][0]["test_error"]


def test_jacobians_are_those_of_a_linear_map() -> None:
    model = nets.build("mlp", "none", (1, 2, 2), width=4, depth=0)
    norm = torch.linalg.matrix_norm(model.head.weight.double(), ord=2)  # type: ignore[union-attr, operator]
    torch.testing.assert_close(local.jacobians(model, torch.rand(3, 1, 2, 2)), norm.expand(3), rtol=1e-5, atol=0)


def test_the_largest_slope_is_below_the_proved_one(images: data.Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "IMAGES", 24)
    model = nets.build("mlp", "batch", images.shape, width=8, depth=2)
    told = local.constants(model, images, [0.1], points=local.IMAGES)
    assert told["jacobian_max"] <= told["masked"][0] and told["jacobian_max"] <= told["balls"][0] + 1e-6


def test_margins_are_of_the_right_class(images: data.Data) -> None:
    model = nets.build("mlp", "none", images.shape, width=4, depth=0)
    with torch.no_grad():
        model.head.weight.zero_()  # type: ignore[union-attr, operator]
        model.head.bias.copy_(torch.arange(10.0))  # type: ignore[union-attr, operator]
    # the right logit is its number, the largest other one 9, or 8 for class 9: −9, ..., −1, 1
    expected = (images.labels.float() - torch.where(images.labels == 9, 8.0, 9.0)).median()
    assert local.median_margin(model, images) == float(expected)


def test_neighbours_are_others() -> None:
    assert local.neighbour(torch.tensor([[0.0], [1.0], [3.0]])) == 1.0
    assert local.neighbour(torch.tensor([[0.0], [2.0], [3.0]]), limit=2) == pytest.approx(2.0)
    assert math.isfinite(local.neighbour(torch.rand(5, 1, 2, 2)))
