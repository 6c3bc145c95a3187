"""The data of a run as tensors on its device, scaled so that no image has a norm above 1."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import torch

from experiments.than2025.plan import PlanError
from normgauge.lab import zoo

EVAL = 10_000  # training images used for the accuracy at the end of an epoch


@dataclass(frozen=True, slots=True)
class Data:
    """Images as bytes with the factor that scales them: ‖x‖ ≤ 1 for every image there can be.

    A pixel in [0, 1] is divided by √(number of pixels and channels), the norm of the whitest image.

    Attributes:
        train: uint8 (n, channels, height, width).
        labels: int64 (n,).
        test: uint8, the test images.
        test_labels: int64.
        scale: what a byte is multiplied with.
    """

    train: torch.Tensor
    labels: torch.Tensor
    test: torch.Tensor
    test_labels: torch.Tensor
    scale: float

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image."""
        return tuple(self.train.shape[1:])

    def real(self, images: torch.Tensor) -> torch.Tensor:
        """Bytes as the network sees them."""
        return images.float() * self.scale


def load(name: str, device: torch.device, folder: str | os.PathLike[str] | None = None) -> Data:
    """Read a data set onto a device.

    Args:
        name: a data set of ``normgauge.lab.zoo``.
        device: where the tensors go.
        folder: where the files are; None for NORMGAUGE_DATA.

    Returns:
        The data; digits are given three equal channels, so that every network can see them.

    Raises:
        PlanError: if the set is not one of images.
    """
    if name not in ("cifar10", "mnist", "fashion_mnist", "digits"):
        raise PlanError(f"data={name!r} are not images; use cifar10, mnist, fashion_mnist or digits.")
    halves = []
    for half in ("train", "test"):
        split = zoo.digits(half) if name == "digits" else zoo.DATASETS[name](half, folder=folder)
        if name == "digits":
            split = split.shaped(1, 8, 8)
        images = (split.inputs * 255).round().to(torch.uint8)
        images = images.repeat(1, 3, 1, 1) if name == "digits" else images
        halves += [images.to(device), split.labels.to(device)]
    size = math.prod(halves[0].shape[1:])
    return Data(halves[0], halves[1], halves[2], halves[3], 1 / (255 * math.sqrt(size)))
