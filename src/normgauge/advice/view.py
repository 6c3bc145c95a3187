"""A traced network as the checks see it: how far its values spread over the samples, its trunk, its normalizers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.advice.norms import MeasuredNorm, norm_of
from normgauge.advice.remark import Remark, Severity
from normgauge.advice.thresholds import NOTHING
from normgauge.core.bound import Scope
from normgauge.instrument.compose import Composition, layer_names
from normgauge.instrument.rules.normalizer import reading_steps
from normgauge.instrument.session import Session
from normgauge.instrument.trace.step import Step, Value


@dataclass(slots=True)
class TraceView:
    """Everything a check may look at. Spreads and sizes are decimal logarithms by value index.

    Attributes:
        session: the traced model; its modules hold float64 copies while it is open.
        parts: gains and findings at the samples.
        names: of the steps, by step index, as in a reading.
        spread: how far a value moves from sample to sample (root mean square over its entries).
        size: root mean square of its entries.
        trunk: values every path from input to output passes, in order of execution.
        norms: the normalizers, by step index.
    """

    session: Session
    parts: Composition
    names: dict[int, str]
    spread: dict[int, float] = field(default_factory=dict)
    size: dict[int, float] = field(default_factory=dict)
    trunk: list[Value] = field(default_factory=list)
    norms: dict[int, MeasuredNorm] = field(default_factory=dict)

    @classmethod
    def of(cls, session: Session) -> TraceView:
        """Compute everything the checks look at, from a traced model."""
        parts = session.composed(Scope.parse("point"))
        names = {step.index: step.name for step in session.trace.steps} | layer_names(parts)
        view = cls(session, parts, names)
        for value in (*session.trace.sources, *(out for step in session.trace.steps for out in step.outputs)):
            view.spread[value.index], view.size[value.index] = spread_and_size(value.tensor, view.sample_axis(value))
        view.trunk = trunk(session)
        found = {step.index: norm_of(step, session.native) for step in session.trace.steps}
        view.norms = {index: norm for index, norm in found.items() if norm is not None}
        return view

    @property
    def samples(self) -> int:
        """How many samples the batch has."""
        return int(self.session.trace.sources[0].tensor.shape[0])

    def sample_axis(self, value: Value) -> int | None:
        """The axis along which samples lie; None where no axis has one entry a sample."""
        tensor = value.tensor
        axis = self.parts.flows[value.index].axis if self.parts.ctx.samples > 1 else 0
        if tensor.ndim and self.samples > 1 and tensor.shape[axis % tensor.ndim] == self.samples:
            return axis % tensor.ndim
        return None

    def consumers(self, value: Value) -> list[Step]:
        """The steps that use a value."""
        return reading_steps(self.session.trace, value)

    def remark(
        self, step: Step, kind: str, said: str, numbers: Mapping[str, float], severity: Severity = Severity.ACT
    ) -> Remark:
        """A remark about a step; its sentence begins with the step's name."""
        name = self.names[step.index]
        return Remark(kind, name, f"{name} {said}", numbers, severity, depth=step.index)

    def weight(self, step: Step) -> Tensor | None:
        """The trainable matrix or kernel of a step."""
        return self.parts.transfers[step.outputs[0].index].weight

    def log10_spectral(self, step: Step) -> float:
        """Decades of the operator norm of a step's weights."""
        norm = self.parts.transfers[step.outputs[0].index].spectral
        return NOTHING if norm is None or math.isinf(norm.hi) else float(norm.hi) / math.log(10)


def spread_and_size(tensor: Tensor, axis: int | None) -> tuple[float, float]:
    """Decades of a tensor's spread over the samples (over all entries where there are none) and of its size."""
    data = tensor.detach()
    if data.is_complex():
        data = data.abs()
    data = data.double()
    if not data.numel():
        return NOTHING, NOTHING
    peak = float(data.abs().max())
    if peak == 0 or not math.isfinite(peak):
        return (NOTHING, NOTHING) if peak == 0 else (-NOTHING, -NOTHING)
    data = data / peak  # squares of large values overflow
    variance = data.var(axis, correction=0).mean() if axis is not None else data.var(correction=0)
    level = math.log10(peak)
    return level + _half_log10(float(variance)), level + _half_log10(float(data.square().mean()))


def _half_log10(square: float) -> float:
    return max(0.5 * math.log10(square), NOTHING) if square > 0 else NOTHING


def trunk(session: Session) -> list[Value]:
    """The values behind which nothing earlier is used again: every path passes through them."""
    last_use: dict[int, int] = {}
    for step in session.trace.steps:
        for value in step.inputs:
            last_use[value.index] = step.index
    found: list[Value] = list(session.trace.sources) if len(session.trace.sources) == 1 else []
    open_until = max((last_use.get(s.index, -1) for s in session.trace.sources), default=-1)
    for step in session.trace.steps:
        if open_until <= step.index and len(step.outputs) == 1:
            found.append(step.outputs[0])
        open_until = max([open_until, *(last_use.get(out.index, -1) for out in step.outputs)])
    return [value for value in found if torch.is_floating_point(value.tensor)]
