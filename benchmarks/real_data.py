"""What several benchmarks begin with: the folder of data, networks trained on MNIST, ResNets with published weights."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from normgauge.lab.training import train
from normgauge.lab.zoo import IMAGENET_MEAN, IMAGENET_STD, Split, cifar10, cifar_resnet, load_state, mnist

TRAINED = 10_000  # images of an epoch


def data_folder() -> Path | None:
    """Where mnist/, weights/ and cifar-10-batches-bin/ lie, one thread set; None, and said, where it is not known."""
    folder = os.environ.get("NORMGAUGE_DATA")
    if folder is None:
        print("set NORMGAUGE_DATA to the folder with mnist/, weights/ and cifar-10-batches-bin/; nothing was measured")
        return None
    torch.set_num_threads(1)
    return Path(folder)


def trained(
    make: Callable[[], nn.Module], folder: Path, epochs: int, images: int, seed: int = 0
) -> tuple[nn.Module, Split]:
    """A network after some epochs of MNIST, and test images."""
    torch.manual_seed(seed)
    model = make()
    train(model, mnist("train", folder=folder, limit=TRAINED), epochs=epochs, seed=seed)
    return model.eval(), mnist("test", folder=folder, limit=images)


def real_resnet(depth: int, folder: Path, images: int) -> tuple[nn.Module, Split]:
    """A CIFAR ResNet with its published weights, and test images."""
    model = load_state(cifar_resnet(depth), folder / "weights" / f"resnet{depth}_cifar10.safetensors").eval()
    return model, cifar10("test", folder=folder, limit=images).normalized(IMAGENET_MEAN, IMAGENET_STD)
