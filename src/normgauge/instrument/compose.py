"""Fold the transfers of all steps over the traced graph: forward from the input, backward from the output."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from traceback import walk_tb
from typing import Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from normgauge.core.errors import NotCovered, RuleError
from normgauge.core.interval import LogInterval
from normgauge.core.rounding import TINY, log_joined
from normgauge.instrument.rules.flow import (
    INF,
    Context,
    Flow,
    Gain,
    SamplesMixed,
    Transfer,
    anchored_flow,
    chain_gains,
    settle_flow,
)
from normgauge.instrument.rules.registry import Registry, Rule, printable
from normgauge.instrument.rules.shape import copy, copy_outputs
from normgauge.instrument.trace.held import own_tensors
from normgauge.instrument.trace.place import is_out_of_memory
from normgauge.instrument.trace.step import Step, Trace, Value, tensors_in

STILL = 1e-12  # of a value's size: what a sample may change while only others move, in float64
STILL_LOW = 1e-5  # in any other precision

SLIPS = (AttributeError, NameError, TypeError)  # what a typo raises
REFUSALS = (ArithmeticError, AssertionError, LookupError, MemoryError, RuntimeError, ValueError, *SLIPS)


@dataclass(slots=True)
class Composition:
    """Everything known about every value of a trace in one scope.

    Attributes:
        trace: the graph.
        ctx: scope and samples.
        flows: by value index.
        transfers: by value index: what its step does to reach it.
        rules: by step index; None where there is no rule.
        radius_weights: free log weights that radii in a ball were measured with; None where none were chosen.
    """

    trace: Trace
    ctx: Context
    flows: dict[int, Flow] = field(default_factory=dict)
    transfers: dict[int, Transfer] = field(default_factory=dict)
    rules: dict[int, Rule | None] = field(default_factory=dict)
    radius_weights: Tensor | None = None

    @property
    def log_upper(self) -> Tensor:
        """log of the bound on the whole map, one entry a sample."""
        return self.flows[self.trace.end.index].slope

    def to_output(self) -> dict[int, Tensor]:
        """log of a bound on value ↦ output, by value index (an upper bound: branches add)."""
        logs = {self.trace.end.index: self.ctx.full(0.0)}
        for step in reversed(self.trace.steps):
            for out in step.outputs:
                if out.index not in logs:
                    continue
                for value, gain in zip(step.inputs, self.transfers[out.index].gains, strict=True):
                    reach = chain_gains(gain.log, logs[out.index])
                    known = logs.get(value.index)
                    logs[value.index] = reach if known is None else log_joined(torch.logaddexp(known, reach), 1)
        return logs


class Narrowing(Protocol):
    """What else is known of how far values move: rules see it, and are followed step by step."""

    def seen(self, step: Step, incoming: tuple[Flow, ...]) -> tuple[Flow, ...]:
        """What a step's rule may believe of its inputs."""

    def follow(self, step: Step, out: Value, transfer: Transfer) -> None:
        """Learn what the step does on its way to ``out``."""


def compose(
    trace: Trace,
    registry: Registry,
    ctx: Context,
    progress: Callable[[str, float], None] | None = None,
    narrowing: Narrowing | None = None,
) -> Composition:
    """Ask every step's rule and carry slopes, radii and ranges from the sources to the output.

    Raises:
        SamplesMixed: when samples interact and ``ctx`` measures them one by one.
    """
    result = Composition(trace, ctx)
    for source in trace.sources:
        radius = ctx.full(ctx.scope.radius)
        flow = anchored_flow(source.tensor, ctx.full(0.0), radius, radius, 0, ctx)
        result.flows[source.index] = replace(flow, covers=ctx.scope.kind == "global")
    for count, step in enumerate(trace.steps):
        if progress is not None:
            progress("rules", count / len(trace.steps))
        rule = registry.lookup(step.target)
        result.rules[step.index] = rule
        incoming = tuple(result.flows[v.index] for v in step.inputs)
        seen = incoming if narrowing is None else narrowing.seen(step, incoming)
        for out, transfer in zip(step.outputs, apply_rule(step, rule, seen, ctx), strict=True):
            if has_diverged(out.tensor):
                transfer = ctx.unknown(step.inputs, "the network's values are not finite here: it has diverged")
            result.transfers[out.index] = transfer
            result.flows[out.index] = settle_flow(out.tensor, transfer, incoming, ctx)
            if narrowing is not None:
                narrowing.follow(step, out, transfer)
    return result


def samples_of(trace: Trace) -> int:
    """How many samples the measured tensor holds along its first axis; a single vector is one."""
    source = trace.measured
    return source.shape[0] if source.ndim > 1 else 1


def mixing_step(parts: Composition, again: Iterable[tuple[Step, list[Tensor]]], moved: Tensor) -> Step | None:
    """The first step whose other samples changed when only those in ``moved`` did; None when samples stand alone.

    Whatever the rules say of the samples' axis, this asks the recorded steps themselves.

    Args:
        parts: a composition that measures samples one by one.
        again: the steps with their outputs in a second run.
        moved: for each sample, whether it was changed in that run.
    """
    for step, outs in again:
        for out, new in zip(step.outputs, outs, strict=True):
            axis = parts.flows[out.index].axis
            if out.tensor.shape != new.shape:
                return step
            still = ~moved.to(new.device)
            before, after = (parts.ctx.rows(t, axis)[still] for t in (out.tensor, new))
            if torch.equal(before, after) and not out.tensor.is_complex():
                continue
            loose = STILL if out.tensor.dtype in (torch.float64, torch.complex128) else STILL_LOW
            sizes = before[before.isfinite()].abs()
            limit = loose * max(TINY, float(sizes.max()) if sizes.numel() else 0.0)
            same = (before == after) | (before.isnan() & after.isnan())
            if out.tensor.is_complex():  # rows are moduli, and a change of phase is one too
                same = torch.zeros_like(same)
                gap = parts.ctx.rows(new - out.tensor, axis)[still]
            else:
                gap = (after - before).abs()
            if not bool((same | (gap <= limit)).all()):
                return step
    return None


def apply_rule(step: Step, rule: Rule | None, incoming: tuple[Flow, ...], ctx: Context) -> list[Transfer]:
    """Return one transfer for each output; where no rule applies, an infinite one that says why.

    Raises:
        SamplesMixed: when the rule finds that samples interact.
        RuleError: when a rule of the user's has a mistake in it.
    """
    if not step.trouble and step.inputs and not any(value.tensor.numel() for value in step.inputs):
        return from_nothing(step, ctx)
    if step.trouble or rule is None:
        why = step.trouble or f"no rule for {printable(step.target)}"
        return [ctx.unknown(step.inputs, why)] * len(step.outputs)
    if not rule.complex and has_complex(step):
        why = f"the rule {rule.id} does not cover complex numbers"
        return [ctx.unknown(step.inputs, why)] * len(step.outputs)
    try:
        if rule.function is copy and len(step.outputs) > 1:
            return copy_outputs(step, incoming, ctx)
        transfer = rule.function(step, incoming, ctx)
    except SamplesMixed:
        raise
    except NotCovered as refusal:
        transfer = ctx.unknown(step.inputs, f"the rule {rule.id} does not cover this use ({refusal})")
    except REFUSALS as error:
        if mistaken(rule, error):
            raise RuleError(
                f"the rule {rule.id} at {step.name} ({step.kind}) raised {type(error).__name__}: {error}. "
                "Mend the rule, or let it raise NotCovered for uses it does not cover"
            ) from error
        why = f"the rule {rule.id} does not cover this use ({type(error).__name__}: {error})"
        if is_out_of_memory(error):
            why = f"the rule {rule.id} needs more memory here than is free"
        transfer = ctx.unknown(step.inputs, why)
    if is_user_rule(rule):
        check_shape(rule, step, transfer)
    bad = any(bool(torch.isnan(g.log).any()) for g in transfer.gains) or len(transfer.gains) != len(incoming)
    if bad:
        transfer = ctx.unknown(step.inputs, f"the rule {rule.id} gave no number here (a diverged value?)")
    discrete = [not out.tensor.is_floating_point() and not out.tensor.is_complex() for out in step.outputs]
    if any(discrete) and not all(discrete):
        jump = Transfer(tuple(Gain(ctx.full(INF)) for _ in incoming), no_bound="indices are discontinuous")
        return [jump if d else transfer for d in discrete]
    return [transfer] * len(step.outputs)


def from_nothing(step: Step, ctx: Context) -> list[Transfer]:
    """Return gains of zero for a step that reads only empty tensors (an expert without tokens): it is constant.

    Raises:
        SamplesMixed: when its output is not empty, since nothing says where the samples lie in it.
    """
    if ctx.samples > 1 and any(out.tensor.numel() for out in step.outputs):
        raise SamplesMixed(f"{step.name} makes something of nothing")
    still = Transfer(tuple(Gain(ctx.full(-INF)) for _ in step.inputs), radius=ctx.full(0.0))
    return [still] * len(step.outputs)


def is_user_rule(rule: Rule) -> bool:
    """Whether the user gave the rule."""
    return rule.id.startswith("user.")


def mistaken(rule: Rule, error: BaseException) -> bool:
    """Whether a user's rule failed by its own mistake, and not inside a rule of the library that it called."""
    if not is_user_rule(rule) or not isinstance(error, SLIPS):
        return False
    homes = {frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)}
    families = {name for name in homes if name.startswith("normgauge.instrument.rules.")}
    return families <= {Context.__module__}


def check_shape(rule: Rule, step: Step, transfer: Transfer) -> None:
    """Check that a user's rule returned a transfer with one gain for each input.

    Raises:
        RuleError: saying what it returned instead.
    """
    if not isinstance(transfer, Transfer):
        got = f"{type(transfer).__name__}"
    elif len(transfer.gains) != len(step.inputs):
        got = f"{len(transfer.gains)} gains for {len(step.inputs)} inputs"
    else:
        return
    raise RuleError(
        f"the rule {rule.id} at {step.name} ({step.kind}): expected a Transfer with one gain for each input, got {got}"
    )


def has_complex(step: Step) -> bool:
    """Whether any number of a step, its weights and constants included, is complex."""
    own = own_tensors(step.module) if step.module is not None else []
    values = [v.tensor for v in (*step.inputs, *step.outputs)]
    given = tree_leaves((step.args, step.kwargs))
    return any(t.is_complex() for t in (*own, *values, *tensors_in(given))) or any(
        isinstance(g, complex) for g in given
    )


def has_diverged(tensor: Tensor) -> bool:
    """Whether a tensor holds NaN or +∞; −∞ alone is a mask."""
    data = tensor.detach().abs() if tensor.is_complex() else tensor.detach()
    data = data.float() if data.dtype.itemsize == 1 and data.is_floating_point() else data  # eight bits add up nowhere
    if not data.is_floating_point() or not data.numel() or math.isfinite(float(data.sum())):  # a sum is soon made
        return False
    return not float(data.double().amax()) < INF


def own_gain(transfer: Transfer) -> LogInterval:
    """Return the interval of a layer's own constant, largest over samples and inputs."""
    hi = max(float(g.log.max()) for g in transfer.gains)
    lo = min(max(g.lo for g in transfer.gains), hi) if len(transfer.gains) == 1 else -INF
    return LogInterval(lo, hi)


def own_gains(parts: Composition) -> dict[int, float]:
    """Return the log of each step's own gain, by the index of its output."""
    return {index: own_gain(transfer).hi for index, transfer in parts.transfers.items()}


def layer_names(parts: Composition) -> dict[int, str]:
    """Return the name of every step that is shown, by step index; a module that runs again gets a number."""
    seen: dict[str, int] = {}
    names = {}
    for step in parts.trace.steps:
        transfer = parts.transfers[step.outputs[0].index]
        if step.module is None and transfer.neutral and not transfer.unknown:
            continue
        seen[step.name] = seen.get(step.name, 0) + 1
        names[step.index] = step.name if seen[step.name] == 1 else f"{step.name}#{seen[step.name]}"
    return names
