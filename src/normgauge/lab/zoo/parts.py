"""The pieces the zoo's networks share: normalization layers and activations chosen by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from normgauge.core.errors import InputError

Layout = Literal["vector", "image", "tokens"]  # (N, C), (N, C, H, W), (N, T, C)
Affine = bool | Literal["gamma"]  # gain and bias, neither, or the gain alone

KINDS: dict[Layout, tuple[str, ...]] = {
    "vector": ("batch", "layer", "group", "instance", "rms"),
    "image": ("batch", "layer", "group", "instance", "rms"),
    "tokens": ("layer", "rms"),
}

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "identity": nn.Identity,
}


class ChannelRMSNorm(nn.Module):
    """RMS normalization over the channels of an image, at each pixel by itself."""

    def __init__(self, channels: int, *, affine: bool = True, eps: float | None = None) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(channels, eps=eps, elementwise_affine=affine)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize ``x``, (N, C, H, W)."""
        normalized: torch.Tensor = self.norm(x.permute(0, 2, 3, 1))
        return normalized.permute(0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class NormFactory:
    """A normalization layer by name; call it with a number of features to get the module.

    Names mean what they commonly mean for the layout. "layer" on images is over channels and pixels together with one
    gain a channel (``GroupNorm(1, C)``). "instance" on vectors reads the features as ``groups`` channels, since one
    number a channel has no variance.

    Attributes:
        kind: one of ``KINDS[layout]``, or None for no normalization.
        layout: how the features are laid out.
        affine: whether the layer has a gain and a bias; "gamma" for a gain alone.
        eps: added to the variance; None for the module's own default.
        groups: number of groups, for "group" and for "instance" on vectors.
    """

    kind: str | None
    layout: Layout
    affine: Affine = True
    eps: float | None = None
    groups: int = 8

    def __post_init__(self) -> None:
        if self.affine not in (True, False, "gamma"):
            raise InputError(f"affine={self.affine!r} is not known; use True, False or 'gamma'.")
        if self.kind is not None and self.kind not in KINDS[self.layout]:
            known = ", ".join(KINDS[self.layout])
            raise InputError(
                f"norm={self.kind!r} is not known for {self.layout} features; use one of {known}, or None."
            )

    def __call__(self, features: int) -> nn.Module:
        """Build the layer.

        Args:
            features: number of features or channels.

        Returns:
            The module; an identity where ``kind`` is None.
        """
        layer = self._layer(features)
        if self.affine == "gamma":
            for part in layer.modules():
                if "bias" in dict(part.named_parameters(recurse=False)):
                    part.register_parameter("bias", None)
        return layer

    def _layer(self, features: int) -> nn.Module:
        affine, eps = bool(self.affine), 1e-5 if self.eps is None else self.eps
        match self.kind, self.layout:
            case "batch", "vector":
                return nn.BatchNorm1d(features, eps=eps, affine=affine)
            case "batch", _:
                return nn.BatchNorm2d(features, eps=eps, affine=affine)
            case "layer", "image":
                return nn.GroupNorm(1, features, eps=eps, affine=affine)
            case "layer", _:
                return nn.LayerNorm(features, eps=eps, elementwise_affine=affine)
            case "group", _:
                return nn.GroupNorm(self._groups(features), features, eps=eps, affine=affine)
            case "instance", "vector":
                groups = self._groups(features)
                inner = nn.InstanceNorm1d(groups, eps=eps, affine=affine)
                return nn.Sequential(nn.Unflatten(1, (groups, features // groups)), inner, nn.Flatten(1))
            case "instance", _:
                return nn.InstanceNorm2d(features, eps=eps, affine=affine)
            case "rms", "image":
                return ChannelRMSNorm(features, affine=affine, eps=self.eps)
            case "rms", _:
                return nn.RMSNorm(features, eps=self.eps, elementwise_affine=affine)
        return nn.Identity()

    def _groups(self, features: int) -> int:
        if self.groups < 1 or features % self.groups:
            raise InputError(f"norm={self.kind!r}: {features} features do not divide into groups={self.groups}.")
        return self.groups


def build_activation(name: str) -> nn.Module:
    """Build an activation by name.

    Args:
        name: a key of ``ACTIVATIONS``.

    Returns:
        A new module.

    Raises:
        InputError: if the name is not known.
    """
    if name not in ACTIVATIONS:
        raise InputError(f"activation={name!r} is not known; use one of {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[name]()
