"""Large batches: a rough look at every sample, then a thorough search from the most sensitive few."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from normgauge.instrument.probe.jacobian import random_rows, top_pair_runs
from normgauge.instrument.probe.linearize import Function, SampleMap, row_norms, unit_rows
from normgauge.instrument.probe.search import Found, search
from normgauge.instrument.probe.work import counted

KEEP = 6
BUDGET = 1.0  # seconds of counted work; the look at the whole batch has cost several already


def focused_search(
    function: Function, x: Tensor, samples: int, radius: float, *, output: Tensor | None = None, **options: Any
) -> Found:
    """`search` from the samples with the steepest slopes.

    Where the Jacobians of all samples fit the budget, they are computed. Otherwise the rough slope of each is
    max ‖J(x)ᵀu‖ over two unit vectors u: at most ‖J(x)‖, of which it has been seen to be a third; the samples that are
    not searched keep it as their lower bound. ``function`` must accept part of the batch; ``output``
    is what it returns for the whole, if that is known. Where slopes at the samples are known, as a ``floor``, they are
    the rough ones: no sample is told less, however many there are.

    Where any slope counts, wherever it is met, the look is in single precision if there is one: what a sample keeps is
    cut to the largest slope that was confirmed, and so never more than the network has.
    """
    if samples <= 2 * KEEP:
        return search(function, x, samples, radius, **options)
    network = SampleMap(function, x, samples, options.get("output_axis", 0), output=output)
    if network.samples != samples:
        return search(function, x, samples, radius, **options)
    one = counted(function, x[: len(x) // samples])[1]
    network.work = dataclasses.replace(one, products=one.products * samples, entries=one.entries * samples)
    with network.scouted(options.get("quick") if radius == math.inf else None) as scout:
        rough = _looks(scout).log()
    floor = options.get("floor")
    if floor is not None:
        rough = torch.maximum(rough, floor)
    if network.work.seconds * top_pair_runs(network) < BUDGET:
        every = search(function, x, samples, 0.0, **options)
        if not radius:
            return every
        rough = every.log_lower
    best = rough.topk(KEEP).indices.sort().values
    marks = options.get("marks")
    few = {"budget": BUDGET, **options, "marks": None if marks is None else marks[best]}
    few["floor"] = None if floor is None else floor[best]
    found = search(function, x[best], KEEP, radius, **few)
    lower = torch.minimum(rough, torch.tensor(found.log_best, dtype=torch.float64))
    lower[best] = torch.maximum(found.log_lower, lower[best]) if radius else found.log_lower
    where = int(best[int(found.log_lower.argmax())])
    witness = f"{found.witness.rpartition(' ')[0]} {where}"
    steepest = None if found.steepest is None else (where, found.steepest[1])
    calls = found.calls + network.calls
    return dataclasses.replace(found, log_lower=lower, witness=witness, calls=calls, steepest=steepest)


def _looks(network: SampleMap) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    tangent = network.at(network.start, once=True)
    like = torch.zeros(network.samples, network.outputs, dtype=torch.float64, device=network.start.device)
    looks = [unit_rows(random_rows(like, generator))]
    if network.outputs > 1:  # between the two largest outputs a classifier is usually steepest
        top = tangent.value.topk(2, dim=1).indices
        looks.append(unit_rows(like.scatter(1, top, torch.tensor([[1.0, -1.0]]).to(like).expand(len(like), 2))))
    slopes = [row_norms(tangent.pull(look)) for look in looks]
    rough = torch.stack(slopes).amax(0).cpu() * (1 - network.rounding)
    return torch.where(rough.isfinite(), rough, 0.0)
