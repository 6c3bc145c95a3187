"""Normalizers, convolutions, pooling and reductions for random networks."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.fuzz.blocks import Fn, Shape, maker, noise


@maker(2, 3, 4)
def normalizer(rng: Random, shape: Shape) -> nn.Module | None:
    eps = rng.choice([1e-5, 1e-3, 0.1, 1e-8])
    axes = rng.randint(1, len(shape) - 1)
    trailing, channels = list(shape[-axes:]), shape[1]
    affine = rng.random() < 0.7
    groups = rng.choice([g for g in range(1, channels + 1) if channels % g == 0])
    batch = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)]
    kinds: list[Callable[[], nn.Module]] = [
        lambda: nn.LayerNorm(trailing, eps=eps, elementwise_affine=affine),
        lambda: nn.RMSNorm(trailing, eps=rng.choice([eps, None]), elementwise_affine=affine),
        lambda: nn.GroupNorm(groups, channels, eps=eps, affine=affine),
        lambda: batch(channels, eps=eps, affine=affine, track_running_stats=rng.random() < 0.85),
        lambda: nn.LocalResponseNorm(
            rng.randint(1, 4), alpha=rng.choice([1e-4, 1.0]), beta=0.75, k=rng.choice([1.0, 2.0])
        ),
        lambda: Fn("F.layer_norm", lambda x, w: F.layer_norm(x, x.shape[-1:], w, None, eps), w=noise(shape[-1])),
        lambda: Fn("F.rms_norm", lambda x: F.rms_norm(x, x.shape[-1:], eps=eps)),
        lambda: Fn("F.group_norm", lambda x, w: F.group_norm(x, groups, w, eps=eps), w=noise(channels)),
        lambda: Fn("F.normalize", lambda x: F.normalize(x, dim=-1, eps=1e-2)),
        lambda: Fn("F.normalize dim 1", lambda x: F.normalize(x, dim=1, eps=1e-2)),
        lambda: Fn(
            "F.batch_norm", lambda x, m, v: F.batch_norm(x, m, v, eps=eps), m=noise(channels), v=noise(channels) ** 2
        ),
        lambda: Fn(
            "F.batch_norm train",
            lambda x, w, b: F.batch_norm(x, None, None, w, b, True, eps=eps),
            w=noise(channels),
            b=noise(channels),
        ),
    ]
    if len(shape) > 2:
        instance = nn.InstanceNorm1d if len(shape) == 3 else nn.InstanceNorm2d
        kinds.append(lambda: instance(channels, eps=eps, affine=affine, track_running_stats=rng.random() < 0.3))
        kinds.append(lambda: Fn("F.instance_norm", lambda x: F.instance_norm(x, eps=eps)))
    return rng.choice(kinds)()


@maker(3, 4)
def convolution(rng: Random, shape: Shape) -> nn.Module:
    d, channels = len(shape) - 2, shape[1]
    groups = rng.choice([g for g in range(1, channels + 1) if channels % g == 0])
    out = groups * rng.randint(1, 2)
    options: dict[str, Any] = {
        "kernel_size": rng.randint(1, 3), "stride": rng.choice([1, 1, 2]), "dilation": rng.choice([1, 1, 2]),
        "groups": groups, "padding": rng.choice([0, 1, 2]), "bias": rng.random() < 0.5,
    }  # fmt: skip
    if rng.random() < 0.3:
        layer = (nn.ConvTranspose1d, nn.ConvTranspose2d)[d - 1](channels, out, **options)
    elif rng.random() < 0.15:
        w = noise(out, channels // groups, *[2] * d)
        return Fn("F.conv", lambda x, w: (F.conv1d, F.conv2d)[d - 1](x, w, None, 1, options["padding"], 1, groups), w=w)
    else:
        if rng.random() < 0.2:
            options.update(stride=1, padding="same", kernel_size=3)
        options["padding_mode"] = rng.choice(["zeros", "zeros", "circular", "reflect", "replicate"])
        layer = (nn.Conv1d, nn.Conv2d)[d - 1](channels, out, **options)
    if rng.random() < 0.15:
        layer = rng.choice([nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])(layer)
    return layer


@maker(3, 4)
def pooling(rng: Random, shape: Shape) -> nn.Module:
    d = len(shape) - 2
    k, s = rng.randint(2, 3), rng.randint(1, 2)

    def pick(stem: str) -> Any:
        return getattr(nn, f"{stem}{d}d")

    padding, dilation, ceil = rng.choice([0, 1]), rng.choice([1, 1, 2]), rng.random() < 0.3
    smooth = "linear" if d == 1 else rng.choice(["bilinear", "bicubic"])
    return rng.choice([
        lambda: pick("MaxPool")(k, s, padding=padding, dilation=dilation, ceil_mode=ceil),
        lambda: pick("AvgPool")(k, s, padding=padding, count_include_pad=rng.random() < 0.5, ceil_mode=ceil),
        lambda: pick("AdaptiveMaxPool")(rng.randint(1, 3)),
        lambda: pick("AdaptiveAvgPool")(rng.randint(1, 3)),
        lambda: pick("LPPool")(2, k, s),
        lambda: nn.Upsample(scale_factor=rng.choice([2, 1.5]), mode="nearest"),
        lambda: nn.Upsample(scale_factor=rng.choice([2, 0.6]), mode=smooth, align_corners=rng.random() < 0.5),
        lambda: pick(rng.choice(["ReflectionPad", "ReplicationPad", "CircularPad", "ZeroPad"]))(rng.randint(1, 2)),
        lambda: pick("ConstantPad")(1, 3.0),
        lambda: Fn("F.max_pool", lambda x: (F.max_pool1d, F.max_pool2d)[d - 1](x, k, s)),
        lambda: Fn("F.interpolate area", lambda x: F.interpolate(x, scale_factor=0.5, mode="area")),
        lambda: nn.Dropout(0.3), lambda: pick("Dropout")(0.5), lambda: nn.AlphaDropout(0.2),
    ])()  # fmt: skip


@maker(2, 3, 4)
def reduction(rng: Random, shape: Shape) -> nn.Module:
    axis = rng.randint(1, len(shape) - 1)
    keep = rng.random() < 0.5 or len(shape) == 2
    kind = rng.choice(["mean", "sum", "amax", "amin", "max", "norm", "std", "logsumexp", "linalg"])
    if kind == "max":
        return Fn(f"max({axis})", lambda x: x.max(axis, keepdim=keep).values)
    if kind == "norm":
        return Fn(f"norm({axis})", lambda x: x.norm(dim=axis, keepdim=keep))
    if kind == "linalg":
        return Fn(f"vector_norm({axis})", lambda x: torch.linalg.vector_norm(x, dim=axis, keepdim=keep))
    if kind == "std":
        return Fn(f"std({axis})", lambda x: x.std(axis, unbiased=False, keepdim=keep))
    return Fn(f"{kind}({axis}, {keep})", lambda x: getattr(x, kind)(axis, keepdim=keep))
