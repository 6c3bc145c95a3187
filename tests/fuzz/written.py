"""Layers as people write them out by hand, and operations with narrow conditions."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.fuzz.blocks import Fn, Shape, maker, noise


@maker(2, 3, 4)
def by_hand(rng: Random, shape: Shape) -> nn.Module:
    eps, axis = rng.choice([1e-5, 1e-2]), rng.choice([-1, -1, 1])
    w, channels = noise(shape[-1]), noise(*shape[1:2], *[1] * (len(shape) - 2))

    def centred(x: Tensor, w: Tensor) -> Tensor:
        y = x - x.mean(axis, keepdim=True)
        return w * y / torch.sqrt(y.pow(2).mean(axis, keepdim=True) + eps)

    def scaled(x: Tensor, w: Tensor) -> Tensor:
        return w * (x * torch.rsqrt(x.pow(2).mean(axis, keepdim=True) + eps))

    def response(x: Tensor, w: Tensor) -> Tensor:  # global response normalization, as in ConvNeXt V2
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * (length / (length.mean(1, keepdim=True) + 0.5)).tanh() + w * x

    def weight_standardized(x: Tensor, w: Tensor) -> Tensor:
        return F.linear(x, (w - w.mean(1, keepdim=True)) / (w.var(1, unbiased=False, keepdim=True) + 1e-2).sqrt())

    kinds: list[Callable[[], nn.Module]] = [
        lambda: Fn(f"rms by hand {axis}", scaled, w=w),
        lambda: Fn(f"layer norm by hand {axis}", centred, w=w),
        lambda: Fn("swish by hand", lambda x: x * torch.sigmoid(1.5 * x)),
        lambda: Fn("gelu by hand", lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5))),
        lambda: Fn("soft cap", lambda x: 4 * torch.tanh(x / 4)),
        lambda: Fn("channel affine", lambda x, c: x * c + c, c=channels),
        lambda: Fn("global response", response, w=w),
        lambda: Fn("weight standardization", weight_standardized, w=noise(4, shape[-1])),
        lambda: Fn("sqrt", lambda x: (x.sigmoid() + 0.1).sqrt()),
        lambda: Fn("log", lambda x: torch.log(1.2 + x.tanh())),
        lambda: Fn("rsqrt of squares", lambda x: (1 + x.square().clamp(max=4.0)).rsqrt()),
        lambda: Fn("reciprocal", lambda x: 9.0 / (1.5 + x.sin())),
        lambda: Fn("power", lambda x: x.tanh() ** 3 + x.clamp(-2, 2).pow(2)),
        lambda: Fn("exp", lambda x: (-x.relu()).exp()),
        lambda: Fn("branch by sign", lambda x: torch.where(x > 0, x, 0.1 * x)),
    ]  # fmt: skip
    return rng.choice(kinds)()


@maker(2, 3, 4)
def broadcasting(rng: Random, shape: Shape) -> nn.Module:
    axis = rng.randint(1, len(shape) - 1)
    kinds: list[Callable[[], nn.Module]] = [
        lambda: Fn("x - amax", lambda x: x - x.amax(axis, keepdim=True)),
        lambda: Fn("minimum with mean", lambda x: torch.minimum(x.mean(axis, keepdim=True), x.roll(1, axis))),
        lambda: Fn("clamp by constants", lambda x, c: x.mean(-1, keepdim=True).clamp(min=c), c=noise(shape[-1])),
        lambda: Fn("max with constant", lambda x, c: torch.max(x.mean(-1, keepdim=True), c), c=noise(shape[-1])),
        lambda: Fn("rsub", lambda x, c: torch.rsub(x, c, alpha=-2.0), c=noise(shape[-1])),
        lambda: Fn("mean times constant", lambda x, c: x.mean(axis, keepdim=True) * c, c=noise(*shape[1:])),
        lambda: Fn("add alpha", lambda x: torch.add(x.relu(), x.sigmoid(), alpha=-3.0)),
        lambda: Fn("outer of samples", lambda x: x.flatten(1).tanh() @ x.flatten(1).tanh().T),
        lambda: Fn("batch mean", lambda x: x - 0.5 * x.mean(0, keepdim=True)),
        lambda: Fn("batch softmax", lambda x: x.softmax(0)),
        lambda: Fn("batch norm by hand", lambda x: (x - x.mean(0)) / (x.var(0, unbiased=False) + 0.1).sqrt()),
        lambda: Fn("mixed maximum", lambda x: torch.maximum(x, x.flip(0))),
    ]  # fmt: skip
    return rng.choice(kinds)()


@maker(3)
def matrices(rng: Random, shape: Shape) -> nn.Module:
    _, rows, width = shape
    angle = torch.linspace(0, 3, rows)[:, None]
    mask = torch.zeros(rows, width).masked_fill(noise(rows, width) > 1, -100.0)
    w = noise(width, 3)

    def added(x: Tensor, w: Tensor) -> Tensor:
        return torch.baddbmm(x[:, :, :1].tanh().expand(-1, -1, 3), x, w.expand(len(x), -1, -1), beta=0.5)

    kinds: list[Callable[[], nn.Module]] = [
        lambda: Fn("gram", lambda x: x.tanh() @ x.tanh().transpose(1, 2)),
        lambda: Fn("bmm with constants", lambda x, w: torch.bmm(x, w.expand(len(x), -1, -1)), w=w),
        lambda: Fn("einsum of branches", lambda x: torch.einsum("nij,nkj->nik", x.sigmoid(), x.tanh())),
        lambda: Fn("matrix times vector", lambda x, v: x @ v, v=noise(width)),
        lambda: Fn("baddbmm", added, w=w),
        lambda: Fn("rotary", rotated, c=angle.cos(), s=angle.sin()),
        lambda: Fn("masked softmax", lambda x, m: (x + m).softmax(-1), m=mask),
    ]  # fmt: skip
    return rng.choice(kinds)()


def rotated(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """Rotary position embedding of the two halves of every token."""
    if x.shape[-1] % 2:
        return x * c
    a, b = x.chunk(2, -1)
    return torch.cat([a * c - b * s, a * s + b * c], -1)


@maker(4)
def volumes(rng: Random, shape: Shape) -> nn.Module:
    _, channels, height, width = shape

    def of_channels(x: Tensor, w: Tensor) -> Tensor:
        return F.layer_norm(x.permute(0, 2, 3, 1), (channels,), w).permute(0, 3, 1, 2)

    kinds: list[Callable[[], nn.Module]] = [
        lambda: Fn("conv3d", lambda x, w: F.conv3d(x[:, None], w, padding=1)[:, :, 0], w=noise(2, 1, 2, 2, 2)),
        lambda: Fn("max_pool3d", lambda x: F.max_pool3d(x[:, None], (1, 2, 2), 1)[:, 0]),
        lambda: Fn("fold of unfold", lambda x: F.fold(F.unfold(x, 2), (height, width), 2)),
        lambda: Fn("pixel shuffle", lambda x: F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2)),
        lambda: Fn("layer norm of channels", of_channels, w=noise(channels)),
        lambda: Fn("depthwise", lambda x, w: F.conv2d(x, w, padding=1, groups=channels), w=noise(channels, 1, 3, 3)),
        lambda: Fn("windows", lambda x: x.unfold(3, 2, 1).mean(-1)),
    ]  # fmt: skip
    return rng.choice(kinds)()
