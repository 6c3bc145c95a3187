"""Residual networks: ResNet-18 under torchvision's parameter names, and the CIFAR ResNets of He et al."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from normgauge.core.errors import InputError
from normgauge.lab.zoo.parts import Affine, NormFactory

CIFAR_DEPTHS = (20, 32, 44, 56)

Shortcut = Callable[[int, int, int, NormFactory], nn.Module]  # inputs, planes, stride, norm


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, each with its norm, around a shortcut: relu(norm(conv(relu(norm(conv(x))))) + s(x))."""

    def __init__(self, inputs: int, planes: int, stride: int, norm: NormFactory, downsample: nn.Module | None) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, planes, 3, stride)
        self.bn1 = norm(planes)
        self.relu1 = nn.ReLU()
        self.conv2 = _conv(planes, planes, 3, 1)
        self.bn2 = norm(planes)
        self.downsample = downsample
        self.relu2 = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the block to ``x``, (N, C, H, W)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        branch = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        return self.relu2(branch + shortcut)


class PadShortcut(nn.Module):
    """Option A of He et al.: every second pixel, and zero channels before and after; no parameters."""

    def __init__(self, pad: int) -> None:
        super().__init__()
        self.pad = pad

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Subsample and pad ``x``, (N, C, H, W) to (N, C + 2 pad, H/2, W/2)."""
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))


class ResNet18(nn.Module):
    """ResNet-18: ``conv1 bn1 layer1..layer4 fc``, the names torchvision gives."""

    def __init__(self, num_classes: int, stem: Literal["imagenet", "cifar"], norm: NormFactory) -> None:
        super().__init__()
        small = stem == "cifar"
        self.conv1 = _conv(3, 64, 3, 1) if small else _conv(3, 64, 7, 2)
        self.bn1 = norm(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, 2, 1, norm, _projection)
        self.layer2 = _stage(64, 128, 2, 2, norm, _projection)
        self.layer3 = _stage(128, 256, 2, 2, norm, _projection)
        self.layer4 = _stage(256, 512, 2, 2, norm, _projection)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, num_classes)
        _initialize(self, "fan_out")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of a batch of images, (N, 3, H, W) to (N, classes)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


class CifarResNet(nn.Module):
    """Three stages of 16, 32 and 64 channels with option-A shortcuts: ``conv1 bn1 layer1..layer3 linear``."""

    def __init__(self, blocks: int, num_classes: int, norm: NormFactory) -> None:
        super().__init__()
        self.conv1 = _conv(3, 16, 3, 1)
        self.bn1 = norm(16)
        self.relu = nn.ReLU()
        self.layer1 = _stage(16, 16, blocks, 1, norm, _padding)
        self.layer2 = _stage(16, 32, blocks, 2, norm, _padding)
        self.layer3 = _stage(32, 64, blocks, 2, norm, _padding)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.linear = nn.Linear(64, num_classes)
        _initialize(self, "fan_in")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of a batch of images, (N, 3, H, W) to (N, classes)."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(self.avgpool(x).flatten(1))


def _conv(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def _projection(inputs: int, planes: int, stride: int, norm: NormFactory) -> nn.Module:
    return nn.Sequential(_conv(inputs, planes, 1, stride), norm(planes))


def _padding(inputs: int, planes: int, stride: int, norm: NormFactory) -> nn.Module:
    return PadShortcut((planes - inputs) // 2)


def _stage(inputs: int, planes: int, blocks: int, stride: int, norm: NormFactory, shortcut: Shortcut) -> nn.Sequential:
    first = shortcut(inputs, planes, stride, norm) if stride != 1 or inputs != planes else None
    rest = (BasicBlock(planes, planes, 1, norm, None) for _ in range(blocks - 1))
    return nn.Sequential(BasicBlock(inputs, planes, stride, norm, first), *rest)


def _initialize(model: nn.Module, mode: Literal["fan_in", "fan_out"]) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity="relu")


def resnet18(
    num_classes: int = 10,
    stem: Literal["imagenet", "cifar"] = "imagenet",
    norm: str | None = "batch",
    *,
    affine: Affine = True,
    eps: float | None = None,
    groups: int = 8,
) -> ResNet18:
    """Build ResNet-18 (He et al. 2016); torchvision's state dicts load where the norm is "batch".

    Args:
        num_classes: number of outputs.
        stem: "imagenet" (7x7 stride 2 and max pooling) or "cifar" (3x3 stride 1, for images of 32 pixels).
        norm: "batch", "layer", "group", "instance", "rms" or None.
        affine: whether the normalization layers have a gain and a bias; "gamma" for a gain alone.
        eps: their eps; None for the module's default.
        groups: number of groups, for "group".

    Returns:
        The network.

    Raises:
        InputError: if an option is not known.
    """
    if stem not in ("imagenet", "cifar"):
        raise InputError(f"stem={stem!r} is not known; use 'imagenet' or 'cifar'.")
    return ResNet18(num_classes, stem, NormFactory(norm, "image", affine, eps, groups))


def cifar_resnet(
    depth: int = 20,
    num_classes: int = 10,
    norm: str | None = "batch",
    *,
    affine: Affine = True,
    eps: float | None = None,
    groups: int = 8,
) -> CifarResNet:
    """Build a CIFAR ResNet of He et al. 2016, section 4.2.

    Args:
        depth: 20, 32, 44 or 56.
        num_classes: number of outputs.
        norm: "batch", "layer", "group", "instance", "rms" or None.
        affine: whether the normalization layers have a gain and a bias; "gamma" for a gain alone.
        eps: their eps; None for the module's default.
        groups: number of groups, for "group".

    Returns:
        The network.

    Raises:
        InputError: if an option is not known.
    """
    if depth not in CIFAR_DEPTHS:
        raise InputError(f"depth={depth!r} is not known; use one of {', '.join(map(str, CIFAR_DEPTHS))}.")
    return CifarResNet((depth - 2) // 6, num_classes, NormFactory(norm, "image", affine, eps, groups))
