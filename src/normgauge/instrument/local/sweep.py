"""One sample and a ball around it: all tangents through the network, the open units collected on the way.

Directions are those of the input, then one for each open unit (n for a normalized group of n entries): what its slope
may add to the middle. A unit is open unless the ball fixes its slope: |z| > r·t + η, t the largest length of ∇z in the
ball by the bound over the units before it, η the rounding of z. Sound step by step, since the ball is convex.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import torch
from torch import Tensor

from normgauge.core.rounding import dot_error, house_up
from normgauge.instrument.compose import Composition
from normgauge.instrument.local.amplify import MANY_PROBES, PROBES, Amplifier, absolute_norm
from normgauge.instrument.local.blocks import Bent, Open, activated, normalized
from normgauge.instrument.local.curves import Curve
from normgauge.instrument.local.descent import best_multipliers
from normgauge.instrument.local.max_windows import pooled
from normgauge.instrument.local.multipliers import Factor, Units, factored, first_multipliers, restrained
from normgauge.instrument.local.pieces import NotCarried, Push, linear_piece
from normgauge.instrument.local.reaches import Proved, entry_lengths, sketched
from normgauge.instrument.local.valley import SUM_OF_ALL, Valley, affordable, descended_multipliers
from normgauge.instrument.local.windows import tiled_order
from normgauge.instrument.trace.step import Step, Trace

INF = math.inf
T = TypeVar("T")
LARGEST, HUGE = 200.0, 1e100  # log of a gain that can still be worked with, and a size
ROWS = 2**22  # entries of rows looked at together
MOST_OPEN, MOST_OUTPUTS = 4000, 1000  # rows of open units, and outputs
MOST = 2**28  # entries of all tangents of one value: 2 GiB
RETUNING = ((1e-2, 2, 12), (3e-3, 8, 12), (1e-3, 32, 12))  # of multipliers on the way: barrier, power, steps
RETUNED_WORK = 2e9  # of each of these, in cubes of units: less than a second
CENTRING = ((1.0, 20),)  # a barrier that keeps multipliers in the middle, and steps
MANY = 256  # rows that multipliers are chosen for as they are
NEWTON = 250  # rows up to which the semidefinite program itself is solved
MOST_BACKWARDS = 2000  # rows of one layer that are followed backwards
WORK = 2.5e10  # for the multipliers of a headline, in cubes of units: seconds
STAGES = ((1e-2, 4), (1e-3, 16), (1e-4, 32))  # of log det(I − BBᵀ) over the number of units; powers, as in `valley`
ELEMENTWISE = ("activation.activation", "activation.clamp", "activation.modulus")
NORMALIZERS = (
    *("norm_layer.layer_norm", "norm_layer.rms_norm", "norm_layer.group_norm", "norm_layer.instance_norm"),
    "recognise.written_out_norm",
)
BENT = (*ELEMENTWISE, *NORMALIZERS, "pooling.max_pool")


@dataclass(slots=True)
class Swept:
    """The network over the ball, ready to be bounded.

    Attributes:
        units: open units.
        logs: of feasible multipliers for them.
        target: the output's tangents as rows, (outputs, directions).
        error: norm of the target's error.
        value_error: of the output itself, as a length.
        chance: that one of the errors was measured wrongly.
    """

    units: Units
    logs: Tensor
    target: Tensor
    error: float
    value_error: float
    chance: float

    def bound(self, rows: Tensor | None = None) -> float:
        """An upper bound of sup‖∂(rows·output)/∂x‖ over the ball with the multipliers at hand."""
        factor = factored(self.units, self.logs)
        if factor is None:
            return INF
        target, error = self._target(rows)
        found = factor.norm_bound(target, error)
        return found if found > 1 / HUGE else INF

    def row_bounds(self, rows: Tensor) -> Tensor | None:
        """An upper bound of the slope of each row's own combination of outputs; None where nothing is proved."""
        factor = factored(self.units, self.logs)
        return None if factor is None else factor.row_bounds(*self._target(rows))

    def improved(self, gap: float, steps: int, rows: Tensor | None = None) -> Swept:
        """The same with multipliers that suit the target, if they prove something smaller."""
        here = self.bound(rows)
        if not len(self.units.rows) or not math.isfinite(here):
            return self
        target, _ = self._target(rows)
        best, logs = self, self.logs
        for stage in range(len(STAGES) if len(self.units.rows) > NEWTON else 1):
            logs = chosen_multipliers(self.units, target, logs, here, gap, steps, stage)
            other = dataclasses.replace(self, logs=restrained(self.units, logs))
            there = other.bound(rows)
            best, here = (other, there) if there < here else (best, here)
        return best

    def _target(self, rows: Tensor | None) -> tuple[Tensor, float]:
        if rows is None:
            return self.target, self.error
        size = house_up(float(torch.linalg.matrix_norm(rows)))
        rounded = dot_error(rows.shape[1]) * size * float(torch.linalg.vector_norm(self.target))
        return rows @ self.target, self.error * size + house_up(rounded)


def chosen_multipliers(
    units: Units, target: Tensor, logs: Tensor, level: float, gap: float, steps: int, stage: int = 0
) -> Tensor:
    """Better multipliers for the rows ``target``, whose bound at ``logs`` is ``level``; not proved yet."""
    if len(units.rows) <= NEWTON:
        return best_multipliers(units, target, logs, 1.1 * level**2, gap, steps)
    barrier, power = STAGES[stage]
    affords = -(-affordable(steps, len(units.rows), WORK) // len(STAGES))
    return descended_multipliers(Valley.of(units, target, power), logs, [(barrier, affords)])


@dataclass(slots=True)
class Sweep:
    """Carries tangents step by step; see `swept_ball`."""

    radius: float
    native: torch.dtype
    amplifier: Amplifier  # of tangents, through the middle of the ball's slopes
    centre: Amplifier  # of values, through the slopes at the sample; the same where there is no ball
    units: Units
    logs: Tensor
    factor: Factor
    known: Factor
    tangents: dict[int, Tensor] = field(default_factory=dict)
    tuned: int = 0
    forward: bool = True
    most: int = MOST_OPEN
    entered: list[tuple[int, Tensor]] = field(default_factory=list)
    secant: bool = False
    until: float = INF  # the last step whose tangents are asked for
    given: dict[int, Iterator[object]] | None = None
    found: dict[int, list[object]] = field(default_factory=dict)

    @property
    def amplifiers(self) -> tuple[Amplifier, ...]:
        """Each once."""
        return (self.amplifier, self.centre) if self.forward else (self.amplifier,)

    def follow(self, step: Step, rule: str, gains: tuple[float, ...]) -> None:
        """Push the tangents of what a step reads through it.

        Raises:
            NotCarried: for a step that is not followed.
        """
        piece = linear_piece(step, rule, gains, self.native)
        if not self.forward:
            self.backwards(step, Bent(piece, None) if piece is not None else self.bend(step, rule, gains, self.radius))
            return
        still = Bent(piece, None) if piece is not None else self.bend(step, rule, gains, 0.0)
        bent = still if piece is not None else self.bend(step, rule, gains, self.radius)
        self.centre.add(still.piece, 0.0)
        if step.index >= self.until:
            return
        inputs = self.aligned([self.tangents[v.index] for v in step.inputs])
        size = math.hypot(*(float(torch.linalg.vector_norm(t)) for t in inputs))
        if not (size == 0 and not any(bool(t.any()) for t in inputs)) and not 1 / HUGE < size < HUGE:
            raise NotCarried(f"{step.name}: tangents so large or small that their squares are lost")
        rows, error = None, 0.0
        if bent.open is not None:
            error = self.amplifier.tangent_error(step.inputs[0].index)
            rows, bent = without_faint(bent.open.select(inputs[0]), bent, bent.open, error)
        self.amplifier.add(dataclasses.replace(bent.piece, blur=0.0), house_up(size))
        out = bent.piece.push(inputs)
        if bent.open is not None and rows is not None:
            # units of a branch beside this one have directions too, which this value does not move along
            known = self.units.rows.shape[1] - len(out)
            out = torch.cat([out, out.new_zeros(known, *out.shape[1:]), bent.open.columns])
            self.open_units(rows, bent.open, error)
        if out.numel() > MOST:
            raise NotCarried(f"{step.name}: the tangents of all open units need too much memory")
        self.tangents[step.outputs[0].index] = out

    def backwards(self, step: Step, bent: Bent) -> None:
        """Take a step up whose open units, few where nothing moves, get their rows by backward passes.

        Raises:
            NotCarried: for too many of them.
        """
        if bent.open is not None:
            if len(bent.open.half) > MOST_BACKWARDS:
                raise NotCarried(f"{step.name}: too many units lie on a kink")
            rows, error = self.amplifier.rows(step.inputs[0].index, bent.open.select, self.entered)
            rows, bent = without_faint(rows, bent, bent.open, error)
            if bent.open is not None:
                self.open_units(rows, bent.open, error)
                self.entered.append((step.outputs[0].index, bent.open.columns))
        self.amplifier.add(bent.piece, 0.0)

    def bend(self, step: Step, rule: str, gains: tuple[float, ...], radius: float) -> Bent:
        """The middle of a nonlinear step, and what is open of it, in a ball around the sample or at it.

        Raises:
            NotCarried: for a step that is not followed.
        """
        several = len(step.outputs) != 1 or not step.inputs or len({v.index for v in step.inputs}) != 1
        if rule not in BENT or several or step.trouble:
            raise NotCarried(f"{step.name} ({step.kind}) is not followed")
        value = step.inputs[0]
        if value.tensor.dtype != torch.float64 or step.random is not None:
            raise NotCarried(f"{step.name} ({step.kind}) is not followed")
        entries = value.tensor.numel()
        typical = float(value.tensor.norm()) / math.sqrt(max(entries, 1))
        for amplifier in self.amplifiers:
            amplifier.sharpen(value.index, typical)
        error = self.centre.value_error(value.index)
        secant = self.secant and radius > 0
        if rule in ELEMENTWISE:
            reach = self.entry_reach if radius else lambda _, here, __, error: torch.full_like(here, error)
            known = lambda here, curve: self.asked(step, radius, lambda: reach(value.index, here, curve, error))  # noqa: E731
            return activated(step, rule, known, error, secant)
        if rule in NORMALIZERS:
            moved = self.moved if radius else lambda _, pushes: [0.0] * len(pushes)
            far = lambda pushes: self.asked(step, radius, lambda: moved(value.index, pushes))  # noqa: E731
            return normalized(step, self.native, far, error, secant)
        pairs = lambda a, b: self.asked(  # noqa: E731
            step, radius, lambda: self.pair_reach(value.index, a, b, error, radius)
        )
        return pooled(step, gains[0], pairs, error)

    def asked(self, step: Step, radius: float, anew: Callable[[], T]) -> T:
        """How far something moves in a ball: as the sweep over secants found it, or anew."""
        if radius and self.given is not None:
            return cast("T", next(self.given[step.index]))
        found = anew()
        if radius:
            self.found.setdefault(step.index, []).append(found)
        return found

    def pair_reach(self, value: int, first: Tensor, second: Tensor, error: float, radius: float) -> Tensor:
        """r·t + η for differences of two entries."""
        if radius == 0 or math.isinf(radius):
            return torch.full(first.shape, radius + 2 * error, dtype=torch.float64)
        flat, tilt = self.tangents[value].reshape(len(self.tangents[value]), -1), self.amplifier.tangent_error(value)
        size = max(1, ROWS // len(flat))
        parts = [
            self.factor.row_bounds((flat[:, a] - flat[:, b]).T, 2 * tilt)
            for a, b in zip(first.split(size), second.split(size), strict=True)
        ]
        return radius * torch.cat(parts or [first.new_zeros(0).double()]) + 2 * error

    def entry_reach(self, value: int, here: Tensor, curve: Curve, error: float) -> Tensor:
        """r·t + η for every entry."""
        if math.isinf(self.radius):
            return torch.full_like(here, INF)
        flat, tilt = self.tangents[value].reshape(len(self.tangents[value]), -1), self.amplifier.tangent_error(value)
        away = curve.distance(here).reshape(-1)
        wanted = ((away - error) / self.radius).clamp_min(0.0)
        lengths, proved = entry_lengths(flat, Proved(self.units, self.logs, self.factor, self.known), tilt, wanted)
        self.logs, self.factor, self.known = proved.logs, proved.factor, proved.factor
        self.tuned = len(self.units.rows)
        return (self.radius * lengths + error).reshape(here.shape)

    def moved(self, value: int, pushes: Sequence[Push]) -> list[float]:
        """r·sup‖∂(push)/∂x‖ for each, with multipliers that suit them all."""
        if math.isinf(self.radius):
            return [INF] * len(pushes)
        error = self.amplifier.tangent_error(value)
        rows = [push([self.tangents[value]]).flatten(1).T for push in pushes]
        self.retune(torch.cat(rows))
        return [self.radius * self.factor.norm_bound(some, error) for some in rows]

    def retune(self, rows: Tensor) -> None:
        """Choose multipliers anew that suit rows about to be bounded."""
        if not len(self.units.rows):
            return
        few = rows if len(rows) <= MANY else sketched(rows)
        level, logs = self.factor.norm_bound(few, 0.0), self.logs
        for barrier, power, steps in RETUNING:
            affords = affordable(steps, len(self.units.rows), RETUNED_WORK)
            logs = descended_multipliers(Valley.of(self.units, few, power), logs, [(barrier, affords)])
            tried = restrained(self.units, logs)
            factor = factored(self.units, tried)
            if factor is not None and (found := factor.norm_bound(few, 0.0)) < level:
                level, self.logs, self.factor, self.known = found, tried, factor, factor
                self.tuned = len(self.units.rows)

    def aligned(self, tangents: Sequence[Tensor]) -> list[Tensor]:
        """Tangents over the same directions: later ones do not move earlier values."""
        count = max(len(t) for t in tangents)
        return [t if len(t) == count else torch.cat([t, t.new_zeros(count - len(t), *t.shape[1:])]) for t in tangents]

    def open_units(self, rows: Tensor, new: Open, error: float) -> None:
        """Take up open units.

        Raises:
            NotCarried: where there are too many, or no multipliers are proved for them.
        """
        if len(self.units.rows) + len(rows) > self.most:
            raise NotCarried("too many units are open")
        for turn in range(2):
            if turn and len(self.units.rows):
                self.recentre(rows)
            fresh = first_multipliers(self.factor, rows, new.half, new.group, error)
            units = self.units.extended(rows, new.half, new.group, new.entering, error)
            logs = restrained(units, torch.cat([self.logs, fresh]))
            for _ in range(20):
                factor = factored(units, logs)
                if factor is not None:
                    self.units, self.logs, self.factor = units, logs, factor
                    return
                logs[-len(fresh) :] -= 0.7
        raise NotCarried("no multipliers were found for the open units")

    def recentre(self, rows: Tensor) -> None:
        """Take the multipliers away from the boundary, where rounding leaves no room for further ones."""
        logs = descended_multipliers(Valley.of(self.units, sketched(rows), SUM_OF_ALL), self.logs, CENTRING)
        factor = factored(self.units, logs)
        if factor is not None:
            self.logs, self.factor, self.known = logs, factor, factor


def without_faint(rows: Tensor, bent: Bent, opened: Open, error: float) -> tuple[Tensor, Bent]:
    """Take open units out whose rows are zero: they add h·τ·‖columns‖ at most, which counts as a tangent error."""
    groups = int(opened.group.max()) + 1
    longest = torch.zeros(groups, dtype=torch.float64).scatter_reduce(0, opened.group, rows.abs().amax(1), "amax")
    if bool((longest > 0).all()):
        return rows, bent
    kept, entering = longest[opened.group] > 0, longest[opened.entering] > 0
    faint = house_up(float(opened.half.max()) * error * absolute_norm(opened.columns.reshape(len(opened.columns), -1)))
    piece = dataclasses.replace(bent.piece, faint=faint)
    if not bool(kept.any()):
        return rows[:0], Bent(piece, None)
    number = (longest > 0).cumsum(0) - 1
    left = Open(
        opened.select,
        opened.columns[entering],
        opened.half[kept],
        number[opened.group[kept]],
        number[opened.entering[entering]],
    )
    return rows[kept], Bent(piece, left)


def swept_ball(
    one: Trace,
    parts: Composition,
    sample: int,
    radius: float,
    native: torch.dtype,
    seed: int,
    most: int = MOST_OPEN,
) -> Swept:
    """Carry one sample's tangents through the network, in the ball of a radius around it; backwards at a point.

    Args:
        one: the trace of that sample alone, or of the whole batch where it is one point.
        parts: the composition at the samples, of a trace with the same steps.
        sample: which of its samples it is.
        radius: 0 for the sample itself, infinite for all inputs.
        native: the model's own precision.
        seed: of what is measured with random numbers.
        most: open units, in rows, beyond which it is given up.

    Raises:
        NotCarried: for a network with steps that are not followed, or too large for this.
    """
    if len(one.sources) != 1 or one.sources[0].tensor.dtype != torch.float64:
        raise NotCarried("a network with several inputs, or not in float64")
    source, end = one.sources[0], one.end
    if end.tensor.numel() > MOST_OUTPUTS:
        raise NotCarried("an output of too many numbers")
    if radius and source.tensor.numel() ** 2 > MOST:
        raise NotCarried("an input of too many numbers")
    if radius == 0 or math.isinf(radius):
        return Journey(one, parts, sample, native, seed, most).finished(radius, radius > 0)
    journey = Journey(one, parts, sample, native, seed, most)
    reached = journey.made(radius, True, secant=True)
    return journey.finished(radius, False, reached)


@dataclass(frozen=True, slots=True)
class Journey:
    """One sample's way through the network; see `swept_ball`."""

    one: Trace
    parts: Composition
    sample: int
    native: torch.dtype
    seed: int
    most: int

    def made(self, radius: float, forward: bool, secant: bool = False, reached: Sweep | None = None) -> Sweep:
        """A sweep through all steps, over secants or tangents; ``reached`` is one that knows how far values move."""
        source, end, steps = self.one.sources[0].tensor, self.one.end, len(self.one.steps)
        index = self.one.sources[0].index
        units, none = Units.none(source.numel()), torch.zeros(0, dtype=torch.float64)
        factor = factored(units, none)
        assert factor is not None
        probes = MANY_PROBES if forward else PROBES
        amplifier = Amplifier(source, index, steps, self.seed, probes)
        centre = Amplifier(source, index, steps, self.seed, probes) if forward else amplifier
        sweep = Sweep(radius, self.native, amplifier, centre, units, none, factor, factor, forward=forward)
        sweep.most, sweep.secant = self.most, secant
        pairs = list(zip(self.one.steps, self.parts.trace.steps, strict=True))
        if secant:
            bent = [step.index for step, known in pairs if own_rule(self.parts, known, self.sample)[0] in BENT]
            sweep.until = max(bent, default=-1)
        if reached is not None:
            sweep.given = {step: iter(found) for step, found in reached.found.items()}
        if forward:
            order = tiled_order(source.shape)  # of no meaning but for speed: lengths are the same in any
            sweep.tangents[index] = torch.eye(source.numel(), dtype=torch.float64)[order].reshape(-1, *source.shape)
        left = Counter(value.index for step in self.one.steps for value in step.inputs)
        for step, known in pairs:
            sweep.follow(step, *own_rule(self.parts, known, self.sample))
            for value in step.inputs:
                left[value.index] -= 1
                if not left[value.index] and value.index != end.index:
                    sweep.tangents.pop(value.index, None)
        typical = float(end.tensor.norm()) / math.sqrt(max(end.tensor.numel(), 1))
        for measured in (sweep.centre,) if secant else sweep.amplifiers:
            measured.sharpen(end.index, typical)
        return sweep

    def finished(self, radius: float, forward: bool, reached: Sweep | None = None) -> Swept:
        """A sweep over tangents, ready to be bounded."""
        sweep, end = self.made(radius, forward, reached=reached), self.one.end
        if forward:
            rows = sweep.tangents[end.index].reshape(len(sweep.tangents[end.index]), -1).T.contiguous()
            error = sweep.amplifier.tangent_error(end.index)
        else:
            rows, error = sweep.amplifier.rows(end.index, lambda v: v.reshape(len(v), -1).T, sweep.entered)
        sweeps = [sweep] if reached is None else [sweep, reached]
        chance = house_up(sum(measured.failure_probability for one in sweeps for measured in one.amplifiers))
        return Swept(sweep.units, sweep.logs, rows, error, sweeps[-1].centre.value_error(end.index), chance)


def own_rule(parts: Composition, step: Step, sample: int) -> tuple[str, tuple[float, ...]]:
    """The name of a step's rule and its gains at a sample.

    Raises:
        NotCarried: for a rule of the user's, none at all, or a gain that is infinite.
    """
    rule = parts.rules[step.index]
    logs = [g.log for g in parts.transfers[step.outputs[0].index].gains]
    gains = tuple(math.exp(min(float(log[min(sample, len(log) - 1)]), LARGEST)) for log in logs)
    tiny = any(-INF < float(log[min(sample, len(log) - 1)]) < -LARGEST for log in logs)
    if rule is None or rule.id.startswith("user.") or max(gains) >= math.exp(LARGEST) or tiny:
        raise NotCarried(f"{step.name}: no rule of normgauge's own, or no bound")
    return rule.id, gains
