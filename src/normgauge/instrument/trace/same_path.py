"""Whether a copy in float64 takes the path that the model takes in its own precision: the steps of both, side by side.

A program may ask its precision where nothing can answer for it: by the class of a tensor, or by what is lost to
rounding. Then it takes other steps, or the same with other constants.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from normgauge.instrument.trace.held import HOOKS, strided
from normgauge.instrument.trace.lent import Lent
from normgauge.instrument.trace.step import Step, Trace, Value, unfollowed
from normgauge.instrument.trace.tape import recast

LOOKED_AT = 256  # entries of a constant that are compared
SAME = 1e-9  # what a number worked out in the pass may be off by: far above its rounding, far below another choice
ROUNDING = {torch.float64: 5e-2, torch.float32: 5e-2, torch.float16: 0.5, torch.bfloat16: 0.8}
"""What a constant may be off by in the precision it was made in, as a part of its length: a program may cancel."""


@dataclass(frozen=True, slots=True)
class Path:
    """The steps of a trace in short: what is done, to which values and with which constants.

    Attributes:
        steps: of each, casts left out, its target, module path and what it was given.
        end: which value is the output.
        draws: whether random numbers were drawn; they are others in another precision.
    """

    steps: tuple[tuple[Any, str, tuple[Any, ...]], ...]
    end: Any
    draws: bool


@dataclass(frozen=True, slots=True)
class Which:
    """A value by the step that made it, or by the source it is."""

    step: int
    position: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Some entries of a constant tensor."""

    shape: tuple[int, ...]
    entries: Tensor | None


def path_of(trace: Trace) -> Path | None:
    """Return the steps of a trace in short; None where the output depends on no source."""
    if trace.output is None:
        return None
    which: dict[int, Which] = {value.index: Which(-1, i) for i, value in enumerate(trace.sources)}
    known: dict[int, Any] = {}
    steps: list[tuple[Any, str, tuple[Any, ...]]] = []
    for step in trace.steps:
        if step.target is recast and step.inputs:
            which.update((out.index, which.get(step.inputs[0].index, Which(-2, 0))) for out in step.outputs)
        elif step.target is not unfollowed:
            which.update((out.index, Which(len(steps), i)) for i, out in enumerate(step.outputs))
            steps.append((step.target, step.path, tuple(_given(step, which, known))))
        else:
            which.update((out.index, which.get(step.inputs[0].index, Which(-2, 0))) for out in step.outputs)
    drawn = trace.draws or any(step.random is not None for step in trace.steps)
    return Path(tuple(steps), which.get(trace.output.index), drawn)


def _given(step: Step, which: dict[int, Which], known: dict[int, Any]) -> list[Any]:
    settings: Any = ()
    if step.module is not None:
        state = step.module.__dict__
        left = ("_modules", "training", *HOOKS)
        settings = {key: value for key, value in sorted(state.items()) if key not in left}
    found: list[Any] = []
    for leaf in tree_leaves((step.args, step.kwargs, settings), is_leaf=lambda part: isinstance(part, Value)):
        if isinstance(leaf, Value):
            found.append(which.get(leaf.index, Which(-2, 0)))
        elif isinstance(leaf, Tensor):
            if id(leaf) not in known:
                known[id(leaf)] = (_sample(leaf), leaf)
            found.append(known[id(leaf)][0])
        elif isinstance(leaf, bool | int | float | complex | str | slice | type(None) | type(...)):
            found.append(leaf)
        else:
            found.append(type(leaf))
    return found


def _sample(tensor: Tensor) -> Sample:
    tensor = tensor.held if isinstance(tensor, Lent) else tensor
    shape = tuple(tensor.shape)
    if not strided(tensor) or tensor.device.type == "meta" or tensor.is_nested:
        return Sample(shape, None)
    tensor = tensor.detach()
    if tensor.numel() > LOOKED_AT:
        places = torch.linspace(0, tensor.numel() - 1, LOOKED_AT, dtype=torch.float64).long().to(tensor.device)
        tensor = tensor[torch.unravel_index(places, tensor.shape)]
    return Sample(shape, tensor.flatten().clone())


@torch.no_grad()
def same_path(own: Path, copied: Path) -> bool:
    """Whether both take the same steps, with the same constants up to rounding."""
    if own.end != copied.end or len(own.steps) != len(copied.steps):
        return False
    drawn = own.draws or copied.draws
    for (target, path, given), (target_there, path_there, there) in zip(own.steps, copied.steps, strict=True):
        if target != target_there or path != path_there or len(given) != len(there):
            return False
        if not all(_alike(a, b, drawn) for a, b in zip(given, there, strict=True)):
            return False
    return True


def same_numbers(one: Step, batch: Step) -> bool:
    """Whether a step of one sample is given the numbers it is given in a batch; sizes, which are whole, may differ."""
    mine, theirs = _numbers(one), _numbers(batch)
    return len(mine) == len(theirs) and all(_number_alike(a, b) for a, b in zip(mine, theirs, strict=True))


def _numbers(step: Step) -> list[float | complex]:
    leaves = tree_leaves((step.args, step.kwargs), is_leaf=lambda part: isinstance(part, Value))
    for form in [
        x for x in leaves if is_dataclass(x) and not isinstance(x, Value)
    ]:  # as of a normalizer that was found
        leaves += tree_leaves([getattr(form, part.name) for part in fields(form)])
    single = (x.item() if isinstance(x, Tensor) and x.ndim == 0 and x.device.type != "meta" else x for x in leaves)
    return [x for x in single if isinstance(x, float | complex)]


def _number_alike(one: complex, batch: complex) -> bool:
    return one == batch or (one != one and batch != batch) or abs(one - batch) <= SAME * max(abs(one), abs(batch))


def _alike(own: Any, copied: Any, drawn: bool) -> bool:
    if isinstance(own, Sample) and isinstance(copied, Sample):
        return own.shape == copied.shape and (drawn or _entries_alike(own.entries, copied.entries))
    if type(own) is not type(copied):
        return False
    if isinstance(own, float):
        return own == copied or drawn or own != own or abs(own - copied) <= 1e-3 * max(abs(own), abs(copied))
    return bool(own == copied)


def _entries_alike(own: Tensor | None, copied: Tensor | None) -> bool:
    if own is None or copied is None:
        return own is copied
    if own.is_complex() or copied.is_complex():
        own, copied = torch.view_as_real(own.to(torch.complex128)), torch.view_as_real(copied.to(torch.complex128))
    if not own.is_floating_point() or not copied.is_floating_point():
        return bool((own == copied.to(own.device)).all())
    if not own.numel():
        return True
    near, most, eps = ROUNDING.get(own.dtype, 0.8), torch.finfo(own.dtype).max, torch.finfo(own.dtype).eps
    a, b = (part.double().to(own.device).nan_to_num(0.0).clamp(-most, most) for part in (own, copied))
    largest = max(float(a.abs().max()), float(b.abs().max())) or 1.0
    a, b = a / largest, b / largest
    return float((a - b).norm()) <= near * max(float(a.norm()), float(b.norm())) + eps / largest
