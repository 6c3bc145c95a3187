"""Training on attacked images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from experiments.generalization import adversarial, data, nets
from experiments.generalization.place import Place

SETTINGS: dict[str, Any] = {
    "data": "digits",
    "seed": 0,
    "samples": 400,
    "net": "mlp",
    "norm": "none",
    "width": 32,
    "depth": 1,
    "sizes": [0.0, 1.5],
    "steps": 3,
    "test_size": 1.0,
    "radii": [0.1],
    "points": 4,
    "recipe": {"epochs": 15, "batch": 50, "optimizer": "adamw", "lr": 5e-3},
}


def test_attacks_stay_in_the_ball_and_raise_the_loss(images: data.Data) -> None:
    model = nets.build("cnn", "batch", images.shape, width=4, depth=1)
    inputs, labels = images.real(images.train[:50]), images.labels[:50]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    moved = adversarial.attack(0.5, 4)(model, inputs, labels)
    assert float((moved - inputs).flatten(1).norm(dim=1).max()) <= 0.5 + 1e-5
    assert float(moved.min()) >= 0.0
    assert float(moved.max()) <= 1.0
    assert model.training  # as before, statistics too
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model.eval()
    losses = F.cross_entropy(model(torch.cat([inputs, moved])), labels.repeat(2), reduction="none").view(2, -1)
    assert bool((losses[1] >= losses[0]).float().mean() > 0.95)


def test_attacked_training_makes_networks_that_attacks_hurt_less(tmp_path: Path) -> None:
    plain, hardened = adversarial.run(SETTINGS, Place(tmp_path))["nets"]
    assert plain["attacked_error"] > plain["test_error"]
    assert hardened["attacked_error"] < plain["attacked_error"]
    assert hardened["jacobian_mean"] < plain["jacobian_mean"]


def test_every_test_image_is_attacked_with_its_own_label(images: data.Data) -> None:
    model = nets.build("mlp", "none", images.shape, width=8, depth=1)
    own = data.subset(images, torch.arange(10))
    untouched = adversarial.attacked(model, own, lambda _, inputs, __: inputs)
    said = model(own.real(own.test)).argmax(1)
    assert untouched == float((said != own.test_labels).double().mean())
