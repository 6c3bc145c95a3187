"""The bound as a function of the channel weights, with its gradient: quick and unproved, for the descent to follow.

The graph is compiled once into arrays of numpy: on a thousand small steps autograd would spend all its time on itself.
A gain that no weight changes is a constant; any other says what it is for given weights, and hands back which weights
it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normgauge.core.rounding import TINY
from normgauge.instrument.balance.steer import SteeringPairs, sided
from normgauge.instrument.balance.weighted import Key, Weighting
from normgauge.instrument.rules.flow import Commute, Diagonal, Gain, Kernel, Matrix, Move, NormalizerMap
from normgauge.instrument.trace.lent import Lent
from normgauge.instrument.trace.step import Value

Array = NDArray[np.float64]
Pull = Callable[[Array], list[tuple[int, Array]]]
"""From the share of each sample in the objective to (value, what each of its log weights has in it)."""

Edge = Callable[[dict[int, Array], bool], tuple[Array, Pull]]
"""From the log weights, and whether Frobenius norms stand in for spectral ones, to a log gain a sample and its pull."""


class Objective:
    """The mean over the samples of the log bound, for one `Weighting`."""

    def __init__(self, weighting: Weighting) -> None:
        self.weighting, self.parts = weighting, weighting.parts
        self.slots: dict[int, tuple[NDArray[np.int64], Array]] = {}
        for index, channels in weighting.ties.values.items():
            slot, shift = weighting.slots(channels)
            self.slots[index] = slot.numpy(), shift.numpy()  # slot −1 is the entry that stays 0
        self.squares: dict[Key, Tensor] = {}
        self.steering: dict[Key, SteeringPairs] = {}
        self.joins = [
            (
                out.index,
                self.parts.transfers[out.index].disjoint,
                [v.index for v in step.inputs],
                self._edges(step, out),
            )
            for step in self.parts.trace.steps
            for out in step.outputs
        ]

    def __call__(self, theta: Tensor, *, frobenius: bool) -> tuple[float, Tensor]:
        """The value and its gradient in the free log weights."""
        weights = self.log_weights(theta)
        logs = {source.index: self.parts.ctx.full(0.0).numpy() for source in self.parts.trace.sources}
        made: dict[int, tuple[list[Array], list[Pull | None]]] = {}
        for out, disjoint, inputs, edges in self.joins:
            arms, pulls = [], []
            for source, edge in zip(inputs, edges, strict=True):
                gain, pull = edge(weights, frobenius) if callable(edge) else (edge, None)
                arms.append(gain + logs[source])
                pulls.append(pull)
            logs[out] = arms[0] if len(arms) == 1 else _joined(arms, disjoint)
            made[out] = arms, pulls
        end = logs[self.parts.trace.end.index]
        return float(end.mean()), torch.from_numpy(self._gradient(logs, made))

    def log_weights(self, theta: Tensor) -> dict[int, Array]:
        """The log weights of every value that has any."""
        entries = np.append(theta.numpy(), 0.0)
        return {index: entries[slot] + shift for index, (slot, shift) in self.slots.items()}

    def _gradient(self, logs: dict[int, Array], made: dict[int, tuple[list[Array], list[Pull | None]]]) -> Array:
        """Backwards through the graph: the share of every value in the output, and of every weight in its gains."""
        gradient = np.zeros(self.weighting.free + 1)
        end = self.parts.trace.end.index
        shares = {end: np.full_like(logs[end], 1 / len(logs[end]))}
        for out, disjoint, inputs, _ in reversed(self.joins):
            share = shares.pop(out, None)
            if share is None:
                continue
            arms, pulls = made[out]
            for source, arm, pull in zip(inputs, arms, pulls, strict=True):
                part = share
                if len(arms) > 1:
                    part = share * _share_of_arm(arm, logs[out], disjoint)
                if pull is not None:
                    for index, mass in pull(part):
                        np.add.at(gradient, self.slots[index][0], mass)
                shares[source] = shares[source] + part if source in shares else part
        return np.nan_to_num(gradient[:-1])

    def _edges(self, step: Any, out: Value) -> list[Edge | Array]:
        gains = self.parts.transfers[out.index].gains
        return [self._edge((out.index, k), step.inputs[k], out, gain) for k, gain in enumerate(gains)]

    def _edge(self, key: Key, value: Value, out: Value, gain: Gain) -> Edge | Array:
        """What `Weighting.weighted` proves for one input of one step, as a function of the weights."""
        form, weighting, log = gain.form, self.weighting, gain.log.numpy()
        values = weighting.ties.values
        a, b = values.get(value.index), values.get(out.index)
        before, after = (None if c is None else i for c, i in ((a, value.index), (b, out.index)))
        if isinstance(form, Matrix | Kernel):
            if weighting.fits(form, value, out):
                return partial(self._linear, key, form, before, after, np.zeros_like(log))
        elif isinstance(form, NormalizerMap) and after is not None:
            size = 0.0 if form.gamma is None else form.gamma.log().cpu().numpy()
            return partial(_normalizer, form.log_inverse.numpy() + size, before, after)
        elif isinstance(form, Diagonal) and form.scale is not None and form.scale.numel() > 1:
            if a is not None and b is not None and a.axis == b.axis:
                scale = form.scale.log().cpu().numpy()
                if a.index is b.index:
                    return np.zeros_like(log) + (scale + (b.offset - a.offset).numpy()).max()
                return partial(_ratio, np.zeros_like(log), scale, value.index, out.index)
        elif isinstance(form, Diagonal) and a is b:
            return log
        elif isinstance(form, Diagonal | Commute) and a is not None and b is not None:
            if a.index.numel() == b.index.numel() and weighting.carries(value, out, form):
                return partial(_ratio, log, 0.0, value.index, out.index)
        elif isinstance(form, Move) and before is not None and after is not None:
            return log
        return log if before is after is None else partial(_apart, log, before, after)

    def _linear(
        self, key: Key, form: Matrix | Kernel, before: int | None, after: int | None, still: Array,
        weights: dict[int, Array], frobenius: bool,
    ) -> tuple[Array, Pull]:  # fmt: skip
        ins, outs = form.channels()
        log_in = torch.from_numpy(np.zeros(ins) if before is None else weights[before])
        log_out = torch.from_numpy(np.zeros(outs) if after is None else weights[after])
        make = partial(self.weighting.centred, form, key)
        if frobenius:
            log, left, right = frobenius_pair(self._squares(key, make, form), form, log_out, log_in)
        else:
            log, left, right = self.steering.setdefault(key, SteeringPairs(form)).top(make, log_out, log_in)
        masses = [(after, left.numpy()), (before, -right.numpy())]

        def pull(share: Array) -> list[tuple[int, Array]]:
            return [(index, share.sum() * mass) for index, mass in masses if index is not None]

        return still + log, pull

    def _squares(self, key: Key, make: Callable[[], Tensor], form: Matrix | Kernel) -> Tensor:
        """The squared weights summed over kernel positions, (groups, rows, columns), kept between calls."""
        if key in self.squares:
            return self.squares[key]
        weight = make()
        groups = form.spec.groups if isinstance(form, Kernel) else 1
        squares = weight.detach().double().square().reshape(*weight.shape[:2], -1).sum(2)
        squares = squares.reshape(groups, -1, weight.shape[1])
        if not isinstance(form.weight, Lent):  # all of them together would be what lending saves
            self.squares[key] = squares
        return squares


def frobenius_pair(
    squares: Tensor, form: Matrix | Kernel, log_out: Tensor, log_in: Tensor
) -> tuple[float, Tensor, Tensor]:
    """log ‖D_out W D_in⁻¹‖_F from the squared entries of W, and its slopes in log D_out and −log D_in."""
    logs = [log.to(squares.device) for log in sided(form, log_out, log_in)]
    first, second = ((2 * (log - log.max())).exp() for log in logs)
    rows = torch.einsum("gij,gj->gi", squares, second) * first
    total = rows.sum().clamp_min(TINY)
    columns = torch.einsum("gij,gi->gj", squares, first) * second
    one, other = ((mass / total).flatten().cpu() for mass in (rows, columns))
    log = float(total.log()) / 2 + float(sum(side.max() for side in logs))
    flipped = isinstance(form, Kernel) and form.spec.transposed
    return (log, other, one) if flipped else (log, one, other)


def _joined(arms: Sequence[Array], disjoint: bool) -> Array:
    """log of Σ exp, or of √Σ exp² for disjoint parts."""
    power = 2.0 if disjoint else 1.0
    total = power * arms[0]
    for arm in arms[1:]:
        total = np.logaddexp(total, power * arm)
    return total / power


def _share_of_arm(arm: Array, joined: Array, disjoint: bool) -> Array:
    """What one arm has in the log of the joined ones, a sample each; nothing where no arm carries anything."""
    gap = np.subtract(arm, joined, out=np.full_like(joined, -np.inf), where=np.isfinite(joined))
    return np.exp(2 * gap if disjoint else gap)


def _leading(terms: Array) -> Array:
    """Along the last axis, equal shares for all the largest entries: folded weights leave many of them equal."""
    top = terms == terms.max(-1, keepdims=True)
    shares: Array = top / top.sum(-1, keepdims=True)
    return shares


def _normalizer(
    logs: Array, before: int | None, after: int, weights: dict[int, Array], frobenius: bool
) -> tuple[Array, Pull]:
    """log max_c d_out γ_c/σ_c, and the smallest weight before it."""
    terms = logs + weights[after]
    least = np.zeros(1) if before is None else -weights[before]

    def pull(share: Array) -> list[tuple[int, Array]]:
        found = [(after, share @ _leading(terms))]
        return found if before is None else [*found, (before, -share.sum() * _leading(least))]

    return terms.max(1) + least.max(), pull


def _ratio(
    log: Array, scale: Array | float, before: int, after: int, weights: dict[int, Array], frobenius: bool
) -> tuple[Array, Pull]:
    """log max_c scale_c d_out/d_in of a step that goes channel by channel."""
    terms = scale + weights[after] - weights[before]

    def pull(share: Array) -> list[tuple[int, Array]]:
        mass = share.sum() * _leading(terms)
        return [(after, mass), (before, -mass)]

    return log + terms.max(), pull


def _apart(
    log: Array, before: int | None, after: int | None, weights: dict[int, Array], frobenius: bool
) -> tuple[Array, Pull]:
    """log of the gain, the largest weight behind it and the smallest before it."""
    sides = [(index, sign) for index, sign in ((after, 1), (before, -1)) if index is not None]
    for index, sign in sides:
        log = log + (sign * weights[index]).max()

    def pull(share: Array) -> list[tuple[int, Array]]:
        return [(index, sign * share.sum() * _leading(sign * weights[index])) for index, sign in sides]

    return log, pull
