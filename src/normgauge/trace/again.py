"""The trace is checked, not trusted: the recorded steps run again from what was stored of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from normgauge.trace.held import fresh
from normgauge.trace.inputs import Call, pick_output
from normgauge.trace.precision import Precision, widened
from normgauge.trace.step import Step, Trace, Value, tensors_in
from normgauge.trace.untouched import cast_tree, default_eps, untouched

CAST = {torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 0.3}
"""What a model's own output may differ from that of its copy in float64, as a part of the output's length."""
NEAR = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 0.2}
"""What two runs may differ by, as a part of the largest entry: other kernels, other order of sums."""
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Own:
    """What the model itself gave, in its own precision and place.

    Attributes:
        output: the measured output; None where random numbers were drawn.
        eps: the ε of every RMSNorm that leaves it open.
        casts: whether its program does anything about precision.
    """

    output: Tensor | None
    eps: frozenset[float]
    casts: bool

    def agrees(self, trace: Trace) -> bool:
        """Whether the copy that was traced computes what the model does."""
        if self.output is None or trace.output is None:
            return True
        here, there = (t.detach().to("cpu") for t in (self.output, trace.output.tensor))
        if here.dtype not in CAST or here.shape != there.shape:
            return here.shape == there.shape
        a, b = here.double(), there.double()
        finite = a.isfinite()  # what overflows in the model's own precision need not in the copy's
        if bool((finite & ~b.isfinite()).any()):
            return False
        gap = torch.linalg.vector_norm(torch.where(finite, a - b, 0.0))
        size = torch.linalg.vector_norm(torch.where(finite, b, 0.0))
        return bool(gap <= CAST[here.dtype] * size + 1e-6 * math.sqrt(b.numel()))


def as_it_runs(model: nn.Module, call: Call, training: bool, wanted: str | None) -> Own:
    """Run the model once in its own precision, on copies of its tensors."""
    args, kwargs = cast_tree((call.args, call.kwargs), None, None)
    with untouched(model, None, None, training, None), torch.no_grad(), Precision() as seen:
        state = torch.get_rng_state()
        output, _ = pick_output(model(*args, **kwargs), wanted)
        drew = not torch.equal(state, torch.get_rng_state())
    return Own(None if drew else output, frozenset(map(default_eps, seen.eps)), seen.asked)


def run_step(step: Step, given: Callable[[Value], Tensor]) -> list[Tensor]:
    """The outputs of one step from its stored arguments and settings; ``given`` says what its inputs are."""

    def put(leaf: Any) -> Any:
        if isinstance(leaf, Value):
            leaf = given(leaf)
        return leaf.clone() if step.writes and isinstance(leaf, Tensor) else leaf

    args, kwargs = tree_map(put, (step.args, step.kwargs), is_leaf=lambda leaf: isinstance(leaf, Value))
    if step.random is not None:
        torch.set_rng_state(step.random)
    if step.module is not None:
        layer = fresh(step.module) if step.writes else step.module
        out = layer.forward(*args, **kwargs)
    else:
        out = step.target(*args, **kwargs)
    results, passed = tensors_in(out), tensors_in((args, kwargs))
    return [results[i] if i >= 0 else passed[-1 - i] for i in step.picks or range(len(step.outputs))]


def runs(trace: Trace, x: Tensor) -> Iterator[tuple[Step, list[Tensor]]]:
    """Every step with its outputs where the first source is ``x``; a value is forgotten when nothing needs it any more.

    A step that the tape could not follow gives what it was recorded with.
    """
    values = {source.index: source.tensor for source in trace.sources}
    values[trace.sources[0].index] = x
    left: dict[int, int] = {}
    for step in trace.steps:
        for value in step.inputs:
            left[value.index] = left.get(value.index, 0) + 1
    for step in trace.steps:
        if step.trouble:
            outs = [out.tensor for out in step.outputs]
        else:
            with widened(trace.native):
                outs = run_step(step, lambda value: values[value.index])
        values.update((out.index, tensor) for out, tensor in zip(step.outputs, outs, strict=True))
        for value in step.inputs:
            left[value.index] -= 1
            if left[value.index] == 0:
                values.pop(value.index, None)
        yield step, outs


@torch.no_grad()
def rerun(trace: Trace, x: Tensor) -> dict[int, Tensor]:
    """Every value of the trace, by index, where the measured tensor is ``x``."""
    found = {source.index: source.tensor for source in trace.sources} | {trace.sources[0].index: x}
    state = torch.get_rng_state()
    try:
        for step, outs in runs(trace, x):
            found.update((out.index, tensor) for out, tensor in zip(step.outputs, outs, strict=True))
    finally:
        torch.set_rng_state(state)
    return found


def alike(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same up to rounding."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not (a.is_floating_point() or a.is_complex()):
        return bool(torch.equal(a, b))
    if not a.numel() or torch.equal(a, b):
        return True
    if a.layout != torch.strided:
        return False
    kind = a.dtype.to_real() if a.is_complex() else a.dtype
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    a, b = a.double(), b.double()
    same = (a == b) | (a.isnan() & b.isnan())
    size = float(b[b.isfinite()].abs().max()) if bool(b.isfinite().any()) else 0.0
    return bool((same | ((a - b).abs() <= NEAR.get(kind, 1e-6) * size + 1e-300)).all())


@torch.no_grad()
def first_difference(trace: Trace) -> str:
    """The first step that, given what it was given, does not make what it made; empty where there is none."""
    for step in trace.steps:
        if step.trouble:
            continue
        try:
            with widened(trace.native):
                outs = run_step(step, lambda value: value.tensor)
        except Exception as error:
            return f"{step.name}: it cannot be run again ({type(error).__name__}: {error})".partition("\n")[0]
        for out, tensor in zip(step.outputs, outs, strict=True):
            if not alike(tensor, out.tensor):
                return f"{step.name}: run again from what was recorded of it, it gives something else"
    return ""


def elsewhere(x: Tensor) -> list[Tensor]:
    """Two other inputs: near the first one, and far from it with other signs and order."""
    generator = torch.Generator().manual_seed(7)
    noise = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)
    size = x.abs().mean() + 1e-3
    flat = x.reshape(-1)
    return [x + 1e-3 * size * noise, -1.3 * flat.flip(0).reshape(x.shape) + size * noise]


@torch.no_grad()
def checked(trace: Trace, function: Function, retrace: Callable[[Tensor], Trace]) -> Trace:
    """The trace, or one that ends in a step that says where its steps and the model differ.

    Each step is run again at the batch from what was stored of it; then all of them, from the input on, at two other
    inputs, against the model itself.
    """
    if trace.output is None or not trace.sources or not trace.steps or any(step.trouble for step in trace.steps):
        return trace
    state = torch.get_rng_state()
    try:
        wrong = first_difference(trace)
        if wrong:
            name, _, why = wrong.partition(": ")
            return trace.doubted(name, f"the trace is not faithful at {name}: {why}")
        for x in elsewhere(trace.sources[0].tensor):
            wrong = different(trace, function, x)
            if wrong and not trace.path_dependent:
                return trace.doubted(*named(trace, retrace, x, wrong))
    finally:
        torch.set_rng_state(state)
    return trace


def different(trace: Trace, function: Function, x: Tensor) -> str:
    """How the model and the recorded steps differ at ``x``, in words; empty where they do not."""
    assert trace.output is not None
    try:
        if trace.random is not None:
            torch.set_rng_state(trace.random)
        want = function(x.clone())  # which the model may overwrite
    except Exception:  # an input the model refuses says nothing about its steps
        return ""
    try:
        got = x
        for _, outs in runs(trace, x):
            got = outs[min(trace.output.position, len(outs) - 1)]
    except Exception as error:
        return f"its steps cannot be run at another input ({type(error).__name__}: {error})".partition("\n")[0]
    return "" if alike(got, want) else "the model's output at another input is not that of its recorded steps"


def named(trace: Trace, retrace: Callable[[Tensor], Trace], x: Tensor, wrong: str) -> tuple[str, str]:
    """The first step that differs at ``x``, by recording the model there."""
    why = f"{wrong}; data reach it by a way the tape cannot see, or the model changes from call to call"
    try:
        other = retrace(x.clone())
        for (step, outs), there in zip(runs(trace, x), other.steps, strict=False):
            same = step.target is there.target and len(outs) == len(there.outputs)
            if not same or not all(alike(a, b.tensor) for a, b in zip(outs, there.outputs, strict=True)):
                return step.name, f"{why}; the first step that differs is {step.name}"
    except Exception:
        return "the model", why
    return "the model", why
