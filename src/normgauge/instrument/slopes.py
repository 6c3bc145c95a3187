"""The lower end: the largest slope found in a scope, and which slopes rounding alone can explain."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from normgauge.core.bound import Scope
from normgauge.core.errors import InputError
from normgauge.core.refute import ROUNDING
from normgauge.instrument.collapse import collapsed_inputs
from normgauge.instrument.compose import STILL, Composition
from normgauge.instrument.probe.screen import focused_search
from normgauge.instrument.probe.search import Found, search
from normgauge.instrument.rules.flow import INF
from normgauge.instrument.session import Session
from normgauge.instrument.trace.again import tensors_alike
from normgauge.instrument.trace.inputs import named_tensors

LOST_DIGITS = 1e7  # what a step that cancels may make of the last digit; more is a slope
LONG_BUDGET = 20.0  # seconds of counted work for a search with effort=long
FEW = 12  # samples that are asked whether they stand apart
LARGEST = 700.0  # log of what a float may hold


def largest_slope(
    session: Session, parts: Composition, steepest: Tensor | None = None, floor: Tensor | None = None
) -> Found:
    """Return the largest slope found in the scope; without a search, from the Jacobians at the samples.

    ``steepest`` are directions to begin with, where they are known, and ``floor`` slopes that are.
    """
    radius = parts.ctx.scope.radius if session.options.search else 0.0
    known = "found", radius, floor is not None
    return session.once(known, lambda: search_around(session, radius, parts, steepest, floor))


def search_around(
    session: Session,
    radius: float,
    parts: Composition,
    steepest: Tensor | None = None,
    floor: Tensor | None = None,
) -> Found:
    """Run `search`, knowing which samples interact and where they lie in the output."""
    trace, options = session.trace, session.options
    source, function = trace.measured, session.function()
    apart = stand_apart(session)
    if parts.ctx.samples < session.samples and not session.together and not apart:
        parts = session.composed(Scope.parse("point"))  # a global bound does not notice samples that interact
    together = session.together or options.mode == "train"
    if source.dtype != torch.float64:
        inner, dtype = function, source.dtype
        source, function = source.double(), lambda x: inner(x.to(dtype))
    only = len(list(named_tensors((session.call.args, session.call.kwargs)))) == 1 and not trace.embeddings
    look: Callable[..., Found] = search
    if only and not together and session.samples > 1 and sample_alone(session):
        look = partial(focused_search, output=trace.end.tensor)
    samples, alone = 1 if together else session.samples, only and not together
    drawn = trace.draws or any(step.random is not None for step in trace.steps)  # other numbers in other precisions
    quick = session.single_function if session.exact and session.native == torch.float32 and not drawn else None
    axis = 0 if apart else parts.flows[trace.end.index].axis
    try:
        with warnings.catch_warnings():  # the model's own warnings were seen when it was traced
            warnings.simplefilter("ignore")
            brief = options.effort == "quick"
            given: dict[str, Any] = {"progress": options.progress, "quick": quick, "alone": alone, "brief": brief}
            if options.effort == "long":
                given["budget"] = LONG_BUDGET
            given["floor"] = floor if floor is not None and len(floor) == samples else None
            if look is search:
                given["first"] = steepest
            if radius > 0:
                given["marks"] = session.once("collapsed inputs", lambda: collapsed_inputs(parts))
            return look(function, source, samples, radius, output_axis=axis, **given)
    except (RuntimeError, TypeError, ValueError, AttributeError, InputError) as error:
        # autograd refuses networks that overwrite what it needs or leave torch
        nothing = torch.full((samples,), -INF, dtype=torch.float64)
        return Found(nothing, -INF, f"none: {str(error).partition(chr(10))[0]}", 0, 0)


def stand_apart(session: Session) -> bool:
    """Whether the model gives a few samples of many what it gives them in the batch, whatever stands beside them.

    It asks of the model, at the cost of few samples, what `Session.check_apart` asks of every step for all of them:
    rows of the first axis that stay the same while every second sample moves far away. False says nothing: the model
    may need the whole batch, or keep its samples elsewhere.
    """

    def asked() -> bool:
        source, output = session.trace.measured, session.trace.end.tensor
        if session.together or session.samples <= FEW or not session.exact or not output.ndim:
            return False
        x, generator = source[:FEW], torch.Generator().manual_seed(0)
        far = x + torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x) * x.square().mean().sqrt()
        function, half = session.function(), (torch.arange(FEW, device=x.device) % 2).bool()
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                here = function(x.clone())
                rows = output.narrow(0, 0, FEW * (output.shape[0] // session.samples))
                if output.shape[0] % session.samples or not tensors_alike(here, rows):
                    return False
                for moved in (half, ~half):
                    there = function(torch.where(moved.reshape(-1, *[1] * (x.ndim - 1)), far, x))
                    gap = (there - here).abs().unflatten(0, (FEW, -1))[~moved]
                    if not bool((gap <= STILL * here.abs().amax()).all()):
                        return False
        except Exception:  # a model that needs the whole batch
            return False
        return True

    return session.once("apart alone", asked)


def sample_alone(session: Session) -> bool:
    """Whether the model gives one sample the same output alone as in its batch."""

    def asked() -> bool:
        source, output = session.trace.measured, session.trace.end
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                first = session.function()(source[:1].clone())
            apart = stand_apart(session)
            axis = 0 if apart else session.composed(Scope.parse("point")).flows[output.index].axis
            share = output.tensor.shape[axis] // session.samples
            return tensors_alike(first, output.tensor.narrow(axis, 0, share))
        except Exception:  # a model that needs the whole batch
            return False

    return session.once("alone", asked)


def excused_slopes(session: Session, found: Found, parts: Composition, bounds: Tensor) -> Found:
    """Cut slopes above their bound down to it where rounding alone can explain the excess.

    The output may be off by η = Σ ε‖h‖·(bound from h to the output), or by what moves of a few ε show where a step
    loses its digits inside; two outputs, a way ``run`` apart, by 2η.
    """
    upper = bounds if len(bounds) == len(found.log_lower) else bounds.max().reshape(1)
    above = found.log_lower > upper + ROUNDING
    if found.lengths is None or not bool(above.any()):
        return found
    run = found.lengths[0]
    error = max(rounding_of_values(parts), noise_of_output(session))
    rise = run * found.log_lower.clamp_max(LARGEST).exp() - 2 * error
    if bool((above & (rise > run * (upper + ROUNDING).clamp_max(LARGEST).exp())).any()):
        return found
    lower = torch.where(above, upper, found.log_lower)
    least = float(lower.max())
    return dataclasses.replace(found, log_lower=lower, log_best=least, lengths=(run, run * math.exp(least)))


def rounding_of_values(parts: Composition) -> float:
    """Bound on what the rounding of every value does to the output, to first order."""
    onward = parts.to_output()
    values = [out for step in parts.trace.steps for out in step.outputs if out.tensor.is_floating_point()]
    return math.fsum(
        torch.finfo(out.tensor.dtype).eps
        * float(torch.linalg.vector_norm(out.tensor.detach().double()))
        * math.exp(min(float(onward[out.index].max()), LARGEST))
        for out in values
        if out.index in onward
    )


def noise_of_output(session: Session) -> float:
    """Return four times the change of the output under moves of a few ε; 0 where that is too large for lost digits."""
    source = session.trace.measured.detach()
    if not source.is_floating_point():
        return 0.0
    function, eps = session.function(), torch.finfo(source.dtype).eps
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = function(source.clone())
        shakes = [
            torch.randn(source.shape, generator=generator, dtype=torch.float32).to(source) * (8 * eps) for _ in range(4)
        ]
        moved = max(float(torch.linalg.vector_norm(function(source * (1 + shake)) - here)) for shake in shakes)
    values = [source, *(out.tensor.detach() for step in session.trace.steps for out in step.outputs)]
    widest = max(float(torch.linalg.vector_norm(v.double())) for v in values if v.is_floating_point())
    return 4 * moved if moved <= LOST_DIGITS * eps * widest else 0.0
