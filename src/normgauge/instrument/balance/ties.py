"""Which channel weights are free, and which must move together for a step to cost nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from normgauge.instrument.compose import Composition
from normgauge.instrument.rules.flow import Commute, Diagonal, Gain, Kernel, Matrix, Move, NormalizerMap, Transfer
from normgauge.instrument.rules.shape import rerun_step
from normgauge.instrument.trace.step import Step, Value

FLOOR = -70.0  # log weight of a channel that a zero gain switches off: e^-70 of the others
PINNED = 1e-12  # log weight that rounding may leave


@dataclass(frozen=True, slots=True)
class ChannelWeights:
    """Weights of one value: along ``axis``, channel c has log weight θ[index[c]] + offset[c]."""

    axis: int
    index: Tensor
    offset: Tensor


@dataclass(slots=True)
class Ties:
    """A weighted union-find over single weights: θ_i = θ_parent(i) + delta_i; entry 0 is fixed at 0.

    Attributes:
        parent: of each entry; a root is its own.
        delta: what is added to the parent's weight.
        values: the weights of each value, by its index.
        named: the gauges used, in words.
    """

    parent: list[int] = field(default_factory=lambda: [0])
    delta: list[float] = field(default_factory=lambda: [0.0])
    values: dict[int, ChannelWeights] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)

    def fresh(self, count: int) -> Tensor:
        """Add ``count`` new free weights and return their entries."""
        first = len(self.parent)
        self.parent.extend(range(first, first + count))
        self.delta.extend([0.0] * count)
        return torch.arange(first, first + count)

    def find(self, i: int) -> tuple[int, float]:
        """Return the root of entry i, and θ_i − θ_root."""
        path = []
        while self.parent[i] != i:
            path.append(i)
            i = self.parent[i]
        total = 0.0
        for j in reversed(path):
            total += self.delta[j]
            self.parent[j], self.delta[j] = i, total
        return i, (self.delta[path[0]] if path else 0.0)

    def unite(self, i: int, j: int, gap: float) -> None:
        """Make θ_i − θ_j = gap, unless both are tied otherwise already."""
        (root_i, d_i), (root_j, d_j) = self.find(i), self.find(j)
        if root_i == root_j:
            return
        if root_i == 0:
            root_i, root_j, d_i, d_j, gap = root_j, root_i, d_j, d_i, -gap
        self.parent[root_i], self.delta[root_i] = root_j, gap + d_j - d_i

    def same(self, a: ChannelWeights, b: ChannelWeights) -> None:
        """Give two values equal weights."""
        gaps = (b.offset - a.offset).tolist()
        for i, j, gap in zip(a.index.tolist(), b.index.tolist(), gaps, strict=True):
            self.unite(i, j, gap)

    def pin(self, channels: ChannelWeights | None) -> None:
        """Fix a value's weights at 1."""
        if channels is not None:
            for i, offset in zip(channels.index.tolist(), channels.offset.tolist(), strict=True):
                self.unite(i, 0, -offset)


def tie_weights(parts: Composition) -> Ties:
    """Walk the graph once: linear maps and normalizers start new weights, everything that commutes passes them on."""
    ties = Ties()
    for step in parts.trace.steps:
        for out in step.outputs:
            if feeds_normalizers(parts, step, out):
                continue
            channels = outgoing(ties, step, out, parts.transfers[out.index])
            if channels is not None:
                ties.values[out.index] = channels
    _settle(ties, parts.trace.end, parts.transfers.get(parts.trace.end.index))
    return ties


def feeds_normalizers(parts: Composition, step: Step, out: Value) -> bool:
    """Whether normalizers alone read a linear map's output: weights there gain nothing, for ‖W‖ ≤ max 1/D · ‖DW‖."""
    maps = all(isinstance(g.form, Matrix | Kernel) for g in parts.transfers[out.index].gains)
    readers = parts.trace.consumers.get(out.index, ())
    forms = [g.form for reader in readers for g in parts.transfers[reader.outputs[0].index].gains]
    return maps and out is not parts.trace.end and all(isinstance(form, NormalizerMap) for form in forms)


def _settle(ties: Ties, output: Value, transfer: Transfer | None) -> None:
    """Fix the output's weights at 1; where its ties forbid that (one channel used twice), drop or replace them."""
    channels = ties.values.get(output.index)
    if channels is None or transfer is None:
        return
    ties.pin(channels)
    left = [
        (root, gap + offset)
        for (root, gap), offset in zip(map(ties.find, channels.index.tolist()), channels.offset.tolist(), strict=True)
    ]
    if any(root or abs(gap) > PINNED for root, gap in left):
        if any(isinstance(g.form, Move) for g in transfer.gains):
            del ties.values[output.index]  # copies carry the weights of what they copy, or none
        else:
            ones = torch.zeros_like(channels.index), torch.zeros_like(channels.offset)
            ties.values[output.index] = ChannelWeights(channels.axis, *ones)


def outgoing(ties: Ties, step: Step, out: Value, transfer: Transfer) -> ChannelWeights | None:
    """Return the weights of one output; None for weights fixed at 1."""
    shape = out.tensor.shape
    forms = [g.form for g in transfer.gains]
    if len(forms) == 1 and isinstance(forms[0], Matrix | Kernel | NormalizerMap):
        return _start(ties, forms[0], shape)
    if all(isinstance(f, Move) for f in forms):
        return _moved(ties, step, out)
    passed = [_passed(ties, v, g, shape) for v, g in zip(step.inputs, transfer.gains, strict=True)]
    known = [c for c in passed if c is not None]
    if not known:
        return None
    if any(isinstance(f, Diagonal | Commute) and c is None for f, c in zip(forms, passed, strict=True)):
        for channels in known:  # a branch with fixed weights joins: the sum has fixed weights too
            ties.pin(channels)
        return None
    first, *others = known
    for other in others:
        if other.axis != first.axis:
            ties.pin(other)
            continue
        ties.same(other, first)
        ties.named.add("residual and parallel branches")
    return first


def _start(ties: Ties, form: Matrix | Kernel | NormalizerMap, shape: torch.Size) -> ChannelWeights | None:
    axis = len(shape) - 1 if isinstance(form, Matrix) else form.axis
    if (
        axis < 0
        or axis >= len(shape)
        or (isinstance(form, NormalizerMap) and form.gamma is not None and form.gamma.numel() != shape[axis])
    ):
        return None
    count = shape[axis]
    return ChannelWeights(axis, ties.fresh(count), torch.zeros(count, dtype=torch.float64))


def _passed(ties: Ties, value: Value, gain: Gain, shape: torch.Size) -> ChannelWeights | None:
    """Return the weights that a diagonal or commuting step hands on."""
    channels, form = ties.values.get(value.index), gain.form
    if channels is None or not isinstance(form, Diagonal | Commute):
        return None
    before = value.tensor.ndim
    if isinstance(form, Commute):
        axes = tuple(a % before for a in form.axes)
        if channels.axis in axes:
            return None
        axis = channels.axis if len(shape) == before else channels.axis - sum(a < channels.axis for a in axes)
        return ChannelWeights(axis, channels.index, channels.offset)
    if value.tensor.shape != shape:
        return None
    if form.scale is None or form.scale.numel() == 1:
        ties.named.add("per-channel weights across activations")
        return channels
    if form.axis % before != channels.axis or form.scale.numel() != channels.index.numel():
        return None
    ties.named.add("normalizer scales folded into the linear map before them")
    return ChannelWeights(channels.axis, channels.index, channels.offset - log_scale(form.scale))


def log_scale(scale: Tensor) -> Tensor:
    """log of positive scales, zeros replaced by a floor far below the largest."""
    logs = scale.abs().log()
    top = float(logs.max())
    return logs.clamp_min(top + FLOOR) if top > -torch.inf else torch.zeros_like(logs)


def _moved(ties: Ties, step: Step, out: Value) -> ChannelWeights | None:
    """Weights carried along by a copy: positions are labelled and the step is run on the labels."""
    shape = out.tensor.shape
    sources = [ties.values.get(v.index) for v in step.inputs]
    if not out.tensor.numel() or not shape or all(s is None for s in sources) or "old" in step.kwargs:
        return None
    combined = torch.zeros(shape, dtype=torch.float64, device=out.tensor.device)
    table: list[tuple[int, float]] = [(-1, 0.0)]
    for k, (value, channels) in enumerate(zip(step.inputs, sources, strict=True)):
        if channels is None:
            return None
        given = [torch.zeros(v.tensor.shape, dtype=torch.float64, device=v.tensor.device) for v in step.inputs]
        count = channels.index.numel()
        view = [count if a == channels.axis else 1 for a in range(value.tensor.ndim)]
        given[k] = (
            (torch.arange(count, dtype=torch.float64, device=value.tensor.device) + len(table))
            .reshape(view)
            .expand(value.tensor.shape)
            .contiguous()
        )
        table.extend(zip(channels.index.tolist(), channels.offset.tolist(), strict=True))
        results = rerun_step(step, given)
        combined = combined + results[out.position if len(results) > 1 else 0].to(combined.device)
    for axis in range(len(shape)):
        label = combined.movedim(axis, 0).reshape(shape[axis], -1)
        top = label.amax(1, keepdim=True)
        if bool(((label == top) | (label == 0)).all()):
            return _from_labels(ties, axis, top[:, 0].long().tolist(), table)
    return None


def _from_labels(ties: Ties, axis: int, labels: list[int], table: list[tuple[int, float]]) -> ChannelWeights:
    index = [int(ties.fresh(1)) if label == 0 else table[label][0] for label in labels]
    offset = [table[label][1] for label in labels]
    return ChannelWeights(axis, torch.tensor(index), torch.tensor(offset, dtype=torch.float64))
