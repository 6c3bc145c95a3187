"""Rows that do not reach the measured output, such as padding: what is told of a layer is told of the others.

The bound counts all rows: that some do not reach the output is seen at the samples, and not proved.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from normgauge.instrument.compose import Composition, own_gain
from normgauge.instrument.rules.flow import Gain, SamplesMixed, Transfer
from normgauge.instrument.rules.normalizer import of_step
from normgauge.instrument.session import Session
from normgauge.instrument.trace.again import replayed_steps, tensors_alike
from normgauge.instrument.trace.lent import lends
from normgauge.instrument.trace.place import set_torch_random, torch_random
from normgauge.instrument.trace.step import Step, Value

FAR = 3.0  # of its size: what is put in place of rows that are said not to matter
BY_ROW = ("layer", "rms", "length")


def told_parts(session: Session, parts: Composition) -> tuple[Composition, dict[int, float]]:
    """The composition as layers are described by it, and by step the log of the gain where rows were left out.

    σ, the formula with its numbers and the lower end of the gain are those of rows that reach the output at the
    samples; the upper end, which the bound is made of, is that of all rows.
    """
    transfers, gains = dict(parts.transfers), dict[int, float]()
    for step in parts.trace.steps:
        dead = unreached_rows(session).get(step.index)
        if dead is None:
            continue
        out = step.outputs[0].index
        whole, lived = parts.transfers[out], _asked_again(parts, step, dead)
        if lived is None:
            continue
        gain, reaching = own_gain(whole), own_gain(lived)
        sigma = None if whole.sigma is None else {**whole.sigma, **_spread(session, step, ~dead)}
        kept = tuple(Gain(g.log, other.lo, g.form) for g, other in zip(whole.gains, lived.gains, strict=True))
        transfers[out] = replace(whole, gains=kept, sigma=sigma, worked=lived.worked, note=lived.note)
        if reaching.hi < gain.hi:
            gains[step.index] = reaching.hi
        else:
            transfers[out] = replace(transfers[out], worked=whole.worked, note=whole.note)
    return replace(parts, transfers=transfers), gains


def unreached_rows(session: Session) -> Mapping[int, Tensor]:
    """By normalizer of rows, in order of execution: which rows of it do not reach the measured output at the samples.

    Candidates are rows to which no gradient comes back; they count if the output stays what it is when all of them are
    something else. Networks too large to hold their gradients are not asked.
    """
    found: Mapping[int, Tensor] = session.once(
        ("unreached", id(session.trace)), lambda: (session.trace, _find(session))
    )[1]
    return found


def _find(session: Session) -> dict[int, Tensor]:
    trace = session.trace
    asked = {step.index for step in trace.steps if _is_by_row(step, session)}
    if not asked or not session.exact or lends(session.model) or any(step.trouble for step in trace.steps):
        return {}
    state = torch_random()
    try:
        with warnings.catch_warnings():  # seen when the model was traced
            warnings.simplefilter("ignore")
            dead = _without_gradient(session, asked)
            return dead if dead and _stays(session, dead) else {}
    except Exception:  # steps that autograd refuses, memory that is full: then all rows count
        return {}
    finally:
        set_torch_random(state)


def _is_by_row(step: Step, session: Session) -> bool:
    norm = of_step(step, session.native)
    x = step.inputs[0].tensor if step.inputs else None
    last = norm is not None and norm.kind in BY_ROW and norm.dims == (-1,)
    return last and x is not None and x.ndim > 2 and len(step.outputs) == 1


def _without_gradient(session: Session, asked: set[int]) -> dict[int, Tensor]:
    """Of each step, the rows to which nothing of a random combination of the outputs comes back."""
    trace, generator = session.trace, torch.Generator().manual_seed(0)
    x = trace.measured.detach().clone().requires_grad_(True)
    outs: dict[int, Tensor] = {}
    end: Tensor | None = None
    trace.rewind()
    with torch.enable_grad():
        for step, made in replayed_steps(trace, x):
            end = made[min(trace.end.position, len(made) - 1)]
            if step.index in asked and made[0].requires_grad:
                outs[step.index] = made[0]
        if end is None or not outs or end.is_complex():
            return {}
        weights = torch.randn(end.shape, generator=generator, dtype=torch.float64).to(end)
        back = torch.autograd.grad((end * weights).sum(), list(outs.values()), allow_unused=True)
    rows = {index: (g == 0).all(-1) for index, g in zip(outs, back, strict=True) if g is not None}
    return {index: dead for index, dead in rows.items() if bool(dead.any()) and not bool(dead.all())}


@torch.no_grad()
def _stays(session: Session, dead: Mapping[int, Tensor]) -> bool:
    """Whether the output is the same when all rows said not to reach it are far from what they were."""
    trace, generator = session.trace, torch.Generator().manual_seed(1)
    end = trace.end.tensor
    trace.rewind()
    for step, made in replayed_steps(trace, trace.measured.detach()):
        rows = dead.get(step.index)
        if rows is not None:
            size = made[0].square().mean().sqrt()
            noise = torch.randn(made[0].shape, generator=generator, dtype=torch.float64).to(made[0])
            made[0][rows] = (FAR * size * noise)[rows]
        end = made[min(trace.end.position, len(made) - 1)]
    return tensors_alike(end, trace.end.tensor)


def _asked_again(parts: Composition, step: Step, dead: Tensor) -> Transfer | None:
    """What the rule says of the step where each row that does not reach the output is one that does."""
    rule, before = parts.rules[step.index], step.inputs[0]
    if rule is None or dead.shape != before.tensor.shape[:-1]:
        return None
    rows = before.tensor.detach().clone()
    rows[dead] = _stand_ins(rows, dead)
    lived = replace(before, tensor=rows)

    def put(leaf: Any) -> Any:
        return lived if leaf is before else leaf

    args, kwargs = tree_map(put, (step.args, step.kwargs), is_leaf=lambda leaf: isinstance(leaf, Value))
    other = replace(step, args=args, kwargs=kwargs, inputs=tuple(map(put, step.inputs)))
    incoming = tuple(parts.flows[value.index] for value in step.inputs)
    try:
        return rule.function(other, incoming, parts.ctx)
    except (SamplesMixed, RuntimeError, ValueError, TypeError):
        return None


def _stand_ins(rows: Tensor, dead: Tensor) -> Tensor:
    """For each row that is left out the first of its sample that is not, or the first of all."""
    lives = ~dead.reshape(len(dead), -1)
    flat = rows.reshape(len(rows), -1, rows.shape[-1])
    first = lives.to(torch.uint8).argmax(1)
    own = flat[torch.arange(len(flat), device=flat.device), first]
    own[~lives.any(1)] = flat[lives][0]
    return own[:, None].expand_as(flat).reshape(rows.shape)[dead]


def _spread(session: Session, step: Step, lives: Tensor) -> dict[str, float]:
    """The range of √(variance + ε) over the rows that reach the output."""
    norm = of_step(step, session.native)
    if norm is None:
        return {}
    data = step.inputs[0].tensor.detach().double()[lives.to(step.inputs[0].tensor.device)]
    sigma = norm.below(norm.variance(data))
    return {"min": float(sigma.min()), "rms": float(sigma.square().mean().sqrt()), "max": float(sigma.max())}
