"""Fold the transfers of all steps over the traced graph: forward from the input, backward from the output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.core.interval import LogInterval
from normgauge.rules.flow import INF, Context, Flow, Gain, SamplesMixed, Transfer, anchored, chain, settle
from normgauge.rules.registry import Registry, Rule, printable
from normgauge.rules.shape import copy, copy_outputs
from normgauge.trace.step import Step, Trace
from normgauge.trace.tape import own_tensors


@dataclass(slots=True)
class Composition:
    """Everything known about every value of a trace in one scope.

    Attributes:
        trace: the graph.
        ctx: scope and samples.
        flows: by value index.
        transfers: by value index: what its step does to reach it.
        rules: by step index; None where there is no rule.
    """

    trace: Trace
    ctx: Context
    flows: dict[int, Flow] = field(default_factory=dict)
    transfers: dict[int, Transfer] = field(default_factory=dict)
    rules: dict[int, Rule | None] = field(default_factory=dict)

    @property
    def log_upper(self) -> Tensor:
        """log of the bound on the whole map, one entry a sample."""
        assert self.trace.output is not None
        return self.flows[self.trace.output.index].slope

    def to_output(self) -> dict[int, Tensor]:
        """log of a bound on value ↦ output, by value index (an upper bound: branches add)."""
        assert self.trace.output is not None
        logs = {self.trace.output.index: self.ctx.full(0.0)}
        for step in reversed(self.trace.steps):
            for out in step.outputs:
                if out.index not in logs:
                    continue
                for value, gain in zip(step.inputs, self.transfers[out.index].gains, strict=True):
                    reach = chain(gain.log, logs[out.index])
                    known = logs.get(value.index)
                    logs[value.index] = reach if known is None else torch.logaddexp(known, reach) + 1e-15
        return logs


def compose(
    trace: Trace, registry: Registry, ctx: Context, progress: Callable[[str, float], None] | None = None
) -> Composition:
    """Ask every step's rule and carry slopes, radii and ranges from the sources to the output.

    Raises:
        SamplesMixed: when samples interact and ``ctx`` measures them one by one.
    """
    result = Composition(trace, ctx)
    for source in trace.sources:
        radius = ctx.full(ctx.scope.radius)
        result.flows[source.index] = anchored(source.tensor, ctx.full(0.0), radius, radius, 0, ctx)
    for count, step in enumerate(trace.steps):
        if progress is not None:
            progress("rules", count / len(trace.steps))
        rule = registry.lookup(step.target)
        result.rules[step.index] = rule
        incoming = tuple(result.flows[v.index] for v in step.inputs)
        for out, transfer in zip(step.outputs, apply_rule(step, rule, incoming, ctx), strict=True):
            if diverged(out.tensor):
                transfer = nothing_known(step, ctx, "the network's values are not finite here: it has diverged")
            result.transfers[out.index] = transfer
            result.flows[out.index] = settle(out.tensor, transfer, incoming, ctx)
    return result


def apply_rule(step: Step, rule: Rule | None, incoming: tuple[Flow, ...], ctx: Context) -> list[Transfer]:
    """One transfer for each output; an infinite one that says why where no rule applies.

    Raises:
        SamplesMixed: when the rule finds that samples interact.
    """
    if not step.trouble and step.inputs and not any(value.tensor.numel() for value in step.inputs):
        return from_nothing(step, ctx)
    if step.trouble or rule is None or exchanged(step):
        why = step.trouble or f"no rule for {printable(step.target)}"
        if rule is not None and not step.trouble:
            why = "its weights were exchanged during the forward"
        return [nothing_known(step, ctx, why)] * len(step.outputs)
    try:
        if rule.function is copy and len(step.outputs) > 1:
            return copy_outputs(step, incoming, ctx)
        transfer = rule.function(step, incoming, ctx)
    except SamplesMixed:
        raise
    except (
        ArithmeticError,
        AttributeError,
        AssertionError,
        IndexError,
        KeyError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        transfer = nothing_known(
            step, ctx, f"the rule {rule.id} does not cover this use ({type(error).__name__}: {error})"
        )
    bad = any(bool(torch.isnan(g.log).any()) for g in transfer.gains) or len(transfer.gains) != len(incoming)
    if bad:
        transfer = nothing_known(step, ctx, f"the rule {rule.id} gave no number here (a diverged value?)")
    discrete = [not out.tensor.is_floating_point() for out in step.outputs]
    if any(discrete) and not all(discrete):
        jump = Transfer(tuple(Gain(ctx.full(INF)) for _ in incoming), unbounded="indices are discontinuous")
        return [jump if d else transfer for d in discrete]
    return [transfer] * len(step.outputs)


def from_nothing(step: Step, ctx: Context) -> list[Transfer]:
    """What reads only tensors without entries (an expert without tokens) is constant, whatever the operation.

    Raises:
        SamplesMixed: when something comes of it; nothing says where the samples lie in that.
    """
    if ctx.samples > 1 and any(out.tensor.numel() for out in step.outputs):
        raise SamplesMixed(f"{step.name} makes something of nothing")
    still = Transfer(tuple(Gain(ctx.full(-INF)) for _ in step.inputs), radius=ctx.full(0.0))
    return [still] * len(step.outputs)


def exchanged(step: Step) -> bool:
    """Whether a leaf module holds other parameters or buffers now than when it ran."""
    if step.module is None:
        return False
    now = own_tensors(step.module)
    if len(now) != len(step.state):
        return True
    return any(a is not b and not torch.equal(a, b) for a, b in zip(now, step.state, strict=True))


def diverged(tensor: Tensor) -> bool:
    """NaN or +∞ among the values; −∞ alone is a mask."""
    return tensor.is_floating_point() and tensor.numel() > 0 and not float(tensor.detach().amax()) < INF


def nothing_known(step: Step, ctx: Context, why: str) -> Transfer:
    """[0, ∞] for every input."""
    return Transfer(tuple(Gain(ctx.full(INF)) for _ in step.inputs), unknown=why)


def own_gain(transfer: Transfer) -> LogInterval:
    """The layer's own constant, largest over samples and inputs."""
    hi = max(float(g.log.max()) for g in transfer.gains)
    lo = min(max(g.lo for g in transfer.gains), hi) if len(transfer.gains) == 1 else -INF
    return LogInterval(lo, hi)
