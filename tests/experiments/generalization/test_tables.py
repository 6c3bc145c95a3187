"""Certificates of networks with and without normalizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import normgauge as ng
from experiments.generalization import data, nets, tables
from experiments.generalization.place import Place

SETTINGS: dict[str, Any] = {
    "data": "digits",
    "net": "cnn",
    "norm": "batch",
    "width": 2,
    "depth": 1,
    "seed": 0,
    "delta": 0.1,
    "epochs": 0,
    "limit": 300,
    "recipe": {"epochs": 1, "batch": 50, "optimizer": "adamw", "lr": 5e-3},
}


def test_train_and_the_two_halves_of_the_test_images_are_given(
    images: data.Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {}

    class Made:
        def to_json(self) -> dict[str, Any]:
            return {"rows": []}

    def certify(model: torch.nn.Module, train: Any, **options: Any) -> Made:
        told.update(options, train=train, training=model.training)
        return Made()

    monkeypatch.setattr(ng, "certify", certify)
    found = tables.run(SETTINGS, Place(tmp_path))
    assert found["certificate"] == {"rows": []}
    assert {"train_error", "test_error"} <= set(found["errors"])
    assert torch.equal(told["train"][0], images.real(images.train[:300]))
    assert torch.equal(told["train"][1], images.labels[:300])
    assert torch.equal(told["holdout"][1], images.test_labels[:150])
    assert torch.equal(told["unlabeled"], images.real(images.test[150:300]))
    start = nets.build("cnn", "batch", images.shape, width=2, depth=1, seed=0).state_dict()
    assert told["initial"].keys() == start.keys()
    assert all(torch.equal(told["initial"][name], tensor) for name, tensor in start.items())
    assert (told["delta"], told["epochs"], told["seed"], told["training"]) == (0.1, 0, 0, False)


def test_an_error_on_the_cpu_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def certify(*_: Any, **__: Any) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(ng, "certify", certify)
    with pytest.raises(RuntimeError, match="no memory"):
        tables.run(SETTINGS, Place(tmp_path))


def test_what_the_device_cannot_do_is_done_on_the_cpu(
    images: data.Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Made:
        def to_json(self) -> dict[str, Any]:
            return {"rows": []}

    def certify(*_: Any, **__: Any) -> Made:
        if not capsys.readouterr().out:  # nothing has been said yet: the first call
            raise RuntimeError("not on this device\nmore")
        return Made()

    monkeypatch.setattr(ng, "certify", certify)
    monkeypatch.setattr(data, "load", lambda *_: images)
    assert tables.run(SETTINGS, Place(tmp_path, device="cuda"))["device"] == "cpu"
