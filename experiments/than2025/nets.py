"""A run's network, with its initialization."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn

from experiments.than2025.plan import PlanError, Spec
from normgauge.lab import zoo

CHANNELS = (3, *[64] * 3, *[128] * 3, *[256] * 3)
AFFINE: dict[str, bool | str] = {"both": True, "none": False, "gamma": "gamma"}
CLASSES = 10


def build(spec: Spec, shape: tuple[int, ...]) -> nn.Module:
    """Build and initialize the network of a run; the same seed gives the same weights.

    Args:
        spec: the run.
        shape: of one input, (channels, height, width).

    Returns:
        The network on the CPU, in training mode.

    Raises:
        PlanError: for an unknown initialization.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        model = _network(spec, shape)
        if spec.init == "he":
            he_normal(model, spec.gain)
        elif spec.init != "default":
            raise PlanError(f"init={spec.init!r} is not known; use 'he' or 'default'.")
    return model.train()


def he_normal(model: nn.Module, gain: float = 1.0) -> None:
    """W ~ N(0, gain²·2/fan_in) in every linear map and convolution, biases zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
            with torch.no_grad():
                module.weight.mul_(gain)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def cnn(norm: str) -> nn.Sequential:
    """Nine 3 x 3 convolutions, the fourth and the seventh of stride 2, mean over pixels, linear map; no residuals.

    Args:
        norm: "batch" for BatchNorm after each convolution, "none" for none.

    Raises:
        PlanError: for another.
    """
    if norm not in ("batch", "none"):
        raise PlanError(f"norm={norm!r} is not known for a plain CNN; use 'batch' or 'none'.")
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(CHANNELS):
        stride = 2 if 3 < inputs < outputs else 1
        layers.append(nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=norm == "none"))
        layers += [nn.BatchNorm2d(outputs)] if norm == "batch" else []
        layers.append(nn.ReLU())
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS[-1], CLASSES))


def spread(count: int, layers: int) -> list[int]:
    """Which of so many layers have one of so many normalizers: as evenly as can be.

    >>> spread(3, 9), spread(1, 9), spread(9, 9)
    ([1, 4, 7], [4], [0, 1, 2, 3, 4, 5, 6, 7, 8])
    """
    return [(2 * k + 1) * layers // (2 * count) for k in range(count)]


def _network(spec: Spec, shape: tuple[int, ...]) -> nn.Module:
    if spec.net == "cnn":
        return cnn(spec.norm)
    if spec.net == "resnet18_cifar":
        return zoo.resnet18(stem="cifar", **_options(spec, shape))
    return zoo.build_network(spec.net, **_options(spec, shape))


def _options(spec: Spec, shape: tuple[int, ...]) -> dict[str, Any]:
    norm = None if spec.norm == "none" else spec.norm
    common: dict[str, Any] = {"norm": norm, "affine": AFFINE[spec.affine], "groups": spec.groups}
    if spec.net != "mlp":
        return common
    features = int(torch.Size(shape).numel())
    hidden = spec.depth - 1
    sizes = (features, *[spec.width] * hidden, CLASSES)
    return {**common, "sizes": sizes, "normalized": None if spec.normalizers < 0 else spread(spec.normalizers, hidden)}
