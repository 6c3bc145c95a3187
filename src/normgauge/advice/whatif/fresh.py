"""Fresh normalizers: gain 1, shift 0, of the shape of the values where they are to stand."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from normgauge.core.errors import InputError
from normgauge.instrument.rules.tried import of_module
from normgauge.lab.zoo.parts import ChannelRMSNorm, NormFactory

KINDS = ("batch", "layer", "group", "instance", "rms")
GROUPS = 8  # of a group normalizer, where not said: small enough for narrow layers, as the zoo's default is


def fresh_normalizer(kind: str, data: Tensor, groups: int | None, module: nn.Module) -> nn.Module:
    """A normalizer with gain 1 and shift 0 that fits ``data``, the values where it is to stand.

    Args:
        kind: one of `KINDS`; ``batch`` gets the (biased) statistics of ``data``.
        data: values with samples first; (N, C), (N, T, C) or (N, C, ...).
        groups: of a group normalizer.
        module: the layer there; it tells features last (tokens) from channels first (images).

    Raises:
        InputError: for a kind that does not exist or does not fit.
    """
    if kind not in KINDS:
        raise InputError(f"kind: expected one of {', '.join(KINDS)}, got {kind!r}")
    if groups is not None and kind != "group":
        raise InputError(f"groups belongs to kind 'group', got kind {kind!r}")
    if data.ndim < 2 or not data.is_floating_point():
        raise InputError(f"a normalizer needs samples and features, got values of shape {tuple(data.shape)}")
    tokens = data.ndim > 2 and _features_last(module, data.ndim)
    if tokens and kind not in ("layer", "rms"):
        raise InputError(f"the features of {tuple(data.shape)} lie on the last axis; use kind layer or rms there")
    if tokens or data.ndim == 2:
        return _over_features(kind, data, groups)
    return _over_channels(kind, data, groups)


def _features_last(module: nn.Module, ndim: int) -> bool:
    form = of_module(module)
    if form is not None:
        return form.axis != 1 and -1 in form.dims
    return isinstance(module, nn.Linear | nn.Embedding) or (ndim == 3 and not isinstance(module, _ConvNd))


def _over_features(kind: str, data: Tensor, groups: int | None) -> nn.Module:
    width = data.shape[-1]
    if kind == "instance":
        raise InputError("an instance normalizer on vectors has one number a channel and would return zeros")
    norm = NormFactory(kind, "vector", groups=group_count(width, groups))(width)
    return with_statistics(norm, data) if kind == "batch" else norm


def _over_channels(kind: str, data: Tensor, groups: int | None) -> nn.Module:
    channels, dims = data.shape[1], data.ndim - 2
    if dims > 3:
        raise InputError(f"no normalizer for values of shape {tuple(data.shape)}")
    if kind == "rms":
        if dims != 2:
            raise InputError(f"kind rms needs vectors, tokens or images, got values of shape {tuple(data.shape)}")
        return ChannelRMSNorm(channels)
    if kind == "batch":
        layers = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
        return with_statistics(layers[dims - 1](channels), data)
    if kind == "instance":
        if data[0, 0].numel() < 2:
            raise InputError("an instance normalizer over one number a channel would return zeros")
        return (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[dims - 1](channels, affine=True)
    return nn.GroupNorm(1 if kind == "layer" else group_count(channels, groups), channels)


def with_statistics(norm: nn.Module, data: Tensor) -> nn.Module:
    """A batch normalizer whose running statistics are those of ``data``.

    Raises:
        InputError: for a single value a channel, which has no variance.
    """
    values = data.detach().double().movedim(1, 0).flatten(1)
    if values.shape[1] < 2:
        raise InputError("one value a channel has no variance; give a batch of two samples or more, or another kind")
    mean, var = (norm.get_buffer(name) for name in ("running_mean", "running_var"))
    mean.copy_(values.mean(1))
    var.copy_(values.var(1, correction=0))
    return norm


def group_count(channels: int, groups: int | None) -> int:
    """The groups asked for, or the largest divisor of ``channels`` up to 8 that leaves three entries a group.

    Raises:
        InputError: when the channels do not divide into them.
    """
    if groups is None:
        return max((g for g in range(1, GROUPS + 1) if channels % g == 0 and channels // g >= 3), default=1)
    if groups < 1 or channels % groups:
        raise InputError(f"{channels} channels do not divide into {groups} groups")
    return groups


def describe_normalizer(norm: nn.Module) -> str:
    """A fresh normalizer as text: its class, its groups, and whose statistics it has."""
    size = f"({norm.num_groups} groups)" if isinstance(norm, nn.GroupNorm) else ""
    statistics = " with the statistics of the batch" if isinstance(norm, nn.modules.batchnorm._BatchNorm) else ""
    return f"{type(norm).__name__}{size}{statistics}"
