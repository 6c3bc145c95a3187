"""Gains of all steps under given channel weights, proved."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.rounding import STEPS, log_above
from normgauge.instrument.balance.steer import sided
from normgauge.instrument.balance.ties import ChannelWeights, Ties
from normgauge.instrument.compose import Composition
from normgauge.instrument.rules.flow import (
    CHANCE,
    Commute,
    Diagonal,
    Gain,
    Kernel,
    Matrix,
    Move,
    NormalizerMap,
    join_logs,
)
from normgauge.instrument.spectral.circulant import ROUGH
from normgauge.instrument.spectral.conv import conv_norm
from normgauge.instrument.spectral.dense import dense_norm
from normgauge.instrument.trace.step import Step, Value

Key = tuple[int, int]
MODEST = 100.0  # logs of weights below which one may multiply after the other


class Weighting:
    """The graph with its weights; ``theta`` holds one free log weight a class of tied channels.

    With ``rough``, the norms of convolutions are proved to a hundredth.
    """

    def __init__(self, parts: Composition, ties: Ties, rough: bool = False) -> None:
        self.parts, self.ties, self.rough = parts, ties, rough
        found = [ties.find(i) for i in range(len(ties.parent))]
        roots = sorted({root for root, _ in found if root})
        number = {root: k for k, root in enumerate(roots)} | {0: -1}
        self.slot = torch.tensor([number[root] for root, _ in found])
        self.shift = torch.tensor([delta for _, delta in found], dtype=torch.float64)
        self.free = len(roots)
        self.means_unread = means_unread(parts)

    def slots(self, channels: ChannelWeights) -> tuple[Tensor, Tensor]:
        """For each channel: which free weight (−1 for none), and what is added to it."""
        return self.slot[channels.index], self.shift[channels.index] + channels.offset

    def work(self) -> float:
        """Return roughly how many multiplications one sample's pass through the linear maps takes."""
        firsts = [self.parts.transfers[step.outputs[0].index] for step in self.parts.trace.steps]
        maps = [g.form for first in firsts for g in first.gains if isinstance(g.form, Matrix | Kernel)]
        places = [math.prod(m.spec.output_size(m.weight)) if isinstance(m, Kernel) else 1 for m in maps]
        return math.fsum(m.weight.numel() * count for m, count in zip(maps, places, strict=True))

    def log_weights(self, theta: Tensor) -> dict[int, Tensor]:
        """log weights by value index; values that share their channels share the tensor."""
        entries = torch.cat([theta, theta.new_zeros(1)])[self.slot] + self.shift
        made: dict[int, Tensor] = {}
        result = {}
        for index, channels in self.ties.values.items():
            if id(channels) not in made:
                made[id(channels)] = entries[channels.index] + channels.offset
            result[index] = made[id(channels)]
        return result

    def gains(self, theta: Tensor) -> dict[Key, Tensor]:
        """Weighted log gains by (value, input position), proved for these weights."""
        result: dict[Key, Tensor] = {}
        known = self.log_weights(theta)
        for step in self.parts.trace.steps:
            for out in step.outputs:
                for k, gain in enumerate(self.parts.transfers[out.index].gains):
                    key = (out.index, k)
                    before, after = known.get(step.inputs[k].index), known.get(out.index)
                    result[key] = self.weighted(key, step.inputs[k], out, gain, before, after)
        return result

    def weighted(
        self, key: Key, value: Value, out: Value, gain: Gain, before: Tensor | None, after: Tensor | None
    ) -> Tensor:
        """log ‖D_out J D_in⁻¹‖ for one input of one step."""
        form = gain.form
        if isinstance(form, Matrix | Kernel):
            if self.fits(form, value, out):
                return self._linear(key, form, before, after, gain.log)
        elif isinstance(form, NormalizerMap) and after is not None:
            size = 0.0 if form.gamma is None else form.gamma.log()
            return (after + size + form.log_inverse).amax(1) + _largest_inverse(before)
        elif isinstance(form, Diagonal) and form.scale is not None and form.scale.numel() > 1:
            a, b = self.ties.values.get(value.index), self.ties.values.get(out.index)
            if before is not None and after is not None and a is not None and b is not None and a.axis == b.axis:
                # where both sides rest on the same weights, these cancel: the scales were folded into the offsets
                gap = b.offset - a.offset if a.index is b.index else after - before
                return log_above((form.scale.log() + gap).max()) + torch.zeros_like(gain.log)
        elif before is after and isinstance(form, Diagonal):
            return gain.log
        elif isinstance(form, Diagonal | Commute) and before is not None and after is not None:
            if len(before) == len(after) and self.carries(value, out, form):
                return gain.log + (after - before).max()
        elif isinstance(form, Move) and before is not None and after is not None:
            return gain.log  # the output's weights were copied from the inputs' own (`ties._moved`)
        return gain.log + _largest(after) + _largest_inverse(before)

    def fits(self, form: Matrix | Kernel, value: Value, out: Value) -> bool:
        """Whether the weights on both sides lie on the axes the linear map acts on."""
        weighted = [side for side in (value, out) if side.index in self.ties.values]
        axes = [side.tensor.ndim - 1 if isinstance(form, Matrix) else form.axis for side in weighted]
        return axes == [self.ties.values[side.index].axis for side in weighted]

    def carries(self, value: Value, out: Value, form: Diagonal | Commute) -> bool:
        """Whether both weights lie on the axis the step carries over."""
        a, b = self.ties.values[value.index].axis, self.ties.values[out.index].axis
        if isinstance(form, Diagonal):
            return a == b and value.tensor.shape == out.tensor.shape
        axes = tuple(x % value.tensor.ndim for x in form.axes)
        expected = a if out.tensor.ndim == value.tensor.ndim else a - sum(x < a for x in axes)
        return a not in axes and b == expected

    def _linear(
        self, key: Key, form: Matrix | Kernel, before: Tensor | None, after: Tensor | None, log: Tensor
    ) -> Tensor:
        weight = self.centred(form, key)
        ins, outs = form.channels()
        log_in = torch.zeros(ins, dtype=torch.float64) if before is None else before
        log_out = torch.zeros(outs, dtype=torch.float64) if after is None else after
        enough = self.rough or not (isinstance(form, Kernel) and form.rough)
        if enough and weight is form.weight and _constant(log_out) and _constant(log_in):  # what the rule proved
            return log + (float(log_out[0] - log_in[0]) + STEPS)
        return torch.full_like(log, self._norm(scale_weight(weight, form, log_out, log_in), form))

    def centred(self, form: Matrix | Kernel, key: Key) -> Tensor:
        """W, or PW when nothing but centring normalizers reads the result."""
        parts = self.means_unread[key[0]]
        if not parts or not isinstance(form, Matrix):
            return form.weight
        self.ties.named.add("shifts under a centring normalizer")
        blocks = form.weight.unflatten(0, (parts, -1))
        return (blocks - blocks.mean(1, keepdim=True)).flatten(0, 1)

    def _norm(self, weight: Tensor, form: Matrix | Kernel) -> float:
        if isinstance(form, Matrix):
            return self.parts.ctx.accepted(dense_norm(weight, chance=CHANCE)).hi
        width = max(self.parts.ctx.width, ROUGH) if self.rough else self.parts.ctx.width
        return conv_norm(weight, form.spec, width, below=False).log.hi


def means_unread(parts: Composition) -> dict[int, int]:
    """In how many equal parts of each value's last axis nobody reads the mean; 0 where somebody may.

    Normalizers take it off. A sum passes it on: W may be replaced by PW in front of any number of sums, for
    P(h + Wx) = P(h + PWx).
    """
    found: dict[int, int] = {}

    def unread(value: Value, reader: Step) -> int:
        out, rule, form = reader.outputs[0], parts.rules[reader.index], parts.transfers[reader.outputs[0].index].gains
        if len(form) == 1 and isinstance(form[0].form, NormalizerMap):
            return form[0].form.centred
        sums = rule is not None and rule.id == "combine.add" and out.tensor.shape == value.tensor.shape
        return found[out.index] if sums else 0

    for step in reversed(parts.trace.steps):
        for out in step.outputs:
            ways = {unread(out, reader) for reader in parts.trace.consumers.get(out.index, ())}
            found[out.index] = ways.pop() if len(ways) == 1 and out is not parts.trace.end else 0
    return found


def _largest(logs: Tensor | None) -> Tensor | float:
    return 0.0 if logs is None else logs.max()


def _largest_inverse(logs: Tensor | None) -> Tensor | float:
    return 0.0 if logs is None else (-logs).max()


def _constant(logs: Tensor) -> bool:
    return bool((logs == logs[0]).all())


def scale_weight(weight: Tensor, form: Matrix | Kernel, log_out: Tensor, log_in: Tensor) -> Tensor:
    """Return D_out W D_in⁻¹."""
    first, second = (side.to(weight.device) for side in sided(form, log_out.detach(), log_in.detach()))
    made = weight.detach().to(torch.float64, copy=True)
    blocks = made.view(*first.shape, made.shape[1], -1)
    rows, columns = first[:, :, None, None], second[:, None, :, None]
    if all(not side.numel() or bool(side.abs().max() < MODEST) for side in (rows, columns)):
        blocks.mul_(rows.exp()).mul_(columns.exp())  # neither product can leave float64
    else:
        blocks.mul_((rows + columns).exp())
    return made


def weighted_slopes(parts: Composition, gains: dict[Key, Tensor]) -> Tensor:
    """Compose weighted gains from the sources to the output, and return the log bound of each sample."""
    logs = {source.index: parts.ctx.full(0.0) for source in parts.trace.sources}
    for step in parts.trace.steps:
        for out in step.outputs:
            transfer = parts.transfers[out.index]
            arms = [gains[(out.index, k)] + logs[v.index] for k, v in enumerate(step.inputs)]  # all finite or −inf here
            logs[out.index] = arms[0] if len(arms) == 1 else join_logs(arms, transfer.disjoint)
    return logs[parts.trace.end.index]
