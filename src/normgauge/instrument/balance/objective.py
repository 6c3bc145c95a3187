"""The bound as a function of the channel weights, with its gradient: quick and unproved, for the descent to follow.

The graph is compiled once into arrays of numpy: on a thousand small steps autograd would spend all its time on itself.
A gain that no weight changes is a constant; any other says what it is for given weights, and hands back which weights
it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normgauge.core.rounding import TINY
from normgauge.instrument.balance.edges import Array, Edge, Pull, apart_edge, normalizer_edge, ratio_edge
from normgauge.instrument.balance.stacked import SteeringStack
from normgauge.instrument.balance.steer import SteeringPairs, sided
from normgauge.instrument.balance.weighted import Key, Weighting
from normgauge.instrument.rules.flow import Commute, Diagonal, Gain, Kernel, Matrix, Move, NormalizerMap
from normgauge.instrument.trace.lent import Lent
from normgauge.instrument.trace.step import Value

MapPair = tuple[float, Array, Array]
"""log of the norm of a weighted map, and the mass on each channel of its output and of its input."""

STACKED = 1 << 14  # entries of the largest matrix that is followed together with others of its shape


class Join(NamedTuple):
    """A value and its arms: from which value, the constant gain on the way, and the gain into it."""

    out: int
    disjoint: bool
    arms: list[tuple[int, Array | float, Edge | Array]]


class LinearMap(NamedTuple):
    """A linear map and the values whose weights lie before and behind it, None where there are none."""

    form: Matrix | Kernel
    before: int | None
    after: int | None

    def sides(self, weights: dict[int, Array]) -> tuple[Array, Array]:
        """The log weights behind it and before it."""
        ins, outs = self.form.channels()
        return (
            np.zeros(outs) if self.after is None else weights[self.after],
            np.zeros(ins) if self.before is None else weights[self.before],
        )


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
        self.maps: dict[Key, LinearMap] = {}
        self.joins: list[Join] = []
        self.same: dict[int, tuple[int, Array | float]] = {}
        for step in self.parts.trace.steps:
            for out in step.outputs:
                self._add(step, out)
        self.stacks = self._stacks()

    def _add(self, step: Any, out: Value) -> None:
        """Add a step; behind one whose only gain is constant, its output is its input but for that gain."""
        edges = self._edges(step, out)
        sources = [self.same.get(v.index, (v.index, 0.0)) for v in step.inputs]
        if len(edges) == 1 and not callable(edges[0]):
            self.same[out.index] = sources[0][0], sources[0][1] + edges[0]
        else:
            arms = [(source, gain, edge) for (source, gain), edge in zip(sources, edges, strict=True)]
            self.joins.append(Join(out.index, self.parts.transfers[out.index].disjoint, arms))

    def __call__(self, theta: Tensor, *, frobenius: bool) -> tuple[float, Tensor]:
        """The value and its gradient in the free log weights."""
        weights = self.log_weights(theta)
        pairs = self.stacked_pairs(weights, frobenius)
        logs = {source.index: self.parts.ctx.full(0.0).numpy() for source in self.parts.trace.sources}
        made: dict[int, tuple[list[Array], list[Pull | None]]] = {}
        for out, disjoint, sources in self.joins:
            arms, pulls = [], []
            for source, gain, edge in sources:
                more, pull = edge(weights, frobenius, pairs) if callable(edge) else (edge, None)
                arms.append(gain + more + logs[source])
                pulls.append(pull)
            logs[out] = arms[0] if len(arms) == 1 else _joined(arms, disjoint)
            made[out] = arms, pulls
        root, gain = self.same.get(self.parts.trace.end.index, (self.parts.trace.end.index, 0.0))
        return float((logs[root] + gain).mean()), torch.from_numpy(self._gradient(root, logs, made))

    def log_weights(self, theta: Tensor) -> dict[int, Array]:
        """The log weights of every value that has any."""
        entries = np.append(theta.numpy(), 0.0)
        return {index: entries[slot] + shift for index, (slot, shift) in self.slots.items()}

    def _gradient(
        self, end: int, logs: dict[int, Array], made: dict[int, tuple[list[Array], list[Pull | None]]]
    ) -> Array:
        """Backwards through the graph: the share of every value in the output, and of every weight in its gains."""
        slots, masses = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
        shares = {end: np.full_like(logs[end], 1 / len(logs[end]))}
        for out, disjoint, sources in reversed(self.joins):
            share = shares.pop(out, None)
            if share is None:
                continue
            arms, pulls = made[out]
            for (source, _, _), arm, pull in zip(sources, arms, pulls, strict=True):
                part = share
                if len(arms) > 1:
                    part = share * _share_of_arm(arm, logs[out], disjoint)
                for index, mass in () if pull is None else pull(part):
                    slots.append(self.slots[index][0])
                    masses.append(mass)
                shares[source] = shares[source] + part if source in shares else part
        # slot −1, the entry that stays 0, comes first
        found = np.bincount(np.concatenate(slots) + 1, np.concatenate(masses), self.weighting.free + 1)
        return np.nan_to_num(found[1:])

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
                self.maps[key] = LinearMap(form, before, after)
                return partial(self._linear, key, np.zeros_like(log))
        elif isinstance(form, NormalizerMap) and after is not None:
            size = 0.0 if form.gamma is None else form.gamma.log().cpu().numpy()
            return partial(normalizer_edge, form.log_inverse.numpy() + size, before, after)
        elif isinstance(form, Diagonal) and form.scale is not None and form.scale.numel() > 1:
            if a is not None and b is not None and a.axis == b.axis:
                scale = form.scale.log().cpu().numpy()
                if a.index is b.index:
                    return np.zeros_like(log) + (scale + (b.offset - a.offset).numpy()).max()
                return partial(ratio_edge, np.zeros_like(log), scale, value.index, out.index)
        elif isinstance(form, Diagonal) and a is b:
            return log
        elif isinstance(form, Diagonal | Commute) and a is not None and b is not None:
            if a.index.numel() == b.index.numel() and weighting.carries(value, out, form):
                return partial(ratio_edge, log, 0.0, value.index, out.index)
        elif isinstance(form, Move) and before is not None and after is not None:
            return log
        return log if before is after is None else partial(apart_edge, log, before, after)

    def _linear(
        self, key: Key, still: Array, weights: dict[int, Array], frobenius: bool, pairs: dict[Key, MapPair]
    ) -> tuple[Array, Pull]:
        log, left, right = pairs[key] if key in pairs else self._alone(key, weights, frobenius)
        masses = [(self.maps[key].after, left), (self.maps[key].before, -right)]

        def pull(share: Array) -> list[tuple[int, Array]]:
            return [(index, share.sum() * mass) for index, mass in masses if index is not None]

        return still + log, pull

    def _alone(self, key: Key, weights: dict[int, Array], frobenius: bool) -> MapPair:
        """The norm of one weighted map and the masses on its channels."""
        form = self.maps[key].form
        log_out, log_in = map(torch.from_numpy, self.maps[key].sides(weights))
        make = partial(self.weighting.centred, form, key)
        if frobenius:
            log, left, right = frobenius_pair(self._squares(key, make, form), form, log_out, log_in)
        else:
            log, left, right = self.steering.setdefault(key, SteeringPairs(form)).top(make, log_out, log_in)
        return log, left.numpy(), right.numpy()

    def _stacks(self) -> list[tuple[list[Key], SteeringStack]]:
        """Small matrices of one shape, which are followed together."""
        alike: dict[tuple[int, ...], list[Key]] = {}
        for key, (form, _, _) in self.maps.items():
            weight = form.weight
            if isinstance(form, Matrix) and weight.numel() <= STACKED and weight.device.type == "cpu":
                alike.setdefault(tuple(weight.shape), []).append(key)
        return [
            (keys, SteeringStack(torch.stack([self.weighting.centred(self.maps[k].form, k).double() for k in keys])))
            for keys in alike.values()
            if len(keys) > 1
        ]

    def stacked_pairs(self, weights: dict[int, Array], frobenius: bool) -> dict[Key, MapPair]:
        """The norms and masses of the maps that are followed together."""
        pairs: dict[Key, MapPair] = {}
        for keys, stack in self.stacks:
            sides = zip(*(self.maps[key].sides(weights) for key in keys), strict=True)
            outs, ins = (torch.from_numpy(np.stack(side)) for side in sides)
            found = stack.frobenius(outs, ins) if frobenius else stack.top(outs, ins)
            logs, left, right = (part.numpy() for part in found)
            pairs |= {key: (float(logs[i]), left[i], right[i]) for i, key in enumerate(keys)}
        return pairs

    def _squares(self, key: Key, make: Callable[[], Tensor], form: Matrix | Kernel) -> Tensor:
        """The squared weights summed over kernel positions, (groups, rows, columns), kept between calls.

        Rows or columns on the side of which there are no weights are one.
        """
        if key in self.squares:
            return self.squares[key]
        weight = make()
        groups = form.spec.groups if isinstance(form, Kernel) else 1
        squares = weight.detach().double().square()
        squares = squares if squares.ndim == 2 else squares.flatten(2).sum(2)
        squares = squares.reshape(groups, -1, weight.shape[1])
        flipped = isinstance(form, Kernel) and form.spec.transposed
        for axis, side in ((2, self.maps[key].before), (1, self.maps[key].after)):
            if side is None:  # no weights there: only the sum over them counts
                squares = squares.sum(3 - axis if flipped else axis, keepdim=True)
        if not isinstance(form.weight, Lent):  # all of them together would be what lending saves
            self.squares[key] = squares
        return squares


def frobenius_pair(
    squares: Tensor, form: Matrix | Kernel, log_out: Tensor, log_in: Tensor
) -> tuple[float, Tensor, Tensor]:
    """log ‖D_out W D_in⁻¹‖_F from the squared entries of W, and its slopes in log D_out and −log D_in.

    A side of which ``squares`` holds the sum has no weights, and no slopes.
    """
    sizes = squares.shape[1:]
    logs = [log[:, :n].to(squares.device) for log, n in zip(sided(form, log_out, log_in), sizes, strict=True)]
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
    known = np.isfinite(joined)
    if known.all():
        gap = arm - joined
    else:
        gap = np.subtract(arm, joined, out=np.full_like(joined, -np.inf), where=known)
    return np.exp(2 * gap if disjoint else gap)
