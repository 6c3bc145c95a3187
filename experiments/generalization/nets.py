"""The networks: perceptrons, small convolutional networks and ResNet-18, with or without normalizers."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from normgauge import NormgaugeError
from normgauge.lab import zoo

CLASSES = 10
STAGES = 3
NORMS: dict[str, Callable[[int], nn.Module] | None] = {
    "none": None,
    "batch": nn.BatchNorm2d,
    "layer": lambda channels: nn.GroupNorm(1, channels),
}


def build(
    kind: str, norm: str, shape: tuple[int, ...], *, width: int = 256, depth: int = 2, seed: int = 0
) -> nn.Module:
    """Build a network; the same seed gives the same weights.

    Args:
        kind: "mlp", "cnn" or "resnet18".
        norm: "none", "batch" or "layer".
        shape: of one image, (channels, height, width).
        width: of a hidden layer, or channels of the first stage.
        depth: hidden layers, or convolutions a stage.
        seed: of the weights.

    Returns:
        The network on the CPU, in training mode.

    Raises:
        NormgaugeError: for an unknown kind or norm.
    """
    if norm not in NORMS:
        raise NormgaugeError(f"norm={norm!r} is not known; use {', '.join(NORMS)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        match kind:
            case "mlp":
                sizes = (math.prod(shape), *[width] * depth, CLASSES)
                return zoo.mlp(sizes, None if norm == "none" else norm)
            case "cnn":
                return cnn(norm, shape[0], width, depth)
            case "resnet18":
                return zoo.resnet18(CLASSES, "cifar", None if norm == "none" else norm)
    raise NormgaugeError(f"net={kind!r} is not known; use mlp, cnn or resnet18")


def cnn(norm: str, channels: int, width: int, convolutions: int) -> nn.Sequential:
    """Three stages of 3x3 convolutions, twice the channels at each, max pooling between them and a mean at the end.

    Args:
        norm: of every convolution; one with a normalizer has no bias of its own.
        channels: of the images.
        width: channels of the first stage.
        convolutions: in each stage.

    Returns:
        The network, with He-normal convolutions.
    """
    made: list[nn.Module] = []
    normalizer, inputs = NORMS[norm], channels
    for stage in range(STAGES):
        if stage:
            made.append(nn.MaxPool2d(2))
        outputs = width * 2**stage
        for _ in range(convolutions):
            convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=normalizer is None)
            nn.init.kaiming_normal_(convolution.weight, mode="fan_in", nonlinearity="relu")
            made.append(convolution)
            made += [] if normalizer is None else [normalizer(outputs)]
            made.append(nn.ReLU())
            inputs = outputs
    return nn.Sequential(*made, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))
