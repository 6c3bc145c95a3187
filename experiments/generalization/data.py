"""Images as bytes on the device: read, cut to size, with noise in the labels, moved about while training."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.than2025.data import Data
from experiments.than2025.data import load as load_unit
from normgauge import NormgaugeError

__all__ = ["Data", "augmented", "load", "noisy", "split", "subset"]


def load(name: str, device: str, folder: str | None = None) -> Data:
    """A data set on a device; networks see pixels in [0, 1]."""
    return dataclasses.replace(load_unit(name, torch.device(device), folder), scale=1 / 255)


def subset(data: Data, chosen: Tensor) -> Data:
    """The same data with some of the training images only."""
    at = chosen.to(data.labels.device)
    return dataclasses.replace(data, train=data.train[at], labels=data.labels[at])


def split(count: int, first: int, seed: int) -> tuple[Tensor, Tensor]:
    """A random split of ``count`` places in two, ``first`` of them in the first.

    Raises:
        NormgaugeError: where one part would be empty.
    """
    if not 0 < first < count:
        raise NormgaugeError(f"expected a first part of 1 to {count - 1} of {count} images, got {first}")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[:first], order[first:]


def noisy(data: Data, share: float, seed: int, classes: int = 10) -> Data:
    """Each label, of training and test alike, is drawn anew with this probability.

    Training and test images keep one distribution, so the gap between them means what it means without noise.
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(labels: Tensor) -> Tensor:
        hit = torch.rand(len(labels), generator=generator) < share
        fresh = torch.randint(classes, (len(labels),), generator=generator)
        return torch.where(hit.to(labels.device), fresh.to(labels.device), labels)

    return dataclasses.replace(data, labels=drawn(data.labels), test_labels=drawn(data.test_labels))


def augmented(images: Tensor, *, shift: int = 0, flip: bool = False, cutout: int = 0) -> Tensor:
    """Images moved by up to ``shift`` pixels, mirrored half of the time, with a square painted black.

    Everything is drawn on the images' own device from its default generator, so that a CUDA graph can hold it.

    Args:
        images: (n, channels, height, width), bytes.
        shift: pixels, filled with black at the edges.
        flip: whether left and right may change.
        cutout: side of the square; 0 for none.

    Returns:
        As many images of the same size.
    """
    if not (shift or flip or cutout):
        return images
    count, _, height, width = images.shape
    device = images.device
    row, column = (torch.arange(size, device=device) for size in (height, width))

    def drawn(high: int) -> Tensor:
        return torch.randint(high, (count, 1), device=device)

    y, x = row + drawn(2 * shift + 1), column.expand(count, width)  # (n, height), (n, width)
    if flip:
        x = torch.where(drawn(2) == 1, width - 1 - x, x)
    x = x + drawn(2 * shift + 1)
    padded = F.pad(images, (shift, shift, shift, shift))
    each = torch.arange(count, device=device)[:, None, None]
    moved = padded[each, :, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)
    if not cutout:
        return moved
    top, left = drawn(height) - cutout // 2, drawn(width) - cutout // 2
    rows, columns = ((p >= q) & (p < q + cutout) for p, q in ((row, top), (column, left)))
    return moved * ~(rows[:, None, :, None] & columns[:, None, None, :])
