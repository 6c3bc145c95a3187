"""What normalizers multiply channels by, now, and the spread that the last forward pass saw."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.control.bounded_norms import BoundedNorm
from normgauge.instrument.rules.normalizer import Normalizer, of_torch

NORMALIZERS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)

ENOUGH = 4096
"""Entries of a channel through whose variance a gradient goes, of a batch's first samples. The value comes from the
running variance, and W → tW scales any part of a batch alike: the rest would cost time and tell nothing."""


class Variance(torch.autograd.Function):
    """The variance along axes, about the mean or about 0: what `Tensor.var` gives, in a third of its time on a CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axes: tuple[int, ...], centred: bool) -> Tensor:
        """Of every group of entries; the values are kept, since their distances from the mean are cheap."""
        ctx.save_for_backward(x)
        ctx.how = axes, centred
        return _apart(x, axes, centred).square().mean(axes)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        """2(x − μ)/n: what the mean adds cancels."""
        (x,), (axes, centred) = ctx.saved_tensors, ctx.how
        apart = _apart(x, axes, centred)
        for axis in axes:
            slope = slope.unsqueeze(axis)
        return apart * (slope * (2 * slope.numel() / apart.numel())), None, None


class StoredScale(torch.autograd.Function):
    """|γ|/√(running variance + ε), whose slope in the log spread that was seen is that of its own: −1 of itself."""

    @staticmethod
    def forward(ctx: Any, gamma: Tensor | None, seen: Tensor | None, variance: Tensor, eps: float) -> Tensor:
        """A channel."""
        inverse = (variance + eps).rsqrt()
        found = inverse if gamma is None else gamma.abs() * inverse
        ctx.save_for_backward(gamma, inverse, found)
        return found

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """In the gains and in the log spread."""
        gamma, inverse, found = ctx.saved_tensors
        asked, seen = ctx.needs_input_grad[:2]
        return slope * inverse * gamma.sgn() if asked else None, -slope * found if seen else None, None, None


def _apart(x: Tensor, axes: tuple[int, ...], centred: bool) -> Tensor:
    return x - x.mean(axes, keepdim=True) if centred else x


class LiveNormalizer:
    """One normalizer of the model: its channel scales with their gradients, and its spread as last seen.

    Attributes:
        name: its path.
        module: it itself.
        seen: with running statistics ½ log(variance + ε) a channel of the batch's first samples, else the mean of
            −log √(σ² + ε) over all groups of the last forward pass: seen on data, proved of nothing. None at first.
    """

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name, self.module = name, module
        self.seen: Tensor | None = None

    @property
    def form(self) -> Normalizer:
        """The normalizer with its tensors as they are now."""
        if isinstance(self.module, BoundedNorm):
            return self.module.normalizer()
        found = of_torch(self.module, _precision(self.module))
        assert found is not None
        return found

    @property
    def gamma(self) -> Tensor | None:
        """Its gains, None where it has none."""
        return self.module.gains() if isinstance(self.module, BoundedNorm) else getattr(self.module, "weight", None)

    @property
    def free(self) -> bool:
        """Whether its gains can be written to: they are a parameter, and not frozen."""
        weight = self.module._parameters.get("weight")
        return weight is not None and weight.requires_grad

    @property
    def stored(self) -> bool:
        """Whether in eval mode it divides by statistics that it keeps."""
        return isinstance(self.module, nn.modules.batchnorm._BatchNorm) and self.module.running_var is not None

    @property
    def batches(self) -> int:
        """How many batches its running statistics have seen."""
        tracked = getattr(self.module, "num_batches_tracked", None)
        return 0 if tracked is None else int(tracked)

    def look(self, x: Tensor) -> None:
        """Keep the spread of what is about to be normalized, with its gradient."""
        if self.stored:
            if self.module.training and torch.is_grad_enabled():
                x = x[: -(-ENOUGH // math.prod(x.shape[2:]))]
                x = x if x.dtype == torch.float64 else x.float()
                variance = Variance.apply(x, (0, *range(2, x.ndim)), True)
                self.seen = (variance + self.module.eps).log() / 2
            return
        form = self.form
        x = x if x.dtype == torch.float64 else x.float()
        self.seen = -form.below(Variance.apply(form.grouped(x), (2,), form.centred)).log().mean()

    def scale(self) -> Tensor | None:
        """Return |γ|/√(running variance + ε) a channel, or |γ| where values are divided by their own spread.

        A gradient through the running variance is one through the batch's: log √(var + ε) moves as that of the last
        batch does, so that W → tW, which the statistics undo, is not rewarded.
        """
        gamma = self.gamma
        if not self.stored:
            return None if gamma is None else gamma.abs().flatten()
        variance, eps = self.module.running_var, self.module.eps
        assert isinstance(variance, Tensor) and isinstance(eps, float)
        seen = self.seen if self.seen is not None and self.seen.requires_grad else None
        return StoredScale.apply(gamma, seen, variance, eps)

    def log_spread(self) -> Tensor:
        """Return the mean of −log √(σ² + ε) that the last forward pass saw."""
        assert self.seen is not None
        return self.seen

    def forget_graph(self) -> None:
        """Keep the number, let the graph go: it was used, or belongs to a pass whose gradients were taken."""
        self.seen = None if self.seen is None or self.stored else self.seen.detach()


def _precision(module: nn.Module) -> torch.dtype:
    weight = getattr(module, "weight", None)
    return weight.dtype if isinstance(weight, Tensor) else torch.float32
