"""Chains of layers without a normalizer, and what happens behind a layer to its scale."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.advice.thresholds import NOTHING
from normgauge.advice.view import TraceView
from normgauge.instrument.rules.normalizer import making_map
from normgauge.instrument.trace.step import Step, Value

DEEPEST = 40  # steps looked at behind a value
SUMS = {"add", "add_", "iadd", "radd", "sub", "sub_", "isub", "rsub"}


@dataclass(frozen=True, slots=True)
class StepChain:
    """Steps in series, each with one input and one user, that no normalizer interrupts.

    Attributes:
        steps: in order.
        end: ``norm``, ``join`` (branches meet), ``fork`` or ``output``: what stands behind the last step.
    """

    steps: tuple[Step, ...]
    end: str

    @property
    def last(self) -> Value:
        """The value at the end of the chain."""
        return self.steps[-1].outputs[0]


def chains(view: TraceView) -> Iterator[StepChain]:
    """Every chain that holds a weight layer."""
    taken: set[int] = set()
    for step in view.session.trace.steps:
        if step.index in taken or view.weight(step) is None or len(step.inputs) != 1:
            continue
        steps = [step]
        while True:
            users = view.consumers(steps[-1].outputs[0])
            if len(users) != 1:
                end = "fork" if users else "output"
                break
            if users[0].index in view.norms or len(users[0].inputs) != 1:
                end = "norm" if users[0].index in view.norms else "join"
                break
            steps.append(users[0])
        taken.update(s.index for s in steps)
        yield StepChain(tuple(steps), end)


def share_product(view: TraceView, one: StepChain, other: StepChain) -> bool:
    """Whether two chains end in one product, as queries and keys do: what one gains in scale the other may lose."""
    if one.end != "join" or other.end != "join":
        return False
    user, partner = (view.consumers(chain.last)[0] for chain in (one, other))
    return user is partner and user.kind not in SUMS | {"cat", "concat", "concatenate"}


def absorbed(view: TraceView, value: Value, depth: int = 0) -> bool:
    """Whether every way on from a value meets a normalizer before branches meet: its scale then does not matter."""
    users = view.consumers(value)
    if not users or depth > DEEPEST:
        return False
    return all(_absorbs(view, user, depth) for user in users)


def _absorbs(view: TraceView, user: Step, depth: int) -> bool:
    if user.index in view.norms:
        return True
    # channels side by side keep their scales apart, and a BatchNorm takes each away
    if user.kind in ("cat", "concat", "concatenate") or len(user.inputs) == 1:
        return absorbed(view, user.outputs[0], depth + 1)
    return False


def usual_size(view: TraceView, step: Step) -> float:
    """Decades of ‖W‖ over what a random matrix of its shape with entries 1/√fan_in has: comparable across shapes."""
    weight = view.weight(step)
    assert weight is not None
    matrix = weight.reshape(weight.shape[0], -1)
    return view.log10_spectral(step) - math.log10(1 + math.sqrt(matrix.shape[0] / matrix.shape[1]))


def channel_uptake(view: TraceView, value: Value, channels: int) -> Tensor | None:
    """How strongly the layers behind a value take up each of its channels; None where that cannot be said.

    A rescaling of a channel that the next layer undoes leaves the product of both alone.
    """
    total = torch.zeros(channels, dtype=torch.float64)
    for user in view.consumers(value):
        weight = view.weight(user)
        if weight is not None and len(user.inputs) == 1:
            found = _by_channel(weight.detach().double().cpu(), channels, user.inputs[0].tensor.ndim)
        elif len(user.inputs) == 1 and user.index not in view.norms and len(user.outputs) == 1:
            found = channel_uptake(view, user.outputs[0], channels)
        else:
            found = None
        if found is None:
            return None
        total = total + found.square()
    return total.sqrt() if bool(total.any()) else None


def _by_channel(weight: Tensor, channels: int, ndim: int) -> Tensor | None:
    """Norm of the part of a weight that one channel meets; None where the channels do not line up."""
    if weight.ndim == 2 and weight.shape[1] % channels == 0:
        if weight.shape[1] != channels and ndim != 2:
            return None
        return torch.linalg.vector_norm(weight.reshape(weight.shape[0], channels, -1), dim=(0, 2))
    if weight.ndim > 2 and weight.shape[1] == channels:
        return torch.linalg.vector_norm(weight.movedim(1, 0).flatten(1), dim=1)
    return None


def weight_row_norms(view: TraceView, value: Value) -> tuple[Tensor, float] | None:
    """Row norms of the weight that made a value, and the spread of that layer's input; None where no weight did."""
    step = making_map(value, lambda step: view.weight(step) is not None)
    weight = None if step is None else view.weight(step)
    if step is None or weight is None or "Transpose" in step.kind:
        return None
    norms = torch.linalg.vector_norm(weight.detach().double().cpu().flatten(1), dim=1)
    return norms, view.spread.get(step.inputs[0].index, NOTHING)
