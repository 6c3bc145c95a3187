"""Whether a sample alone has the output that it has in its batch: a program may ask how many samples there are."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from normgauge.instrument.trace.again import tensors_alike
from normgauge.instrument.trace.place import set_torch_random, torch_random
from normgauge.instrument.trace.step import Trace

Run = Callable[[Tensor, bool], Tensor]
"""The model at other samples; with True the inputs beside them are cut to their first row."""


@torch.no_grad()
def size_matters(trace: Trace, run: Run, samples: Tensor) -> bool:
    """Whether the first of several samples has another output alone, though the others do not reach its output.

    Not asked where something else would show: steps that cannot be followed, a path that depends on the data, random
    numbers. Where a model takes no sample alone nothing is known, and False returned. Costs one run of one sample, and
    others only where that gives something else.
    """
    random = trace.draws or any(step.random is not None for step in trace.steps)
    if samples.ndim < 2 or len(samples) < 2 or random or trace.path_dependent or any(s.trouble for s in trace.steps):
        return False
    rows, compared = _first_rows(trace.end.tensor, len(samples)), False
    state = torch_random()
    try:
        for cut in (False, True):  # inputs beside it may be of the samples, or of all of them
            alone = _tried(run, samples[:1], cut)
            fitting = [row for row in rows if alone is not None and row.numel() == alone.numel()]
            if any(alone is not None and tensors_alike(alone.reshape(row.shape), row) for row in fitting):
                return False
            compared = compared or bool(fitting)
        among = _tried(run, samples[:1].expand_as(samples), False) if compared else None
        if among is None or among.shape != trace.end.tensor.shape:
            return False
        return any(map(tensors_alike, rows, _first_rows(among, len(samples))))
    finally:
        set_torch_random(state)


def _tried(run: Run, samples: Tensor, cut: bool) -> Tensor | None:
    try:
        return run(samples.clone(), cut)
    except Exception:  # a model may ask for several samples, or for different ones
        return None


def _first_rows(out: Tensor, count: int) -> list[Tensor]:
    """What may be the output of the first sample: the first part of every axis that can be cut into so many."""
    return [out.narrow(axis, 0, size // count) for axis, size in enumerate(out.shape) if size and size % count == 0]
