"""Whether the network does the same to every sample: what is proved of one over all inputs then holds for the others.

Inputs beside the measured one, such as a mask or a count, may be others for each sample.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from normgauge.core.bound import Scope
from normgauge.instrument.session import Session
from normgauge.instrument.trace.again import OUTSIDE, replayed_steps
from normgauge.instrument.trace.inputs import named_tensors
from normgauge.instrument.trace.place import set_torch_random, torch_random

ALIKE = 1e-9  # of a value's size: what samples given the same numbers may differ by, in float64


def is_one_map(session: Session) -> bool:
    """Whether all samples of the batch are measured in the same function of one sample.

    Every input beside the measured one has to be the same along each axis that may hold the samples; and given the
    same numbers, near the first sample and far outside, all samples have to be the same behind every step.
    """
    if session.together or session.samples == 1:
        return True
    return session.once(("one map", id(session.trace)), lambda: (session.trace, _is_one(session)))[1]


def _is_one(session: Session) -> bool:
    beside = [t for name, t in named_tensors((session.call.args, session.call.kwargs)) if name != session.call.name]
    if not all(_same_along(tensor, session.samples) for tensor in beside):
        return False
    x, generator = session.trace.measured, torch.Generator().manual_seed(0)
    first = x[:1].detach()
    noise = torch.randn(first.shape, generator=generator, dtype=torch.float64).to(first)
    size = first.square().mean().sqrt().clamp_min(1.0)
    state = torch_random()
    try:
        return all(_same_behind(session, point.expand_as(x).clone()) for point in (
            first + size * noise, OUTSIDE * size * noise, -OUTSIDE * size * noise
        ))  # fmt: skip
    except (RuntimeError, IndexError, ValueError, TypeError):  # steps that refuse another input
        return False
    finally:
        set_torch_random(state)


def _same_along(tensor: Tensor, samples: int) -> bool:
    """Whether a tensor repeats itself along each axis whose entries could belong to the samples."""
    for axis, size in enumerate(tensor.shape):
        if size and size % samples == 0:
            parts = tensor.detach().movedim(axis, 0).reshape(samples, -1)
            if not torch.equal(parts, parts[:1].expand_as(parts)):
                return False
    return True


@torch.no_grad()
def _same_behind(session: Session, x: Tensor) -> bool:
    """Whether samples that are given the same numbers are the same behind each step."""
    parts = session.composed(Scope.parse("point"))
    if session.together:  # found just now: the batch is one point
        return True
    with warnings.catch_warnings():  # seen when the model was traced
        warnings.simplefilter("ignore")
        for step, outs in replayed_steps(session.trace, x):
            for out, new in zip(step.outputs, outs, strict=True):
                rows = parts.ctx.rows(new, parts.flows[out.index].axis)
                gap = (rows - rows[:1]).abs()
                size = float(rows.abs().nan_to_num(posinf=0.0).amax()) if rows.numel() else 0.0
                same = (rows == rows[:1]) | (rows.isnan() & rows[:1].isnan()) | (gap <= ALIKE * size)
                if not bool(same.all()):
                    return False
    return True
