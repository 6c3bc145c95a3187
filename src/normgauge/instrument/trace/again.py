"""The trace is checked, not trusted: the recorded steps run again from what was stored of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from normgauge.core.rounding import TINY
from normgauge.instrument.trace.by_piece import by_piece
from normgauge.instrument.trace.held import fresh_copy, memory_place
from normgauge.instrument.trace.inputs import Call, map_tensors, pick_output
from normgauge.instrument.trace.lent import NoWrites, is_lendable
from normgauge.instrument.trace.outside import Outside
from normgauge.instrument.trace.place import drawn_since, set_torch_random, torch_random
from normgauge.instrument.trace.precision import Precision, default_eps, imitate_precision
from normgauge.instrument.trace.same_path import Path, path_of, same_path
from normgauge.instrument.trace.step import Step, Trace, Value, tensors_in
from normgauge.instrument.trace.untouched import cast_tree, untouched

CAST = {torch.float64: 5e-2, torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 0.3}
"""What a model's own output may differ from that of its copy in float64, as a part of the output's length.

A model in float64 that casts inside loses what the copy keeps.
"""
NEAR = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 0.2}
"""What two runs may differ by, as a part of the largest entry: other kernels, other order of sums."""
OUTSIDE = 100.0
"""How many times as large as the samples the last input is at which model and recorded steps are compared."""
Function = Callable[[Tensor], Tensor]
Record = Callable[[Any, Any, Tensor], Trace]


@dataclass(frozen=True, slots=True)
class Own:
    """What the model itself gave, in its own precision and place.

    Attributes:
        here: the measured output; None where random numbers were drawn.
        other: another input, None where the model refuses it or an integer input is measured from its embedding on.
        there: the output at that one.
        eps: the ε of every RMSNorm that leaves it open.
        casts: whether its program does anything about precision.
        path: the steps it takes in its own precision; None where that is float64.
        narrowest: what it casts tensors to that is narrower than the model's own precision; None where it does not.
        trouble: why nothing can be told of it; empty where nothing speaks against it.
    """

    here: Tensor | None
    other: Tensor | None
    there: Tensor | None
    eps: frozenset[float]
    casts: bool
    path: Path | None = None
    narrowest: torch.dtype | None = None
    trouble: str = ""

    def computed_by(self, trace: Trace, function: Function) -> bool:
        """Whether the copy that was traced does what the model does, and computes it, here and at the other input."""
        if trace.output is not None and self.path is not None:
            path = path_of(trace)
            if path is None or not same_path(self.path, path):
                return False
        if self.here is None or trace.output is None:
            return True
        if not same_but_for_precision(self.here, trace.output.tensor):
            return False
        if self.other is None or self.there is None:
            return True
        source = trace.sources[0].tensor
        try:
            there = function(self.other.to(source))
        except Exception:  # it ran in its own precision
            return False
        return same_but_for_precision(self.there, there)


def same_but_for_precision(own: Tensor, copied: Tensor) -> bool:
    """Whether an output in the model's own precision is that of its copy in float64."""
    a, b = own.detach(), copied.detach().to(own.device)
    if a.shape != b.shape or a.dtype not in CAST:
        return a.shape == b.shape
    a, b, near = a.double(), b.double(), CAST[a.dtype]
    finite = a.isfinite()  # what overflows in the model's own precision need not in the copy's
    if bool((finite & ~b.isfinite()).any()):
        return False
    gap = torch.linalg.vector_norm(torch.where(finite, a - b, 0.0))
    size = torch.linalg.vector_norm(torch.where(finite, b, 0.0))
    return bool(gap <= near * size + 1e-6 * math.sqrt(b.numel()))


def as_it_runs(
    model: nn.Module, call: Call, training: bool, wanted: str | None, lend: bool = False, record: Record | None = None
) -> Own:
    """Run the model in its own precision, on copies of its tensors, at the batch and at another input.

    ``record`` writes down the steps of a call, which a copy in another precision must take too.

    With ``lend``, large weights are not copied, unless the program turns out to write to one.
    """
    if lend:
        lent = frozenset(memory_place(weight) for weight in model.parameters() if is_lendable(weight))
        guard = NoWrites(lent)
        try:
            with guard:
                own = _own_run(model, call, training, wanted, True, record)
        except Exception:
            if not guard.refused:
                raise
        if not guard.refused:
            return own
    return _own_run(model, call, training, wanted, False, record)


def _own_run(
    model: nn.Module, call: Call, training: bool, wanted: str | None, lend: bool, record: Record | None
) -> Own:
    args, kwargs = cast_tree((call.args, call.kwargs), None, None)
    x = dataclasses.replace(call, args=args, kwargs=kwargs).measured
    x.requires_grad_(call.measured.requires_grad)
    other = there = None
    outside = Outside(model)
    with untouched(model, None, None, training, None, lend):
        state = torch_random()
        with Precision(call.native) as seen:
            out, _ = pick_output(model(*args, **kwargs), wanted)  # with gradients on, as it is called by default
        drew, trouble = drawn_since(state), outside.trouble()
        here = None if drew else out.detach().clone()
        lower = seen.asked or (here is not None and here.dtype != torch.float64)
        if here is not None and lower and call.measured.is_floating_point():
            other = elsewhere(call.measured.detach())[-1]
            given = other.clone()
            try:
                args, kwargs = map_tensors(lambda leaf: given if leaf is x else leaf, (args, kwargs))
                with torch.no_grad():
                    there, _ = pick_output(model(*args, **kwargs), wanted)
            except Exception:  # an input the model refuses
                other = None
    path = None
    held = (*model.parameters(), *model.buffers(), torch.empty(0, dtype=call.native))
    if record is not None and any(t.is_floating_point() and t.dtype != torch.float64 for t in held):
        args, kwargs = cast_tree((call.args, call.kwargs), None, None)
        x = dataclasses.replace(call, args=args, kwargs=kwargs).measured
        with untouched(model, None, None, training, None, lend):
            try:
                path = path_of(record(args, kwargs, x))
            except Exception:  # the model runs, but not while it is recorded: no copy is known to take its path
                path = Path((), None, False)
    return Own(here, other, there, frozenset(map(default_eps, seen.eps)), seen.asked, path, seen.narrowest, trouble)


def run_step(step: Step, given: Callable[[Value], Tensor]) -> list[Tensor]:
    """Run one step again from its stored arguments and settings; ``given`` supplies its inputs."""

    def put(leaf: Any) -> Any:
        if isinstance(leaf, Value):
            leaf = given(leaf)
        return leaf.clone() if step.writes and isinstance(leaf, Tensor) else leaf

    args, kwargs = tree_map(put, (step.args, step.kwargs), is_leaf=lambda leaf: isinstance(leaf, Value))
    if step.random is not None:
        set_torch_random(step.random)
    if step.module is not None:
        layer = fresh_copy(step.module) if step.writes else step.module
        out = layer.forward(*args, **kwargs)
    else:
        out = step.target(*args, **kwargs)
    results, passed = tensors_in(out), tensors_in((args, kwargs))
    return [results[i] if i >= 0 else passed[-1 - i] for i in step.picks or range(len(step.outputs))]


def replayed_steps(trace: Trace, x: Tensor) -> Iterator[tuple[Step, list[Tensor]]]:
    """Yield every step with its outputs for the input ``x``; values are dropped once nothing needs them.

    A step that the tape could not follow gives what it was recorded with.
    """
    values = {source.index: part for source, part in zip(trace.sources, trace.parted(x), strict=True)}
    left: dict[int, int] = {}
    for step in trace.steps:
        for value in step.inputs:
            left[value.index] = left.get(value.index, 0) + 1
    for step in trace.steps:
        if step.trouble:
            outs = [out.tensor for out in step.outputs]
        else:
            with imitate_precision(trace.native), by_piece(x):
                outs = run_step(step, lambda value: values[value.index])
        values.update((out.index, tensor) for out, tensor in zip(step.outputs, outs, strict=True))
        for value in step.inputs:
            left[value.index] -= 1
            if left[value.index] == 0:
                values.pop(value.index, None)
        yield step, outs


def moved_trace(trace: Trace, x: Tensor) -> Trace:
    """The same steps with the values they have at the input ``x``, where the steps were recorded: nothing is traced."""
    moved = zip(trace.sources, trace.parted(x), strict=True)
    values = {source.index: dataclasses.replace(source, tensor=part) for source, part in moved}
    steps = []
    for step, outs in replayed_steps(trace, x):
        made = [
            dataclasses.replace(out, tensor=tensor.detach()) for out, tensor in zip(step.outputs, outs, strict=True)
        ]
        values.update((value.index, value) for value in made)
        inputs = tuple(values[value.index] for value in step.inputs)
        steps.append(dataclasses.replace(step, inputs=inputs, outputs=tuple(made)))
    sources = tuple(values[source.index] for source in trace.sources)
    return dataclasses.replace(trace, sources=sources, output=values[trace.end.index], steps=tuple(steps), consumers={})


def tensors_alike(a: Tensor, b: Tensor) -> bool:
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
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    a, b = a.double(), b.double()
    same = (a == b) | (a.isnan() & b.isnan())
    size = float(b[b.isfinite()].abs().max()) if bool(b.isfinite().any()) else 0.0
    return bool((same | ((a - b).abs() <= NEAR.get(kind, 1e-6) * size + TINY)).all())


@torch.no_grad()
def first_difference(trace: Trace) -> str:
    """Name the first step that gives another result when it runs again on its own inputs; empty if all agree."""
    for step in trace.steps:
        if step.trouble:
            continue
        try:
            with imitate_precision(trace.native), by_piece(trace.measured):
                outs = run_step(step, lambda value: value.tensor)
        except Exception as error:
            return f"{step.name}: it cannot be run again ({type(error).__name__}: {error})".partition("\n")[0]
        for out, tensor in zip(step.outputs, outs, strict=True):
            if not tensors_alike(tensor, out.tensor):
                return f"{step.name}: run again from what was recorded of it, it gives something else"
    return ""


def elsewhere(x: Tensor) -> list[Tensor]:
    """Return two other inputs: one nearby, and one that is near for every second sample and far for the rest.

    Far means other signs and another order.
    """
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(x)
    size = x.abs().mean() + 1e-3
    near = x + 1e-3 * size * noise
    far = -1.3 * x.reshape(-1).flip(0).reshape(x.shape) + size * noise
    if x.ndim > 1 and len(x) > 1:
        every_second = (torch.arange(len(x)) % 2 == 1).to(x.device).reshape(-1, *[1] * (x.ndim - 1))
        far = torch.where(every_second, near, far)
    return [near, far]


def remembering(function: Function) -> Function:
    """Return the same function, which does not run a second time at the input it was given last."""
    last: list[tuple[Tensor, Tensor]] = []

    def run(x: Tensor) -> Tensor:
        if not last or x.dtype != last[0][0].dtype or not torch.equal(x, last[0][0]):
            given = x.clone()  # the model may overwrite its input
            last[:] = [(given, function(x).detach().clone())]
        return last[0][1]

    return run


@torch.no_grad()
def checked_trace(
    trace: Trace, function: Function, retrace: Callable[[Tensor], Trace], other: Tensor | None = None
) -> Trace:
    """Return the trace if its steps do what the model does, else one that ends in a step saying where they differ.

    Each step is run again at the batch from what was stored of it; then all of them, from the input on, at another
    input, against the model itself; where that gives no numbers, at one nearer by; then at one far outside. The other
    input is ``other``, if the model is known to take it.
    """
    if trace.output is None or not trace.sources or not trace.steps or any(step.trouble for step in trace.steps):
        return trace
    state = torch_random()
    try:
        wrong = first_difference(trace)
        if wrong:
            name, _, why = wrong.partition(": ")
            return trace.doubted(name, f"the trace is not faithful at {name}: {why}")
        near, far = elsewhere(trace.measured)
        for x in (far if other is None else other.to(far), near):
            wrong, told = output_difference(trace, function, x)
            if wrong and not trace.path_dependent:
                return trace.doubted(*named(trace, retrace, x, wrong))
            if told:
                break
        wrong, _ = output_difference(trace, function, OUTSIDE * far)  # what is zero near the samples need not be there
        if wrong and not trace.path_dependent:
            return trace.doubted(*named(trace, retrace, OUTSIDE * far, wrong))
    finally:
        set_torch_random(state)
    return trace


def output_difference(trace: Trace, function: Function, x: Tensor) -> tuple[str, bool]:
    """Say how model and recorded steps differ at ``x``, and whether the model gave finite numbers there."""
    try:
        want = function(x.clone())  # which the model may overwrite
    except Exception:  # an input the model refuses says nothing about its steps
        return "", False
    try:
        got = x
        for _, outs in replayed_steps(trace, x):
            got = outs[min(trace.end.position, len(outs) - 1)]
    except Exception as error:
        return f"its steps cannot be run at another input ({type(error).__name__}: {error})".partition("\n")[0], True
    wrong = "" if tensors_alike(got, want) else "the model's output at another input is not that of its recorded steps"
    return wrong, bool(want.isfinite().any())


def named(trace: Trace, retrace: Callable[[Tensor], Trace], x: Tensor, wrong: str) -> tuple[str, str]:
    """Record the model at ``x`` to name the first step that differs there."""
    why = f"{wrong}; data reach it by a way the tape cannot see, or the model changes from call to call"
    try:
        other = retrace(x.clone())
        for (step, outs), there in zip(replayed_steps(trace, x), other.steps, strict=False):
            same = step.target is there.target and len(outs) == len(there.outputs)
            if not same or not all(tensors_alike(a, b.tensor) for a, b in zip(outs, there.outputs, strict=True)):
                return step.name, f"{why}; the first step that differs is {step.name}"
    except Exception:
        return "the model", why
    return "the model", why
