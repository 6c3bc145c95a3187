"""What is known of one normalizer on one batch: what it is, and the variances it divides by."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.instrument.rules.normalizer import Normalizer, of_step
from normgauge.instrument.trace.step import Step


@dataclass(frozen=True, slots=True)
class MeasuredNorm:
    """A normalizer as it ran, in float64.

    Attributes:
        step: where.
        form: what it is.
        variance: whose root it divides by, without ε: (rows, groups), one row a sample or token, one in all
            where samples share it.
        size: how many entries it takes a variance over.
        seen: mean and variance the batch has, by channel, where the variance used is a stored one.
    """

    step: Step
    form: Normalizer
    variance: Tensor
    size: int
    seen: tuple[Tensor, Tensor] | None = None

    @property
    def gamma(self) -> Tensor | None:
        """Absolute values of its gains; None where it has none, or a single one for all."""
        gains = self.form.gamma
        return None if gains is None or gains.numel() == 1 else gains.detach().double().abs().reshape(-1).cpu()

    @property
    def sigma(self) -> Tensor:
        """What it divides by: √(σ² + ε)."""
        return self.form.below(self.variance).cpu()


def norm_of(step: Step, native: torch.dtype) -> MeasuredNorm | None:
    """The normalizer that a step is; None for any other step."""
    form = of_step(step, native)
    if form is None or not form.has_spread or (form.axis == 1 and step.inputs[0].tensor.ndim < 2):
        return None
    data = step.inputs[0].tensor.detach().double()
    variance = form.variance(data).detach().double()
    if form.stored is None:
        return MeasuredNorm(step, form, variance, form.grouped(data).shape[2])
    values = data.movedim(1, 0).flatten(1)  # (channels, everything)
    return MeasuredNorm(step, form, variance, values.shape[1], (values.mean(1), values.var(1, correction=0)))
