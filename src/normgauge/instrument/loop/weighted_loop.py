"""The mid network between weighted spaces, as one matrix whose norm is the proof, and what float64 loses in it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import UNIT, house_up
from normgauge.instrument.loop.linear_step import FEW, LinearStep
from normgauge.instrument.loop.mid_network import MidNetwork
from normgauge.instrument.spectral.power import Linear


class WeightedLoop:
    """x ↦ diag(hD, 1) G diag(γ, D)⁻¹ x on rows, for log weights θ = (log γ, one a channel of each uncertain step).

    Attributes:
        net: the mid network.
        into: γ and D, (entries that go in,).
        out_of: hD and 1, (entries that come out,).
    """

    def __init__(self, net: MidNetwork, theta: Tensor) -> None:
        self.net = net
        first, *parts = theta.double().split(group_counts(net))
        sizes = [part.exp() for part in parts]  # D itself: whatever exp gave is the weight, on both sides
        pairs = list(zip(net.uncertain, sizes, strict=True))
        ends = (first.exp().expand(net.entered[0]), theta.new_ones(net.read[-1], dtype=torch.float64))
        into = torch.cat([ends[0], *(size[node.made] for node, size in pairs)])
        out_of = torch.cat([*(node.half * size[node.seen] for node, size in pairs), ends[1]])
        self.into, self.out_of = into.to(net.dtype), out_of.to(net.dtype)

    def push(self, x: Tensor) -> Tensor:
        """The map on (rows, entries)."""
        return self._passed(x, lambda part: self.net.push(part / self.into) * self.out_of)

    def pull(self, y: Tensor) -> Tensor:
        """Its adjoint."""
        return self._passed(y, lambda part: self.net.pull(part * self.out_of) / self.into)

    def _passed(self, rows: Tensor, function: Linear) -> Tensor:
        """A function of as many rows as samples pass, applied to any number of them."""
        missing = -len(rows) % self.net.samples
        whole = torch.cat([rows, rows.new_zeros(missing, rows.shape[1])]) if missing else rows
        return torch.cat([function(part) for part in whole.split(self.net.samples)])[: len(rows)]

    def normal(self, x: Tensor) -> Tensor:
        """x ↦ AᵀA x on (1, rows, entries)."""
        return self.pull(self.push(x[0]))[None]


def group_counts(net: MidNetwork) -> list[int]:
    """How many log weights θ holds: one for the input, then for each uncertain step."""
    return [1, *(node.groups for node in net.uncertain)]


@dataclass(frozen=True, slots=True)
class LoopSizes:
    """Bounds on what a unit vector becomes on its way through a `WeightedLoop`.

    Attributes:
        prefix: by value, on the norm of the map from all that goes in to this value.
        suffix: by value, on the norm of the map from this value to all that comes out.
        norm: on the norm of the whole map.
    """

    prefix: dict[int, float]
    suffix: dict[int, float]
    norm: float


def loop_sizes(loop: WeightedLoop, norm: float = math.inf) -> LoopSizes:
    """Products of gains from both ends, begun anew at every uncertain step where a bound on the whole norm helps.

    With N ≥ ‖A‖ the value z before an uncertain step has ‖z‖ ≤ N/min(hD), since hD z is part of what comes out; and
    what enters behind it reaches the outside by at most N·max D.
    """
    net = loop.net
    inner, outer = loop.into.split(net.entered), loop.out_of.split(net.read)
    prefix = {net.source: float(1 / inner[0].min())}
    place = 0
    for node, gains in zip(net.nodes, net.gains, strict=True):
        if isinstance(node, LinearStep):
            prefix.update((out.index, _arriving(gains, out.index, prefix)) for out in node.step.outputs)
            continue
        before, behind = node.step.inputs[0].index, node.step.outputs[0].index
        prefix[before] = min(prefix[before], _over(norm, float(outer[place].min())))
        place += 1
        prefix[behind] = abs(node.mid) * prefix[before] + float(1 / inner[place].min())
    suffix = {net.end: 1.0}
    squares = _square(prefix[net.end])
    for node, gains in zip(reversed(net.nodes), reversed(net.gains), strict=True):
        if isinstance(node, LinearStep):
            for (made, value), gain in gains.items():
                suffix[value] = suffix.get(value, 0.0) + gain * suffix.get(made, 0.0)
            continue
        before, behind = node.step.inputs[0].index, node.step.outputs[0].index
        suffix[behind] = min(suffix.get(behind, 0.0), norm * float(inner[place].max()))
        place -= 1
        top = float(outer[place].max())
        suffix[before] = suffix.get(before, 0.0) + abs(node.mid) * suffix[behind] + top
        squares += _square(top * prefix[before])
    return LoopSizes(prefix, suffix, min(norm, house_up(math.sqrt(squares))))


def _square(size: float) -> float:
    return size * size  # infinite where it is too large, which the operator ** makes an error


def _over(norm: float, least: float) -> float:
    return norm / least if least > 0 else math.inf


def _arriving(gains: dict[tuple[int, int], float], out: int, prefix: dict[int, float]) -> float:
    return sum((gain * prefix[value] for (made, value), gain in gains.items() if made == out), 0.0)


def normal_error(loop: WeightedLoop, sizes: LoopSizes) -> float:
    """Bound on ‖fl(AᵀA x) − AᵀA x‖/‖x‖ in float64: N·E + E'·(N + E), by the errors E of A and E' of Aᵀ."""
    pushed, pulled = product_errors(loop, sizes)
    return house_up(sizes.norm * pushed + pulled * (sizes.norm + pushed))


def product_errors(loop: WeightedLoop, sizes: LoopSizes) -> tuple[float, float]:
    """Bounds on ‖fl(A x) − A x‖/‖x‖ and ‖fl(Aᵀy) − Aᵀy‖/‖y‖ in float64.

    A step k makes a fresh error of at most ε_k times what it is given, which the exact rest of the way carries out:
    with P the norm of the way to a value, S that of the way on from it, and ρ the errors that have come as far,

        ‖fl(A x) − A x‖ ≤ Σ_k ε_k (P_in + ρ_in) S_out + few·u·N,     ρ_out = Σ g ρ_in + ε (P_in + ρ_in),

    where an uncertain step, which adds what enters behind it, makes an error of few·u·P_out; and for Aᵀ the same with
    the ways exchanged: ε_k (S_out + ρ_out) P_in, and few·u·S_in.

    Holds:  every order of summation inside a step; no overflow, and underflow is far below the house's slack.
    Source: derived here; the errors of single steps are those of Higham, Accuracy and Stability, (3.5).
    """
    parts = loop_parts(loop.net)
    pushed = _carried(parts, sizes.prefix, sizes.suffix)
    pulled = _carried([part.turned() for part in reversed(parts)], sizes.suffix, sizes.prefix)
    ends = 8 * FEW * sizes.norm  # weights are multiplied in and out
    return house_up(pushed + ends), house_up(pulled + ends)


@dataclass(frozen=True, slots=True)
class LoopPart:
    """What a step makes of one value: ‖part‖ ≤ gain, with an error ≤ given·(its input) + made·(its output's bound)."""

    before: int
    behind: int
    gain: float
    given: float
    made: float

    def turned(self) -> LoopPart:
        """The same part of the adjoint."""
        return LoopPart(self.behind, self.before, self.gain, self.given, self.made)


def _carried(parts: list[LoopPart], way_to: dict[int, float], way_on: dict[int, float]) -> float:
    """What the errors of all parts, in the order they are passed, amount to at the end."""
    off: dict[int, float] = {}
    total = 0.0
    for part in parts:
        come = off.get(part.before, 0.0)
        arriving, leaving = way_to.get(part.before, 0.0) + come, way_to.get(part.behind, 0.0)
        fresh = part.given * arriving + part.made * (leaving + off.get(part.behind, 0.0) + part.gain * come)
        off[part.behind] = off.get(part.behind, 0.0) + part.gain * come + fresh
        total += fresh * way_on.get(part.behind, 0.0)
    return total


def loop_parts(net: MidNetwork) -> list[LoopPart]:
    """Every part of the mid network with its norm and its error; values with several readers add up in the adjoint."""
    readers: dict[int, int] = {}
    for node in net.nodes:
        for value in node.step.inputs:
            readers[value.index] = readers.get(value.index, 0) + 1
    parts = []
    for node, gains in zip(net.nodes, net.gains, strict=True):
        inputs = [value.index for value in node.step.inputs]
        if not isinstance(node, LinearStep):
            made = FEW * (readers[inputs[0]] + 1)
            parts.append(LoopPart(inputs[0], node.step.outputs[0].index, abs(node.mid), 0.0, made))
            continue
        errors: dict[int, float] = {}
        for index, error in zip(inputs, node.errors, strict=True):
            errors[index] = errors.get(index, 0.0) + error
        for (behind, before), gain in gains.items():
            sums = 4 * UNIT * gain * (readers[before] + len(inputs))
            parts.append(LoopPart(before, behind, gain, errors[before] + sums, 0.0))
    return parts
