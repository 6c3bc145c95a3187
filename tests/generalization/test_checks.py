import pytest
import torch

from normgauge.errors import InputError
from normgauge.generalization.checks import (
    label_agreement,
    near_copies,
    refuse_repeated,
    refuse_shared,
    warnings_of,
)
from normgauge.generalization.facts.hashes import fingerprints_of
from normgauge.generalization.facts.sample import Sample
from normgauge.zoo.data import digits


def said(train: Sample, holdout: Sample | None = None) -> str:
    return " ".join(warnings_of(train, fingerprints_of(train), holdout, 10))


@pytest.fixture
def train() -> Sample:
    return Sample.of(digits("train"), "train")


@pytest.fixture
def test() -> Sample:
    return Sample.of(digits("test"), "holdout")


def test_shared_samples_are_refused_with_the_count(train: Sample, test: Sample) -> None:
    assert test.inputs is not None and train.inputs is not None
    marks = fingerprints_of(train)
    refuse_shared(marks, fingerprints_of(test), "holdout")
    both = Sample(torch.cat([test.inputs, train.inputs[:17]]), None)
    with pytest.raises(InputError, match="17 of its 372 samples"):
        refuse_shared(marks, fingerprints_of(both), "holdout")


def test_a_plain_sample_raises_no_word(train: Sample, test: Sample) -> None:
    assert said(train, test) == ""
    assert label_agreement(train) > 0.9


def test_shuffled_labels(train: Sample, test: Sample) -> None:
    assert train.labels is not None
    generator = torch.Generator().manual_seed(0)
    shuffled = Sample(train.inputs, train.labels[torch.randperm(len(train), generator=generator)])
    assert "shuffled" in said(shuffled)
    some = train.labels.clone()
    some[:500] = some[:500][torch.randperm(500, generator=generator)]
    assert "some labels may be shuffled" in said(Sample(train.inputs, some), test)


def test_copies_and_mirror_images(train: Sample) -> None:
    assert train.inputs is not None and train.labels is not None
    copied = Sample(train.inputs.repeat(2, 1), train.labels.repeat(2))
    assert "1442 of 2884 samples are exact copies" in said(copied)
    images = train.inputs[:300].reshape(-1, 1, 8, 8)
    assert "mirror" not in said(Sample(images, train.labels[:300]))
    both = Sample(torch.cat([images, images.flip(3)]), train.labels[:300].repeat(2))
    assert "mirror images" in said(both)


def test_augmentation(train: Sample) -> None:
    assert "augmentation" in said(Sample(train.inputs, train.labels, None, changing=True))


def test_repeated_fresh_samples_are_refused(test: Sample) -> None:
    assert test.inputs is not None
    refuse_repeated(fingerprints_of(test), "holdout")
    with pytest.raises(InputError, match="355 of its 710 samples are exact copies"):
        refuse_repeated(fingerprints_of(Sample(test.inputs.repeat(2, 1), None)), "holdout")


def test_noisy_copies_of_the_training_set_are_noticed(train: Sample, test: Sample) -> None:
    assert train.inputs is not None and train.labels is not None
    assert near_copies(train, test) == (0, 300)
    noisy = Sample(train.inputs[:300] + 1e-4, train.labels[:300])
    assert near_copies(train, noisy) == (300, 300)
    assert "300 of the first 300 samples are nearly training samples" in said(train, noisy)
    assert near_copies(train, noisy.part(torch.tensor([0]))) == (0, 1)
