"""A network with its activations replaced by their middle slopes, entered and read at every activation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import LARGEST_LOG
from normgauge.instrument.compose import Composition
from normgauge.instrument.loop.linear_step import LinearStep, linear_step
from normgauge.instrument.loop.uncertain import UncertainStep, from_rows, sample_rows, uncertain_step
from normgauge.instrument.trace.again import run_step
from normgauge.instrument.trace.step import Step

Node = LinearStep | UncertainStep
FAITHFUL = 1e-8
"""What a linear part may differ from the step it was taken from, as a part of the largest entry."""


@dataclass(frozen=True, slots=True)
class MidNetwork:
    """The linear map (e, w) ↦ (v, out) of several samples side by side.

    Attributes:
        nodes: in order of execution.
        gains: for each node, by (output, input), a bound on the norm of that part.
        source: index of the measured value.
        end: index of the output.
        shapes: of source and output.
        sides: axes along which samples lie in source and output.
        samples: how many pass at once.
        dtype: the precision of the products.
    """

    nodes: tuple[Node, ...]
    gains: tuple[dict[tuple[int, int], float], ...]
    source: int
    end: int
    shapes: tuple[torch.Size, torch.Size]
    sides: tuple[int, int]
    samples: int
    dtype: torch.dtype

    @property
    def uncertain(self) -> list[UncertainStep]:
        """The steps that are not linear, in order."""
        return [node for node in self.nodes if isinstance(node, UncertainStep)]

    @property
    def entered(self) -> list[int]:
        """How many entries of one sample go in: those of the input, then those behind each uncertain step."""
        return [self.shapes[0].numel() // self.samples, *(len(node.made) for node in self.uncertain)]

    @property
    def read(self) -> list[int]:
        """How many entries come out: those before each uncertain step, then those of the output."""
        return [*(len(node.seen) for node in self.uncertain), self.shapes[1].numel() // self.samples]

    @property
    def work(self) -> float:
        """Multiplications that one sample takes in matrices and convolutions."""
        return math.fsum(node.work for node in self.nodes if isinstance(node, LinearStep)) / self.samples

    @torch.no_grad()
    def push(self, rows: Tensor) -> Tensor:
        """(v, out) for (samples, entries that go in)."""
        parts = rows.split(self.entered, 1)
        values = {self.source: from_rows(parts[0], self.shapes[0], self.sides[0])}
        extra, seen = iter(parts[1:]), []
        last = self.last_readers()
        for place, node in enumerate(self.nodes):
            inputs = [values[value.index] for value in node.step.inputs]
            if isinstance(node, LinearStep):
                outs = node.push(inputs)
            else:
                seen.append(sample_rows(inputs[0], node.sides[0], self.samples))
                left = from_rows(next(extra), node.step.outputs[0].tensor.shape, node.sides[1])
                outs = [left if node.mid == 0.0 else torch.add(left, inputs[0], alpha=node.mid)]
            values.update((out.index, made) for out, made in zip(node.step.outputs, outs, strict=True))
            for index in last[place]:
                del values[index]
        return torch.cat([*seen, sample_rows(values[self.end], self.sides[1], self.samples)], 1)

    @torch.no_grad()
    def pull(self, rows: Tensor) -> Tensor:
        """The adjoint of `push`."""
        *read, out = rows.split(self.read, 1)
        duals = {self.end: from_rows(out, self.shapes[1], self.sides[1])}
        left = []
        for node in reversed(self.nodes):
            outs = [
                duals.pop(out.index) if out.index in duals else torch.zeros_like(out.tensor, dtype=self.dtype)
                for out in node.step.outputs
            ]
            if isinstance(node, LinearStep):
                pulled = node.pull(outs)
            else:
                left.append(sample_rows(outs[0], node.sides[1], self.samples))
                dual = from_rows(read.pop(), node.step.inputs[0].tensor.shape, node.sides[0])
                pulled = [dual if node.mid == 0.0 else torch.add(dual, outs[0], alpha=node.mid)]
            for value, dual in zip(node.step.inputs, pulled, strict=True):
                duals[value.index] = duals[value.index] + dual if value.index in duals else dual
        entry = duals.get(self.source)
        first = rows.new_zeros(self.samples, self.entered[0]) if entry is None else entry
        return torch.cat([sample_rows(first, self.sides[0], self.samples), *reversed(left)], 1)

    def last_readers(self) -> list[list[int]]:
        """For each node, which values nothing reads after it."""
        last: dict[int, int] = {}
        for place, node in enumerate(self.nodes):
            last.update((value.index, place) for value in node.step.inputs)
        last.pop(self.end, None)
        return [[index for index, at in last.items() if at == place] for place in range(len(self.nodes))]

    def levels(self) -> list[int]:
        """The most uncertain steps on a way from the input to each uncertain step, itself included, then the output."""
        depth = {self.source: 0}
        levels = []
        for node in self.nodes:
            reached = max(depth[value.index] for value in node.step.inputs)
            if isinstance(node, UncertainStep):
                reached += 1
                levels.append(reached)
            depth.update((out.index, reached) for out in node.step.outputs)
        return [*levels, depth[self.end] + 1]


def mid_network(parts: Composition, known: Composition, dtype: torch.dtype) -> MidNetwork | None:
    """The mid network of a trace; None where it has a step that is neither affine nor uncertain.

    Args:
        parts: composition of the trace whose samples pass side by side.
        known: composition of the measured trace, step for step the same: its constants are the ones proved.
        dtype: the precision of the products.
    """
    nodes: list[Node] = []
    gains = []
    for step, origin in zip(parts.trace.steps, known.trace.steps, strict=True):
        rule = known.rules[origin.index]
        node = None if rule is None else _node(parts, known, step, origin, rule.id, dtype)
        if node is None:
            return None
        nodes.append(node)
        gains.append(_gains(known, step, origin))
    source, end = parts.trace.sources[0], parts.trace.end
    shapes, sides = (
        (source.tensor.shape, end.tensor.shape),
        (parts.flows[source.index].axis, parts.flows[end.index].axis),
    )
    return MidNetwork(tuple(nodes), tuple(gains), source.index, end.index, shapes, sides, parts.ctx.samples, dtype)


def _node(
    parts: Composition, known: Composition, step: Step, origin: Step, rule: str, dtype: torch.dtype
) -> Node | None:
    transfer = known.transfers[origin.outputs[0].index]
    logs = [float(g.log.max()) for out in origin.outputs for g in known.transfers[out.index].gains]
    if not max(logs, default=math.inf) < LARGEST_LOG or any(t.is_complex() for t in _tensors(step)):
        return None
    linear = linear_step(step, parts.transfers[step.outputs[0].index], rule, dtype)
    if linear is not None:
        return linear if _is_faithful(linear, dtype) else None
    sides = (parts.flows[step.inputs[0].index].axis, parts.flows[step.outputs[0].index].axis)
    return uncertain_step(step, transfer, rule, logs[0], sides, parts.ctx.samples)


def _tensors(step: Step) -> list[Tensor]:
    return [value.tensor for value in (*step.inputs, *step.outputs)]


def _gains(known: Composition, step: Step, origin: Step) -> dict[tuple[int, int], float]:
    """Norms by (output, input) of the step; two uses of one value add."""
    found: dict[tuple[int, int], float] = {}
    for out, there in zip(step.outputs, origin.outputs, strict=True):
        for value, gain in zip(step.inputs, known.transfers[there.index].gains, strict=True):
            key = (out.index, value.index)
            found[key] = found.get(key, 0.0) + math.exp(float(gain.log.max()))
    return found


@torch.no_grad()
def _is_faithful(linear: LinearStep, dtype: torch.dtype) -> bool:
    """Whether the linear part gives what the step gave, less what it gives for zeros."""
    if dtype != torch.float64:
        return True
    step = linear.step
    offset = run_step(step, lambda value: torch.zeros_like(value.tensor))
    made = linear.push([value.tensor for value in step.inputs])
    for out, zero, got in zip(step.outputs, offset, made, strict=True):
        want = out.tensor - zero
        size = float(out.tensor.abs().max()) + float(zero.abs().max())
        if want.shape != got.shape or not bool(((want - got).abs() <= FAITHFUL * size).all()):
            return False
    return True
