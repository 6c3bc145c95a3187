"""Which samples stand on a kink that they leave as soon as they move: autograd picks one side there, and may be wrong.

A step f with values z in and δ the way they go when the input moves a little along a random direction v: where f has a
derivative the second difference f(z + δ) + f(z − δ) − 2 f(z) falls by four when δ is halved, on a kink by two, at a
jump not at all. So nothing need be known of f: moduli, maxima, max pooling, orders, lengths at 0 and rules of the
user's are all seen. Entries that are tied and stay so, such as those of a window of zeros behind a ReLU, have equal
tangents and make no kink: δ is the same for them.

Holds:  for kinks whose slopes jump by a millionth or more of what is typical in the layer, at almost every v.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.core.bound import Scope
from normgauge.core.rounding import TINY
from normgauge.instrument.compose import Composition
from normgauge.instrument.local.curves import curve_of
from normgauge.instrument.local.pieces import NotCarried
from normgauge.instrument.session import Session
from normgauge.instrument.trace.again import replayed_steps, run_step
from normgauge.instrument.trace.precision import imitate_precision
from normgauge.instrument.trace.step import Step, Value

INF = math.inf
COUNTED = 0.5  # of the units that a ball opens, those that a random direction at its centre tells
NEAR_KINK = 1e-10  # of the largest entry: nearer to a known kink, rounding may decide the side
WAY = 1e-9  # of a sample's root mean square: how far it moves
HALVED = 3.0  # second differences of δ over those of δ/2: below 2 on a kink, 4 elsewhere
DIGITS = 16 * torch.finfo(torch.float64).eps  # of the largest entry: what is rounding in a second difference
SMOOTH = (
    *("affine.", "conv.", "projection.", "shape.", "softmax.", "attention.", "norm_batch.", "stochastic.", "fourier."),
    *("norm_layer.", "recognise.", "combine.add", "combine.multiply", "combine.divide", "combine.reduce_linear"),
    *("embedding.", "pooling.avg", "pooling.fold", "pooling.interpolate", "activation.exp"),
)
"""Beginnings of the names of rules for steps without kinks; normalizers are, for ε > 0 and but for `normalize`."""


def on_kink(parts: Composition) -> Tensor:
    """For each sample whether it stands on a kink of some step, up to rounding."""
    found = torch.zeros(parts.ctx.samples, dtype=torch.bool)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the model has to say was heard when it was traced
        for step, moved in moved_inputs(parts):
            found |= _bent(parts, step, moved)
    return found


def may_have_kinks(step: Step, rule: str) -> bool:
    """Whether a step's rule leaves a kink possible."""
    return rule == "norm_layer.normalize" or not rule.startswith(SMOOTH)


def moved_inputs(parts: Composition) -> Iterator[tuple[Step, dict[int, Tensor]]]:
    """Each step that may have kinks, with the ways its inputs go when every sample moves a little."""
    trace, names = parts.trace, {i: "user." if rule is None else rule.id for i, rule in parts.rules.items()}
    x = trace.measured.detach()
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    moved = x + _sample_sizes(parts, x) * WAY * noise.to(x)
    values = {source.index: part for source, part in zip(trace.sources, trace.parted(moved), strict=True)}
    wanted = {v.index for s in trace.steps if may_have_kinks(s, names[s.index]) for v in s.inputs}
    for step, outs in replayed_steps(trace, moved):
        if may_have_kinks(step, names[step.index]):
            yield step, {v.index: _way(v, values[v.index]) for v in step.inputs if v.index in values}
        values.update({o.index: t for o, t in zip(step.outputs, outs, strict=True) if o.index in wanted})


def opening_radii(session: Session, units: int) -> list[float]:
    """For each sample a radius at which about so many units may be open; infinite where there are no more than that.

    A unit opens at about |z|/‖∇z‖, and of a random direction v, n numbers of size 1, ∂z·v tells ‖∇z‖ well enough to
    count units by. Where `COUNTED` of them lie so near, all are open: slopes grow in a ball.
    """
    parts = session.once("samples", lambda: session.composed(Scope.parse("point")))
    with torch.no_grad():
        near = [_opening(parts, step, moved) for step, moved in moved_inputs(parts)]
    rows = torch.cat([part for part in near if part is not None], 1) if any(p is not None for p in near) else None
    if rows is None or rows.shape[1] <= units:
        return [INF] * parts.ctx.samples
    return [float(row) for row in rows.kthvalue(max(1, int(COUNTED * units)), 1).values]


def _opening(parts: Composition, step: Step, ways: dict[int, Tensor]) -> Tensor | None:
    """(samples, entries): how far the sample is from where each entry of a step with kinks reaches one."""
    kinks = _known_kinks(parts, step)
    if not kinks:
        return None
    value = step.inputs[0]
    axis = parts.flows[value.index].axis
    data, moved = (parts.ctx.rows(t, axis).flatten(1).cpu() for t in (value.tensor.detach(), ways[value.index]))
    away = torch.stack([(data - kink).abs() for kink in kinks]).amin(0)
    sizes = _sample_sizes(parts, parts.trace.measured.detach()).reshape(-1)
    sizes = sizes[:: len(sizes) // parts.ctx.samples].cpu()
    return away / moved.abs().clamp_min(TINY) * (WAY * sizes[:, None])


def _sample_sizes(parts: Composition, x: Tensor) -> Tensor:
    """Root mean square of each sample's entries, 1 where they vanish, shaped to multiply the input."""
    sizes = parts.ctx.rows(x, 0).flatten(1).square().mean(1).sqrt()
    sizes = torch.where(sizes > 0, sizes, 1.0).to(x)
    if len(sizes) == 1:
        return sizes.reshape([1] * x.ndim)
    return sizes.repeat_interleave(x.shape[0] // len(sizes)).reshape(-1, *[1] * (x.ndim - 1))


def _way(value: Value, moved: Tensor) -> Tensor:
    still = value.tensor.detach()
    return moved - still if still.is_floating_point() else torch.zeros_like(still)


def _bent(parts: Composition, step: Step, ways: dict[int, Tensor]) -> Tensor:
    """For each sample whether one of a step's entries lies on a kink."""
    bent = _near_known(parts, step, ways)
    largest = sum((_largest(parts, v, v.tensor) for v in step.inputs), torch.zeros(1, dtype=torch.float64))
    here = [_run(parts, step, ways, part) for part in (0.0, 1.0, -1.0, 0.5, -0.5)]
    for place, out in enumerate(step.outputs):
        middle, *sides = (run[place].detach() for run in here)
        axis = parts.flows[out.index].axis
        if not middle.is_floating_point():
            changed = torch.stack([side != middle for side in sides]).any(0)
            bent |= parts.ctx.rows(changed, axis).flatten(1).any(1).cpu()
            continue
        whole, half = ((a + b - 2 * middle).abs() for a, b in (sides[:2], sides[2:]))
        whole, half = (parts.ctx.rows(t, axis).flatten(1).cpu() for t in (whole, half))
        lost = DIGITS * (largest + _largest(parts, out, middle))[:, None]
        bent |= ((half > lost) & (whole < HALVED * half)).any(1)
    return bent


def _largest(parts: Composition, value: Value, tensor: Tensor) -> Tensor:
    """The largest entry of each sample."""
    rows = parts.ctx.rows(tensor, parts.flows[value.index].axis).flatten(1).abs().cpu()
    return rows.amax(1) if rows.numel() else rows.new_zeros(len(rows))


def _run(parts: Composition, step: Step, ways: dict[int, Tensor], part: float) -> list[Tensor]:
    def given(value: Value) -> Tensor:
        way = ways.get(value.index)
        return value.tensor if way is None or not part else value.tensor + part * way.to(value.tensor.dtype)

    with imitate_precision(parts.trace.native):
        return run_step(step, given)


def _near_known(parts: Composition, step: Step, ways: dict[int, Tensor]) -> Tensor:
    """For each sample whether an entry that moves lies so near a known kink that rounding may decide the side."""
    found, kinks = torch.zeros(parts.ctx.samples, dtype=torch.bool), _known_kinks(parts, step)
    if not kinks:
        return found
    value = step.inputs[0]
    axis = parts.flows[value.index].axis
    data, moved = (parts.ctx.rows(t, axis).flatten(1).cpu() for t in (value.tensor.detach(), ways[value.index]))
    if data.numel():
        near = NEAR_KINK * data.abs().amax(1, keepdim=True)
        for kink in kinks:
            found |= (((data - kink).abs() <= near) & (moved != 0)).any(1)
    return found


def _known_kinks(parts: Composition, step: Step) -> tuple[float, ...]:
    """Where a step of one value has its kinks, as far as the tables know."""
    rule = parts.rules[step.index]
    if rule is None or not rule.id.startswith("activation.") or len(step.inputs) != 1:
        return ()
    try:
        return curve_of(step, rule.id).kinks
    except NotCarried:
        return ()
