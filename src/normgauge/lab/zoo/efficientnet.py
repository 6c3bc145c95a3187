"""EfficientNet-B3 under torchvision's parameter names."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from normgauge.lab.zoo.parts import Affine, NormFactory

WIDTH, DEPTH, DROPOUT, DROP_PATH = 1.2, 1.4, 0.3, 0.2  # the scaling of B3


@dataclass(frozen=True, slots=True)
class Stage:
    """One row of the table in Tan & Le 2019, for B0."""

    expand: int
    kernel: int
    stride: int
    inputs: int
    outputs: int
    layers: int


STAGES = (
    Stage(1, 3, 1, 32, 16, 1),
    Stage(6, 3, 2, 16, 24, 2),
    Stage(6, 5, 2, 24, 40, 2),
    Stage(6, 3, 2, 40, 80, 3),
    Stage(6, 5, 1, 80, 112, 3),
    Stage(6, 5, 2, 112, 192, 4),
    Stage(6, 3, 1, 192, 320, 1),
)


class StochasticDepth(nn.Module):
    """Drops whole rows of the batch with probability ``p`` while training; the identity in eval mode."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drop rows of ``x``, (N, C, H, W), and scale up those kept."""
        if not self.training or self.p == 0.0:
            return x
        kept = x.new_empty(x.shape[0], 1, 1, 1).bernoulli_(1.0 - self.p)
        return x * kept / (1.0 - self.p)


class SqueezeExcitation(nn.Module):
    """x · sigmoid(fc2(silu(fc1(mean over pixels of x)))): one gate a channel."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.activation = nn.SiLU()
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.scale_activation = nn.Sigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Gate the channels of ``x``, (N, C, H, W)."""
        gate: torch.Tensor = self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(x)))))
        return gate * x


class MBConv(nn.Module):
    """Expand, depthwise convolution, squeeze-excitation, project; with a residual where the shapes allow it."""

    def __init__(self, stage: Stage, inputs: int, outputs: int, stride: int, drop: float, norm: NormFactory) -> None:
        super().__init__()
        expanded = _divisible(inputs * stage.expand)
        layers: list[nn.Module] = []
        if expanded != inputs:
            layers.append(_conv(inputs, expanded, 1, 1, norm))
        layers.append(_conv(expanded, expanded, stage.kernel, stride, norm, groups=expanded))
        layers.append(SqueezeExcitation(expanded, max(1, inputs // 4)))
        layers.append(_conv(expanded, outputs, 1, 1, norm, active=False))
        self.block = nn.Sequential(*layers)
        self.stochastic_depth = StochasticDepth(drop)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the block to ``x``, (N, C, H, W)."""
        out: torch.Tensor = self.block(x)
        return x + self.stochastic_depth(out) if self.residual else out


class EfficientNet(nn.Module):
    """``features`` (stem, seven stages of MBConv, last convolution), ``avgpool``, ``classifier``."""

    def __init__(self, num_classes: int, norm: NormFactory) -> None:
        super().__init__()
        last = _divisible(STAGES[-1].outputs * WIDTH)
        stem = _conv(3, _divisible(STAGES[0].inputs * WIDTH), 3, 2, norm)
        self.features = nn.Sequential(stem, *_stages(norm), _conv(last, 4 * last, 1, 1, norm))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(DROPOUT), nn.Linear(4 * last, num_classes))
        _initialize(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of a batch of images, (N, 3, H, W) to (N, classes)."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def _divisible(channels: float) -> int:
    """Nearest multiple of 8 that loses at most a tenth."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def _conv(
    inputs: int, outputs: int, kernel: int, stride: int, norm: NormFactory, *, groups: int = 1, active: bool = True
) -> nn.Sequential:
    padding = (kernel - 1) // 2
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
    return nn.Sequential(conv, norm(outputs), *([nn.SiLU()] if active else []))


def _stages(norm: NormFactory) -> list[nn.Sequential]:
    depths = [math.ceil(stage.layers * DEPTH) for stage in STAGES]
    stages, done = [], 0
    for stage, depth in zip(STAGES, depths, strict=True):
        inputs, outputs = _divisible(stage.inputs * WIDTH), _divisible(stage.outputs * WIDTH)
        blocks = []
        for k in range(depth):
            drop = DROP_PATH * done / sum(depths)
            blocks.append(MBConv(stage, outputs if k else inputs, outputs, 1 if k else stage.stride, drop, norm))
            done += 1
        stages.append(nn.Sequential(*blocks))
    return stages


def _initialize(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            bound = 1.0 / math.sqrt(module.out_features)
            nn.init.uniform_(module.weight, -bound, bound)
            nn.init.zeros_(module.bias)


def efficientnet_b3(
    num_classes: int = 10,
    norm: str | None = "batch",
    *,
    affine: Affine = True,
    eps: float | None = None,
    groups: int = 8,
) -> EfficientNet:
    """Build EfficientNet-B3 (Tan & Le 2019); torchvision's state dicts load where the norm is "batch".

    Args:
        num_classes: number of outputs.
        norm: "batch", "layer", "group", "instance", "rms" or None.
        affine: whether the normalization layers have a gain and a bias; "gamma" for a gain alone.
        eps: their eps; None for the module's default.
        groups: number of groups, for "group".

    Returns:
        The network.
    """
    return EfficientNet(num_classes, NormFactory(norm, "image", affine, eps, groups))
