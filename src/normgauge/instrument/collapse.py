"""Inputs at which the first normalizer that reads them has nothing to divide by but ε: there its slope is largest."""

from __future__ import annotations

import torch
from torch import Tensor

from normgauge.instrument.compose import Composition
from normgauge.instrument.rules.flow import NormalizerMap
from normgauge.instrument.trace.again import replayed_steps
from normgauge.instrument.trace.step import Value

FRONT = 12  # steps before the normalizer, at most: further in, no input is likely to get there
MOVES = 25
SMALL = 0.01  # of what entered the normalizer at the samples


def collapsed_inputs(parts: Composition) -> Tensor | None:
    """The samples moved until what enters the first normalizer is about zero; None where there is none, or no way.

    Holds:  nothing is claimed of them; a search tries them.
    """
    value = _entering(parts)
    if value is None:
        return None
    start = parts.trace.measured.detach().double()
    x = start.clone().requires_grad_(True)
    whole = float(value.tensor.double().square().sum())
    ways = torch.optim.LBFGS([x], max_iter=MOVES, history_size=MOVES, line_search_fn="strong_wolfe")

    def height() -> Tensor:
        height = _entered(parts, value, x).square().sum() / whole
        (x.grad,) = torch.autograd.grad(height, x)  # and none for the model's own parameters
        return height

    try:
        with torch.enable_grad():
            ways.step(height)
            left = float(_entered(parts, value, x.detach()).square().sum())
    except (RuntimeError, TypeError, ValueError, AttributeError):  # autograd does not follow it
        return None
    return x.detach() if left < SMALL**2 * whole and bool(x.detach().isfinite().all()) else None


def _entering(parts: Composition) -> Value | None:
    """What the first normalizer reads, where a few steps made it of the input."""
    sources = {source.index for source in parts.trace.sources}
    for step in parts.trace.steps[: FRONT + 1]:
        gains = parts.transfers[step.outputs[0].index].gains
        if gains and isinstance(gains[0].form, NormalizerMap):
            found = step.inputs[0]
            usual = found.index not in sources and found.tensor.is_floating_point()
            return found if usual and bool(found.tensor.any()) else None
    return None


def _entered(parts: Composition, value: Value, x: Tensor) -> Tensor:
    for step, outputs in replayed_steps(parts.trace, x):
        for out, tensor in zip(step.outputs, outputs, strict=True):
            if out.index == value.index:
                return tensor
    raise ValueError("the value is not made by any step")
