"""What would make every row false: shared samples, augmented inputs, labels that were shuffled."""

from __future__ import annotations

import math
from collections import Counter

import torch

from normgauge.errors import InputError
from normgauge.generalization.facts.cells import nearest
from normgauge.generalization.facts.sample import Sample

REPEATED = 0.01  # share of copies that nature may make
NEAR = 300  # fresh samples compared with all of train
LOOKED_AT = 2000  # samples whose nearest neighbours are compared
UNLIKELY = 4.0  # standard deviations


def refuse_shared(train: list[bytes], other: list[bytes], name: str) -> None:
    """Refuse samples that are in both.

    Raises:
        InputError: with the count.
    """
    seen = set(train)
    both = sum(mark in seen for mark in other)
    if both:
        raise InputError(
            f"{name}: {both} of its {len(other)} samples are training samples too; nothing can be promised about "
            f"unseen data with them. Take them out of {name}: the network has seen them"
        )


def refuse_repeated(marks: list[bytes], name: str) -> None:
    """Refuse fresh samples that are the same few again and again: their number would be worth too much.

    Raises:
        InputError: with the count.
    """
    extra = len(marks) - len(set(marks))
    if extra > REPEATED * len(marks):
        raise InputError(
            f"{name}: {extra} of its {len(marks)} samples are exact copies of others in it; each counts as a sample of "
            "its own, which copies are not. Give every sample once"
        )


def near_copies(train: Sample, fresh: Sample) -> tuple[int, int]:
    """How many fresh samples, of so many looked at, are nearly training samples.

    Nearly: closer than a twentieth of the median distance of fresh samples to the nearest other fresh one.
    """
    count = min(len(fresh), NEAR)
    points = fresh.take(range(count)).flatten(1).float()
    if count < 2:
        return 0, count
    apart = torch.cdist(points, points)
    apart.fill_diagonal_(math.inf)
    scale = float(apart.amin(1).median()) / 20
    closest = torch.full((count,), math.inf)
    for batch in train.batches(2048):
        closest = torch.minimum(closest, nearest(points, batch.flatten(1).float())[1].sqrt())
    return int((closest < scale).sum()), count


def warnings_of(train: Sample, marks: list[bytes], holdout: Sample | None, classes: int) -> list[str]:
    """Sentences about the training sample; empty where nothing is suspicious."""
    said = []
    if train.changing:
        said.append(
            "train: reading a sample twice gave two different inputs (augmentation?). The bounds need the raw iid "
            "sample: give the data set without random transforms"
        )
    extra = len(marks) - len(Counter(marks))
    if extra:
        said.append(
            f"train: {extra} of {len(marks)} samples are exact copies of others. A sample made by copying or "
            "augmenting is not iid, and no bound holds for it; copies that occur in nature do no harm"
        )
    flipped = _mirrored(train)
    if flipped:
        said.append(
            f"train: {flipped} samples are mirror images of others: an augmented sample is not iid, and no bound holds "
            "for it"
        )
    if holdout is not None:
        close, count = near_copies(train, holdout)
        if close > REPEATED * count:
            said.append(
                f"holdout: {close} of the first {count} samples are nearly training samples (moved, rescaled or noisy "
                "copies?). A hold-out the training has as good as seen promises nothing"
            )
    agreement = label_agreement(train)
    chance = _chance(train, classes)
    count = min(len(train), LOOKED_AT)
    spread = math.sqrt(chance * (1 - chance) / count)
    if count >= 50 and agreement < chance + UNLIKELY * spread and chance < 0.9:
        said.append(
            f"train: neighbours share a label no more often than chance ({agreement:.3f} against {chance:.3f}): labels "
            "look shuffled. What is computed from them speaks about data with such labels, not about the true ones"
        )
    elif holdout is not None and holdout.labels is not None and min(count, len(holdout)) >= 200:
        size = min(count, len(holdout))
        first, second = label_agreement(train, size), label_agreement(holdout, size)
        spread = math.sqrt(2 * max(second * (1 - second), 1 / size) / size)
        if first < second - UNLIKELY * spread:
            said.append(
                f"train: neighbours share a label less often than in the hold-out ({first:.3f} against {second:.3f}): "
                "some labels may be shuffled. Train and hold-out must come from one source"
            )
    return said


def label_agreement(sample: Sample, count: int = LOOKED_AT) -> float:
    """The share of samples whose nearest neighbour, among as many, has their label."""
    assert sample.labels is not None
    chosen = torch.randperm(len(sample), generator=torch.Generator().manual_seed(0))[:count]
    points = sample.take(chosen).flatten(1).float()
    labels = sample.labels[chosen]
    if len(points) < 2:
        return 1.0
    apart = torch.cdist(points, points)
    apart.fill_diagonal_(math.inf)
    return float((labels[apart.argmin(1)] == labels).double().mean())


def _chance(sample: Sample, classes: int) -> float:
    assert sample.labels is not None
    shares = torch.bincount(sample.labels, minlength=classes).double() / len(sample)
    return float(shares.square().sum())


def _mirrored(sample: Sample) -> int:
    """How many of the first samples, as images, are another one's mirror image and not their own."""
    first = sample.take(range(min(len(sample), LOOKED_AT)))
    if first.ndim != 4 or first.shape[-1] < 4:
        return 0
    flat, turned = first.flatten(1).float(), first.flip(-1).flatten(1).float()
    own = (flat == turned).all(1)
    _, squares = nearest(turned, flat)
    return int(((squares == 0) & ~own).sum())


__all__ = ["label_agreement", "near_copies", "refuse_repeated", "refuse_shared", "warnings_of"]
