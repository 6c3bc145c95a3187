"""What is known of one normalizer on one batch: its gains, its ε, and the variances it divides by."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from normgauge.rules.recognise import Division, root_mean_square, standardize
from normgauge.trace.step import Step, Value


@dataclass(frozen=True, slots=True)
class Norm:
    """A normalizer as it ran.

    Attributes:
        step: where.
        gamma, beta: its gains and shifts, None where it has none.
        eps: added to the variance.
        variance: what it divides by the root of, without ε: (rows, groups), one row a sample or token, one in all
            where samples share it.
        size: how many entries it takes a variance over.
        centred: whether it subtracts a mean (RMSNorm does not).
        axis: of the channels γ belongs to.
        seen: mean and variance the batch has, by channel, where the variance used is a stored one.
        stored: the stored mean.
    """

    step: Step
    gamma: Tensor | None
    beta: Tensor | None
    eps: float
    variance: Tensor
    size: int
    centred: bool = True
    axis: int = -1
    seen: tuple[Tensor, Tensor] | None = None
    stored: Tensor | None = None

    @property
    def by_channel(self) -> bool:
        """Whether all samples share one variance a channel (BatchNorm)."""
        return self.seen is not None or isinstance(self.step.module, _BatchNorm)

    @property
    def sigma(self) -> Tensor:
        """What it divides by."""
        return (self.variance + self.eps).sqrt()


def norm_of(step: Step, native: torch.dtype) -> Norm | None:
    """The normalizer a step is; None for any other."""
    if not step.inputs or step.trouble:
        return None
    data = step.inputs[0].tensor.detach().double()
    module, target = step.module, step.target
    if isinstance(module, _BatchNorm | _InstanceNorm) and data.ndim < 2:
        return None
    if isinstance(module, _BatchNorm | _InstanceNorm):
        own = module.training or module.running_var is None
        statistics = None if own else (module.running_mean, module.running_var)
        return _channelwise(step, data, statistics, module, isinstance(module, _InstanceNorm))
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        eps = torch.finfo(native).eps if module.eps is None else module.eps
        bias = module.bias if isinstance(module, nn.LayerNorm) else None
        return _over_last(step, data, module.normalized_shape, (module.weight, bias, eps), "Layer" in step.kind)
    if isinstance(module, nn.GroupNorm):
        return _grouped(step, data, module.num_groups, (module.weight, module.bias, module.eps))
    if module is None:
        return _functional(step, data, target, native)
    return None


def _functional(step: Step, data: Tensor, target: Any, native: torch.dtype) -> Norm | None:
    if target in (standardize, root_mean_square):
        return _written_out(step, data, step.args[1], target is standardize)
    if target in (F.layer_norm, torch.layer_norm):
        affine = (step.get(2, "weight"), step.get(3, "bias"), step.get(4, "eps", 1e-5))
        return _over_last(step, data, step.get(1, "normalized_shape"), affine, True)
    if target in (F.rms_norm, torch.rms_norm):
        eps = step.get(3, "eps")
        affine = (step.get(2, "weight"), None, torch.finfo(native).eps if eps is None else eps)
        return _over_last(step, data, step.get(1, "normalized_shape"), affine, False)
    if target in (F.group_norm, torch.group_norm):
        affine = (step.get(2, "weight"), step.get(3, "bias"), step.get(4, "eps", 1e-5))
        return _grouped(step, data, step.get(1, "num_groups"), affine)
    return None


def _plain(tensor: Any) -> Tensor | None:
    """A constant tensor in float64; None for none, or one that depends on the input."""
    return tensor.detach().double() if isinstance(tensor, Tensor) and not isinstance(tensor, Value) else None


def _channelwise(step: Step, data: Tensor, statistics: Any, module: Any, instance: bool) -> Norm:
    values = data.movedim(1, 0).flatten(1)  # (channels, everything)
    gamma, beta, eps = _plain(module.weight), _plain(module.bias), module.eps
    if statistics is not None:
        mean, variance = (_plain(s) for s in statistics)
        assert mean is not None and variance is not None
        seen = values.mean(1), values.var(1, correction=0)
        return Norm(step, gamma, beta, eps, variance[None], values.shape[1], True, 1, seen, mean)
    if instance:
        rows = data.flatten(2)
        return Norm(step, gamma, beta, eps, rows.var(2, correction=0), rows.shape[2], True, 1)
    return Norm(step, gamma, beta, eps, values.var(1, correction=0)[None], values.shape[1], True, 1)


def _over_last(step: Step, data: Tensor, shape: Any, affine: tuple[Any, Any, float], centred: bool) -> Norm:
    size = math.prod((shape,) if isinstance(shape, int) else shape)
    rows = data.reshape(-1, size)
    variance = rows.var(1, correction=0) if centred else rows.square().mean(1)
    single = isinstance(shape, int) or len(tuple(shape)) == 1
    gamma, beta, eps = _plain(affine[0]), _plain(affine[1]), float(affine[2])
    return Norm(step, gamma, beta, eps, variance[:, None], size, centred, -1 if single else -2)


def _grouped(step: Step, data: Tensor, groups: int, affine: tuple[Any, Any, float]) -> Norm:
    rows = data.reshape(data.shape[0], groups, -1)
    gamma, beta, eps = _plain(affine[0]), _plain(affine[1]), float(affine[2])
    return Norm(step, gamma, beta, eps, rows.var(2, correction=0), rows.shape[2], True, 1)


def _written_out(step: Step, data: Tensor, form: Division, centred: bool) -> Norm:
    base = data - data.mean(form.dims, keepdim=True) if centred else data
    variance = base.square().mean(form.dims).reshape(-1, 1)
    size = math.prod(data.shape[d] for d in form.dims)
    gamma = form.gamma.detach().double().reshape(-1)
    eps = form.eps if form.where == "inside" else form.eps**2
    return Norm(step, gamma if gamma.numel() > 1 else None, None, eps, variance, size, centred, -1)
