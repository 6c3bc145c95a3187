"""Error against the number of samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.generalization import data, samples, train
from experiments.generalization.place import Place

SETTINGS: dict[str, Any] = {
    "data": "digits",
    "seed": 0,
    "net": "mlp",
    "norm": "batch",
    "width": 16,
    "depth": 1,
    "sizes": [50, 400, 100_000],
    "batch": 25,
    "steps": 100,
    "epochs": 5,
    "recipe": {"optimizer": "adamw", "lr": 5e-3},
}


def test_more_samples_make_fewer_errors(tmp_path: Path) -> None:
    rows = samples.run(SETTINGS, Place(tmp_path))["sizes"]
    assert [row["m"] for row in rows] == [50, 400]  # no larger than the data
    assert [row["epochs"] for row in rows] == [50, 6]
    assert rows[1]["test_error"] < rows[0]["test_error"]


def test_a_larger_sample_holds_the_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def fit(model: Any, own: data.Data, *_: Any) -> bool:
        seen.append(own.train)
        return True

    monkeypatch.setattr(train, "fit", fit)
    samples.run(SETTINGS, Place(tmp_path))
    samples.run({**SETTINGS, "seed": 1, "sizes": [50]}, Place(tmp_path / "other"))
    assert torch.equal(seen[0], seen[1][:50])
    assert not torch.equal(seen[0], seen[2])


def test_sizes_beyond_the_data_give_all_but_one(tmp_path: Path, images: data.Data) -> None:
    rows = samples.run({**SETTINGS, "sizes": [10**6], "steps": 1, "epochs": 1}, Place(tmp_path))["sizes"]
    assert [row["m"] for row in rows] == [len(images.labels) - 1]
