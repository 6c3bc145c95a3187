"""Images on the device."""

from __future__ import annotations

import pytest
import torch

from experiments.generalization import data
from normgauge import NormgaugeError


def test_pixels_are_shares(images: data.Data) -> None:
    assert images.real(images.train).max() == 1.0
    assert images.shape == (3, 8, 8)


def test_a_split_has_every_place_once() -> None:
    first, rest = data.split(100, 30, seed=1)
    assert len(first) == 30
    assert sorted([*first.tolist(), *rest.tolist()]) == list(range(100))
    assert not torch.equal(first, data.split(100, 30, seed=2)[0])


@pytest.mark.parametrize("first", [0, 100, 101])
def test_a_split_without_a_rest_is_refused(first: int) -> None:
    with pytest.raises(NormgaugeError, match="1 to 99 of 100"):
        data.split(100, first, seed=0)


def test_subset_keeps_the_test_images(images: data.Data) -> None:
    some = data.subset(images, torch.tensor([3, 1]))
    assert torch.equal(some.labels, images.labels[[3, 1]])
    assert torch.equal(some.train, images.train[[3, 1]])
    assert some.test is images.test


def test_noise_is_in_training_and_test_labels_alike(images: data.Data) -> None:
    clouded = data.noisy(images, 0.5, seed=0)
    changed = [
        float((a != b).float().mean())
        for a, b in ((clouded.labels, images.labels), (clouded.test_labels, images.test_labels))
    ]
    assert all(0.35 < share < 0.55 for share in changed)  # 0.45 are expected
    assert torch.equal(data.noisy(images, 0.0, seed=0).labels, images.labels)


def test_without_augmentation_images_are_as_they_are(images: data.Data) -> None:
    assert data.augmented(images.train) is images.train


def test_shifts_and_flips_are_those_asked_for() -> None:
    picture = torch.zeros(1, 1, 5, 5, dtype=torch.uint8)
    picture[0, 0, 2, 1] = 9
    torch.manual_seed(0)
    made = data.augmented(picture.repeat(400, 1, 1, 1), shift=1, flip=True)
    assert made.shape == (400, 1, 5, 5)
    assert made.dtype == torch.uint8
    places = {tuple(p) for p in made[:, 0].nonzero()[:, 1:].tolist()}
    # column 1 or, mirrored, 3; one to each side
    assert places == {(y, x) for y in (1, 2, 3) for x in (0, 1, 2, 3, 4)}
    assert int((made > 0).sum()) == 400


def test_pixels_move_out_at_the_edge_and_black_comes_in() -> None:
    torch.manual_seed(0)
    made = data.augmented(torch.full((50, 1, 3, 3), 7, dtype=torch.uint8), shift=2)
    assert set(made.unique().tolist()) == {0, 7}


def test_cutout_blackens_a_square() -> None:
    torch.manual_seed(0)
    made = data.augmented(torch.ones(200, 2, 6, 6, dtype=torch.uint8), cutout=2)
    black = (made == 0).sum(dim=(2, 3))
    assert torch.equal(black[:, 0], black[:, 1])
    assert set(black.unique().tolist()) <= {1, 2, 4}  # less at the edges
    assert int(black.max()) == 4
