"""What of a step is not linear: its middle slope, the half-width around it, and which entries share a weight."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import size_up
from normgauge.instrument.rules.activation import slope_range
from normgauge.instrument.rules.flow import Commute, Transfer
from normgauge.instrument.trace.step import Step


@dataclass(frozen=True, slots=True)
class UncertainStep:
    """A step y(x') − y(x) = mid·(x' − x) + w, ‖w‖ ≤ half·‖x' − x‖ in every group of entries.

    Attributes:
        step: where it was recorded.
        mid: the middle slope; 0 for a step that is not elementwise.
        half: bound on the rest.
        groups: how many there are: channels, or one.
        seen: the group of each entry of its input, (entries of a sample).
        made: the group of each entry of its output.
        sides: axes along which the samples lie in input and output.
    """

    step: Step
    mid: float
    half: float
    groups: int
    seen: Tensor
    made: Tensor
    sides: tuple[int, int]


def sample_rows(tensor: Tensor, axis: int, samples: int) -> Tensor:
    """A tensor as (samples, entries of a sample)."""
    return tensor.movedim(axis, 0).reshape(samples, -1)


def from_rows(rows: Tensor, shape: torch.Size, axis: int) -> Tensor:
    """The tensor of a shape from its `sample_rows`."""
    moved = (shape[axis], *(n for i, n in enumerate(shape) if i != axis % len(shape)))
    return rows.reshape(moved).movedim(0, axis)


def uncertain_step(
    step: Step, transfer: Transfer, rule: str, log_gain: float, sides: tuple[int, int], samples: int
) -> UncertainStep | None:
    """The parts of a step that is not affine; None where it has several inputs or outputs, or no constant.

    Activations and maxima over windows have a weight a channel, anything else a single one: its constant says nothing
    of parts of it. (One an entry costs more than it gains: weights differ little between the pixels of a channel.)

    Args:
        step: as recorded.
        transfer: what its rule says.
        rule: which rule.
        log_gain: log of its constant over all inputs.
        sides: axes along which samples lie in its input and output.
        samples: how many there are.
    """
    if len(step.inputs) != 1 or len(step.outputs) != 1 or not log_gain < math.inf:
        return None
    shapes = [v[0].tensor.shape for v in (step.inputs, step.outputs)]
    ends = slope_range(step, rule)
    if ends is not None and shapes[0] == shapes[1] and sides[0] == sides[1]:
        low, high = ends
        mid = (low + high) / 2
        channel = channels_of(shapes[0], sides[0], samples)
        half = size_up(max(high - mid, mid - low))
        return UncertainStep(step, mid, half, int(channel.max()) + 1, channel, channel, sides)
    apart = rule.startswith("pooling.") and _works_by_channel(transfer.gains[0].form, shapes, sides)
    seen, made = (
        channels_of(shape, side, samples) if apart else torch.zeros(shape.numel() // samples, dtype=torch.long)
        for shape, side in zip(shapes, sides, strict=True)
    )
    return UncertainStep(step, 0.0, size_up(math.exp(log_gain)), int(seen.max()) + 1, seen, made, sides)


def _works_by_channel(form: object, shapes: list[torch.Size], sides: tuple[int, int]) -> bool:
    """Whether a step keeps samples and channels, axes 0 and 1, apart."""
    if sides != (0, 0) or len(shapes[0]) < 3 or shapes[0][:2] != shapes[1][:2]:
        return False
    return isinstance(form, Commute) and not {axis % len(shapes[0]) for axis in form.axes} & {0, 1}


def channels_of(shape: torch.Size, side: int, samples: int) -> Tensor:
    """The channel of each entry of a sample: along axis 1 of images; elsewhere every entry is its own."""
    if side % len(shape) == 0 and len(shape) > 2 and shape[0] == samples:
        labels = torch.arange(shape[1]).reshape(-1, *[1] * (len(shape) - 2)).expand(shape[1:])
        return labels.reshape(-1)
    return torch.arange(shape.numel() // samples)
