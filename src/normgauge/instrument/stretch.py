"""Where the gap lies: follow the worst direction found through the network and see what each layer makes of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from normgauge.core.bound import Scope
from normgauge.core.refute import ROOM
from normgauge.instrument.balance import Balanced
from normgauge.instrument.probe.search import Found
from normgauge.instrument.session import Session
from normgauge.instrument.slopes import sample_alone
from normgauge.instrument.trace.again import moved_trace, run_step
from normgauge.instrument.trace.precision import imitate_precision
from normgauge.instrument.trace.same_path import same_numbers
from normgauge.instrument.trace.step import Step, Trace, Value

T = TypeVar("T")
FEW = 4  # samples that run again faster than one of them is traced anew
ROUNDS, SETTLED = 12, 1e-3
SHAKES = 2
EPS, BLURRED = torch.finfo(torch.float64).eps, 1e-5
LARGEST = 600.0  # log of what a float may hold with room to spare


@dataclass(frozen=True, slots=True)
class SteepestWalk:
    """What each step did to the steepest direction at the most sensitive sample; empty if it was not followed.

    Attributes:
        slack: log of (what the step's gain allows) over (what it did).
        reached: log of how much the direction had grown by the step's output.
    """

    slack: Mapping[int, float] = field(default_factory=dict)
    reached: Mapping[int, float] = field(default_factory=dict)


def follow_steepest(session: Session, best: Balanced, found: Found) -> SteepestWalk:
    """Follow the steepest direction at the most sensitive sample, and return each step's share of the gap."""
    if session.together or len(found.log_lower) != session.samples:
        return SteepestWalk()
    worst = int(found.log_lower.argmax())
    known = found.steepest[1] if found.steepest is not None and found.steepest[0] == worst else None
    alone = not session.trace.embeddings and (session.samples == 1 or sample_alone(session))
    ways = ([batch_walk] if session.samples <= FEW or not alone else []) + [steepest_walk] * alone
    traces = session.once(("walk", worst), lambda: first_found(way(session, worst, known) for way in ways))
    if traces is None:
        return SteepestWalk()
    here, there = traces
    return SteepestWalk(slacks(best, session.trace, here, there), reached(here, there))


def first_found(found: Iterable[T | None]) -> T | None:
    """The first that is not None."""
    return next((one for one in found if one is not None), None)


def batch_walk(session: Session, sample: int, known: Tensor | None) -> tuple[Trace, Trace] | None:
    """The recorded batch, and its steps run again with one sample moved in its steepest direction; None without one.

    For few samples, which to trace anew takes longer, and for those that cannot be traced alone: embedded tokens, or a
    program made for one size of batch.
    """
    trace = session.trace
    x = trace.measured.detach()
    if known is None or not session.exact or known.numel() * session.samples != x.numel() or not bool(known.any()):
        return None
    alone = session.samples == 1 or (not trace.embeddings and sample_alone(session))  # along the first axis
    axis = 0 if alone else session.composed(Scope.parse("point")).flows[trace.sources[0].index].axis
    share = x.shape[axis] // session.samples
    place = x.narrow(axis, sample * share, share)
    moved = x.clone()
    reach = min(1e-6 * float(place.norm() + 1), ROOM)
    moved.narrow(axis, sample * share, share).add_(reach * known.reshape(place.shape).to(x))
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace.rewind()
            return trace, moved_trace(trace, moved)
    except Exception:  # steps that refuse another input: no attribution
        return None


def steepest_walk(session: Session, sample: int, known: Tensor | None = None) -> tuple[Trace, Trace] | None:
    """Return traces at a sample and a small step away in its steepest direction; None where that fails.

    ``known`` is that direction, where the search has met it.
    """
    x = session.trace.sources[0].tensor
    x = x if session.samples == 1 else x[sample : sample + 1]
    reach = min(1e-6 * float(x.norm() + 1), ROOM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if known is not None and known.numel() == x.numel() and bool(known.any()):
                direction = known.reshape(x.shape).to(x)
            else:
                direction = steepest_direction(session.function(), x, reach)
        here, there = session.retrace(x), session.retrace(x + reach * direction)
    except Exception:  # a model that needs the whole batch, and says so in its own way: no attribution
        return None
    return (here, there) if all(same_steps(session, trace) for trace in (here, there)) else None


def same_steps(session: Session, one: Trace) -> bool:
    """Whether a trace of one sample has the measured steps, each with its share of the batch's entries."""
    return len(one.steps) == len(session.trace.steps) and all(
        a.outputs[0].tensor.numel() * session.samples == b.outputs[0].tensor.numel() and same_numbers(a, b)
        for a, b in zip(one.steps, session.trace.steps, strict=True)
    )


def steepest_direction(function: Callable[[Tensor], Tensor], x: Tensor, reach: float) -> Tensor:
    """A unit vector near the top right singular vector of the Jacobian at x, by power iteration."""
    generator = torch.Generator(device="cpu").manual_seed(0)
    direction = torch.randn(x.shape, dtype=torch.float64, generator=generator).to(x)
    grown = 0.0
    for _ in range(ROUNDS):
        direction = direction / direction.norm()
        point = x.detach().requires_grad_(True)
        with torch.enable_grad():
            out = function(point)
            change = (function(x + reach * direction) - out).detach()
            (direction,) = torch.autograd.grad((out * change / change.norm().clamp_min(1e-300)).sum(), point)
        if not bool(torch.isfinite(direction).all()) or not bool(direction.any()):
            return torch.zeros_like(x)
        before, grown = grown, float(direction.norm())  # ‖Jᵀu‖, which rises to ‖J‖
        if grown - before < SETTLED * grown:
            break
    return direction / direction.norm()


def reached(here: Trace, there: Trace) -> dict[int, float]:
    """By step: log of how much the change from ``here`` to ``there`` has grown by its output.

    A step is left out where rounding may have made more than `BLURRED` of its change: each entry is taken to err by 8
    units in the last place of the largest that the step reads or writes, since it may cancel inside, or by what the
    step itself makes of such errors (`shaken_change`); and what has erred before a step errs as much behind it.
    """
    plain = Balanced(torch.zeros(1))
    start = math.hypot(*(_length(plain, a, a, b) for a, b in zip(here.sources, there.sources, strict=True)))
    found: dict[int, float] = {}
    blur: dict[int, float] = {}  # by value, the part of its change that may be rounding
    for a, b in zip(here.steps, there.steps, strict=True):
        shaken = shaken_change(b, there.native)
        for before, after in zip(a.outputs, b.outputs, strict=True):
            moved = _length(plain, before, before, after)
            read = (_moved_size(*pair) for pair in zip(a.inputs, b.inputs, strict=True))
            lost = max(8 * EPS * max(_moved_size(before, after), *read, 0.0), shaken.get(before.position, 0.0))
            fresh = lost / moved if moved > 0 else 0.0
            blur[before.index] = max((blur.get(value.index, 0.0) for value in a.inputs), default=0.0) + fresh
            if before is a.outputs[0] and start > 0 and blur[before.index] < BLURRED:
                found[a.index] = math.log(moved) - math.log(start) if moved > 0 else -math.inf
    return found


def shaken_change(step: Step, native: torch.dtype | None) -> dict[int, float]:
    """By output: four times the largest change when all that a step reads moves by a few units in the last place.

    A normalizer of groups of one entry multiplies by γ/√ε before it cancels: only the step itself tells. Empty where
    it does not run again.
    """
    generator, found = torch.Generator().manual_seed(0), dict.fromkeys((out.position for out in step.outputs), 0.0)
    if step.trouble or step.random is not None:
        return {}
    for _ in range(SHAKES):
        moved = {v.index: _shaken(v.tensor.detach(), generator) for v in step.inputs}
        try:
            with torch.no_grad(), warnings.catch_warnings(), imitate_precision(native):
                warnings.simplefilter("ignore")
                outs = run_step(step, lambda value, moved=moved: moved[value.index])  # type: ignore[misc]
        except Exception:  # a step that refuses other inputs
            return {}
        for out, other in zip(step.outputs, outs, strict=True):
            change = _length(Balanced(torch.zeros(1)), out, out, replace(out, tensor=other))
            found[out.position] = max(found[out.position], 4 * change)
    return found


def _shaken(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """A tensor with each entry moved by a few units in its last place; anything but float64 as it is."""
    if tensor.dtype != torch.float64:
        return tensor
    noise = torch.empty(tensor.shape, dtype=torch.float32).uniform_(-2, 2, generator=generator)
    return torch.addcmul(tensor, tensor, noise.to(tensor), value=8 * EPS)


def slacks(bound: Balanced, measured: Trace, here: Trace, there: Trace) -> dict[int, float]:
    """By step: log of (what its gain allows) over (what it did) for the change from ``here`` to ``there``.

    Lengths are taken in the bound's own channel weights, so that along a chain the slacks add up to the whole gap. All
    three traces have the same steps; the gains and weights are those of ``measured``.
    """
    found: dict[int, float] = {}
    for step, a, b in zip(measured.steps, here.steps, there.steps, strict=True):
        out = step.outputs[0]
        produced = _length(bound, out, a.outputs[0], b.outputs[0])
        allowed = 0.0
        for k, value in enumerate(step.inputs):
            gain = bound.gains.get((out.index, k), math.inf)
            allowed += math.inf if gain > LARGEST else math.exp(gain) * _length(bound, value, a.inputs[k], b.inputs[k])
        if produced > 0 and allowed > 0 and math.isfinite(allowed):
            found[step.index] = max(math.log(allowed) - math.log(produced), 0.0)
    return found


def _length(bound: Balanced, measured: Value, here: Value, there: Value) -> float:
    """‖D (h' − h)‖ with the channel weights of the bound; NaN where one sample has only a part of these channels."""
    if here.tensor.is_complex():
        change = (there.tensor - here.tensor).detach().abs().double()
    else:  # masks and indices too
        change = there.tensor.detach().double() - here.tensor.detach().double()
    weights = bound.weights.get(measured.index)
    if weights is not None:
        axis, logs = weights
        if change.shape[axis] != len(logs):  # the model laid samples and channels along one axis
            return math.nan
        change = change * logs.exp().to(change.device).reshape([-1 if i == axis else 1 for i in range(change.ndim)])
    return float(torch.linalg.vector_norm(change))


def _moved_size(here: Value, there: Value) -> float:
    """Length of the entries that moved: those that did not, such as a mask, add no error to the change."""
    data, moved = here.tensor.detach(), there.tensor.detach()
    if not data.is_floating_point() and not data.is_complex():
        return 0.0
    data, moved = (end.float() if end.dtype.itemsize == 1 else end for end in (data, moved))  # eight bits have no norm
    return max(float(torch.linalg.vector_norm(torch.where(moved != data, end, 0))) for end in (data, moved))
