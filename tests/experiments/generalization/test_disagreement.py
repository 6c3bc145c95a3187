"""The certificate of an unmodified network."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.generalization import data, disagreement, train
from experiments.generalization.place import LateError, Place

SETTINGS: dict[str, Any] = {
    "data": "digits",
    "seed": 0,
    "first": 900,
    "surrogates": 2,
    "delta": 0.05,
    "net": "cnn",
    "norm": "batch",
    "width": 4,
    "depth": 1,
    "recipe": {"epochs": 4, "batch": 50, "lr": 0.1},
}


def test_the_terms_are_exact_limits_at_half_of_delta() -> None:
    told = disagreement.certificate(wrong=0, rest=100, differ=0, unlabeled=1000, delta=0.05)
    assert told["surrogate"] == pytest.approx(1 - 0.025 ** (1 / 100), rel=1e-9)
    assert told["disagreement"] == pytest.approx(1 - 0.025 ** (1 / 1000), rel=1e-9)
    assert told["bound"] >= told["surrogate"] + told["disagreement"]


def test_a_bound_is_no_more_than_everything() -> None:
    assert disagreement.certificate(90, 100, 900, 1000, 0.05)["bound"] == 1.0


def test_the_bound_holds_as_often_as_it_says() -> None:
    # the worst case: f is wrong wherever it differs from h, R(f) = R(h) + P(f ≠ h)
    draw, error, differ, missed = random.Random(0), 0.08, 0.05, 0
    for _ in range(1000):
        wrong, other = (sum(draw.random() < p for _ in range(60)) for p in (error, differ))
        missed += disagreement.certificate(wrong, 60, other, 60, 0.3)["bound"] < error + differ
    assert 0 < missed <= 346  # the 99.9 % quantile of Bin(1000, 0.3)


def test_the_surrogates_never_see_the_rest(images: data.Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    held: list[torch.Tensor] = []
    counted = disagreement.counted

    def fit(model: Any, own: data.Data, *_: Any, **__: Any) -> bool:
        seen.append(own.train)
        return True

    def spy(surrogates: Any, own: data.Data, rest: torch.Tensor, *more: Any) -> dict[str, int]:
        held.append(rest)
        return counted(surrogates, own, rest, *more)

    monkeypatch.setattr(train, "fit", fit)
    monkeypatch.setattr(disagreement, "counted", spy)
    disagreement.run(SETTINGS, Place(tmp_path))
    assert [len(s) for s in seen] == [len(images.labels), 900, 900]
    assert len(held[0]) == len(images.labels) - 900
    rows = {bytes(row.flatten().tolist()) for row in seen[1]}
    everything = {bytes(row.flatten().tolist()) for row in images.train}
    assert {bytes(row.flatten().tolist()) for row in held[0]} == everything - rows
    assert torch.equal(seen[1], seen[2])


def test_a_unit_from_training_to_certificate(tmp_path: Path) -> None:
    told = disagreement.run(SETTINGS, Place(tmp_path))
    counts, made = told["counts"], told["certificate"]
    assert counts["rest"] == counts["samples"] - 900
    assert counts["unlabeled"] == 355
    assert told["truth"]["error"] < made["bound"] < 0.7
    assert told["truth"]["error"] < told["holdout"] < made["bound"]
    again = disagreement.run(SETTINGS, Place(tmp_path))  # from its checkpoints
    assert again == told


def test_when_the_time_is_up_the_networks_so_far_are_kept(tmp_path: Path) -> None:
    place = Place(tmp_path, until=time.time())
    with pytest.raises(LateError, match="run the command again"):
        disagreement.run(SETTINGS, place)
    assert [p.name for p in tmp_path.iterdir()] == ["f.pt"]


def test_the_vote_is_of_mean_probabilities(images: data.Data) -> None:
    class Says(torch.nn.Module):
        def __init__(self, *logits: float) -> None:
            super().__init__()
            self.logits = torch.tensor(logits)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.logits.expand(len(x), -1)

    # the first is nearly sure of class 1, two lean to class 0: means 0.52 and 0.48
    models = [Says(0.0, 9.0), Says(1.5, 0.0), Says(1.0, 0.0)]
    assert disagreement.vote(models, images, images.test).unique().tolist() == [0]
    assert disagreement.vote(models[:2], images, images.test).unique().tolist() == [1]


def test_a_cut_takes_the_first(images: data.Data) -> None:
    some = disagreement.cut(images, 20)
    assert torch.equal(some.train, images.train[:20])
    assert torch.equal(some.test_labels, images.test_labels[:20])
    assert disagreement.cut(images, None) is images
