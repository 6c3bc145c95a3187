"""Problems that show in the values: units that are always 0, numbers that overflow, parts without a bound."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from normgauge.advice.remark import Remark, Severity
from normgauge.advice.thresholds import DEAD_UNITS
from normgauge.advice.view import TraceView
from normgauge.core.reading import Finding
from normgauge.instrument.records import findings

SILENT = {"ReLU", "relu", "relu_", "ReLU6", "relu6"}  # exactly 0, with slope 0, for a whole half line


def dead_units(view: TraceView) -> Iterator[Remark]:
    """A ReLU that is 0 for every sample on nearly all units passes neither signal nor gradient."""
    for step in view.session.trace.steps:
        if step.kind not in SILENT:
            continue
        value = step.outputs[0]
        axis = view.sample_axis(value)
        awake = (value.tensor > 0).any(axis) if axis is not None else value.tensor > 0
        share = 1 - float(awake.double().mean())
        if share < DEAD_UNITS:
            continue
        yield view.remark(
            step,
            "dead activations",
            f"is 0 for every sample on {share:.0%} of its units, so that no signal and no gradient passes. "
            "Lower the learning rate, reset the biases of the layer before it, or put a normalizer in front.",
            {"share": share},
        )


def diverged_values(view: TraceView) -> Iterator[Remark]:
    """A remark on the first value that is not finite, or that overflows in the network's own precision."""
    limit = torch.finfo(view.session.native).max
    for step in view.session.trace.steps:
        for value in step.outputs:
            data = value.tensor
            if not torch.is_floating_point(data) or not data.numel():
                continue
            finite = bool(torch.isfinite(data).all())
            peak = float(data.abs().max()) if finite else math.inf
            masked = not finite and not bool(torch.isnan(data).any() | torch.isposinf(data).any())
            if masked or (finite and peak <= limit):  # −∞ is how attention masks
                continue
            dtype = str(view.session.native).removeprefix("torch.")
            what = f"values up to 10^{math.log10(peak):.0f}" if finite else "values that are no numbers"
            yield view.remark(
                step,
                "diverged",
                f"returns {what}; {dtype} ends at 10^{math.log10(limit):.0f}. Whatever comes behind it means "
                "nothing: go back to a checkpoint before, lower the learning rate, add a normalizer in front.",
                {"log10_peak": math.log10(peak) if finite else math.inf},
            )
            return


def unbounded_parts(view: TraceView) -> Iterator[Remark]:
    """Remarks on parts without a rule, parts that provably have no bound, and parts for which none was found."""
    unknown, unbounded, no_bound = findings(view.parts)
    unbounded += [
        Finding(step.name, f"{step.kind} jumps between the samples and is flat at them, so that no gradient passes")
        for step in view.session.trace.steps
        if (rule := view.parts.rules[step.index]) is not None
        and rule.id == "activation.jump"
        and bool((view.parts.transfers[step.outputs[0].index].gains[0].log == -math.inf).all())
    ]
    depth = {step.name: step.index for step in reversed(view.session.trace.steps)}
    for kind, found, act in (
        ("unknown part", unknown, "Give it a rule with rules=REGISTRY.extended({...}) to have it measured."),
        ("unbounded part", unbounded, "No bound can be proved through it; bound its inputs, or exchange it."),
        (
            "part without a bound",
            no_bound,
            "None was found, though there may be one; bound its inputs, or give a rule.",
        ),
    ):
        for part in found:
            sentence = f"{part.name}: {part.why.rstrip('.')}. {act}"
            yield Remark(kind, part.name, sentence, {}, Severity.LOOK, depth=depth.get(part.name, 0))
