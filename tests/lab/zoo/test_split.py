"""A split: the first examples, another shape, normalized channels."""

from __future__ import annotations

import torch

from normgauge.lab.zoo import Split, digits


def test_split_views() -> None:
    split = digits(limit=6)
    assert split.first(2).inputs.shape == (2, 64)
    assert split.shaped(1, 8, 8).inputs.shape == (6, 1, 8, 8)
    image = Split(torch.full((1, 2, 1, 1), 0.5), torch.zeros(1, dtype=torch.int64))
    assert image.normalized((0.5, 0.0), (1.0, 0.25)).inputs.flatten().tolist() == [0.0, 2.0]
