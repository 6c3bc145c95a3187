"""All tangents through the network over a ball, the open units collected on the way.

Directions are those of the input, then those of each open unit: what its slope may add to the middle. A unit is open
unless the ball fixes its slope: |z| > r·t + η, η the rounding of z and r·t a bound of |z(x) − z(c)| in the ball, over
the units before it. A sweep over secants follows x − c itself and finds r·t; one over tangents is told. For how both
are used see `journey`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import torch
from torch import Tensor

from normgauge.core.rounding import house_up
from normgauge.instrument.local.amplify import Amplifier, absolute_norm
from normgauge.instrument.local.blocks import Bent, Open, activated, normalized
from normgauge.instrument.local.curves import curve_of
from normgauge.instrument.local.max_windows import pooled
from normgauge.instrument.local.multipliers import Factor, Units, factored, first_multipliers, restrained
from normgauge.instrument.local.pieces import NotCarried, Push, linear_piece
from normgauge.instrument.local.products import PRODUCTS, multiplied
from normgauge.instrument.local.reaches import Proved, entry_lengths, sketched
from normgauge.instrument.local.softmaxes import SOFTMAXES, softened
from normgauge.instrument.local.valley import SUM_OF_ALL, Valley, affordable, descended_multipliers
from normgauge.instrument.trace.step import Step, Value

INF = math.inf
T = TypeVar("T")
HUGE = 1e100  # a size that can still be worked with
ROWS = 2**22  # entries of rows looked at together
MOST_OPEN, MOST_OUTPUTS = 4000, 1000  # rows of open units, and outputs
MOST = 2**28  # entries of all tangents of one value: 2 GiB
RETUNING = ((1e-2, 2, 12), (3e-3, 8, 12), (1e-3, 32, 12))  # of multipliers on the way: barrier, power, steps
RETUNED_WORK = 2e9  # of each of these, in cubes of units: less than a second
CENTRING = ((1.0, 20),)  # a barrier that keeps multipliers in the middle, and steps
MANY = 256  # rows that multipliers are chosen for as they are
MOST_BACKWARDS = 2000  # rows of one layer that are followed backwards
ELEMENTWISE = ("activation.activation", "activation.clamp", "activation.modulus")
NORMALIZERS = (
    *("norm_layer.layer_norm", "norm_layer.rms_norm", "norm_layer.group_norm", "norm_layer.instance_norm"),
    "recognise.written_out_norm",
)
UNDECIDED = "as far as rounding is bounded up to there, too many of its slopes are undecided"
KINKED = "too many units lie on a kink, as far as rounding is bounded up to there"
BENT = (*ELEMENTWISE, *NORMALIZERS, "pooling.max_pool", *SOFTMAXES, *PRODUCTS)


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
    tunes: bool = True
    work: float = 0.0
    place: int = -1  # of the step that is followed
    until: float = INF  # the last one whose tangents are asked for
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
        self.place += 1
        piece = linear_piece(step, rule, gains, self.native)
        if not self.forward:
            self.backwards(
                step, rule, Bent(piece, None) if piece is not None else self.bend(step, rule, gains, self.radius)
            )
            return
        still = Bent(piece, None) if piece is not None else self.bend(step, rule, gains, 0.0)
        bent = still if piece is not None else self.bend(step, rule, gains, self.radius)
        self.centre.add(still.piece, 0.0)
        if self.place >= self.until:
            return
        inputs = self.aligned([self.tangents[v.index] for v in step.inputs])
        size = math.hypot(*(float(torch.linalg.vector_norm(t)) for t in inputs))
        if not (size == 0 and not any(bool(t.any()) for t in inputs)) and not 1 / HUGE < size < HUGE:
            raise NotCarried("tangents so large or small that their squares are lost")
        rows, error = None, 0.0
        if bent.open is not None:
            tilt = sum(self.amplifier.tangent_error(v.index) for v in step.inputs)
            error = house_up(bent.open.spread * tilt + bent.open.slip * size)
            rows, bent = without_faint(bent.open.select(inputs), bent, bent.open, error)
        self.amplifier.add(dataclasses.replace(bent.piece, blur=0.0), house_up(size))
        out = bent.piece.push(inputs)
        if bent.open is not None and rows is not None:
            # units of a branch beside this one have directions too, which this value does not move along
            known = self.units.rows.shape[1] - len(out)
            out = torch.cat([out, out.new_zeros(known, *out.shape[1:]), bent.open.columns])
            self.open_units(rows, bent.open, error)
        if out.numel() > MOST:
            raise NotCarried("the tangents of all open units need too much memory")
        self.tangents[step.outputs[0].index] = out

    def backwards(self, step: Step, rule: str, bent: Bent) -> None:
        """Take a step up whose open units, few where nothing moves, get their rows by backward passes.

        Raises:
            NotCarried: for too many of them.
        """
        if bent.open is not None:
            if len(bent.open.half) > MOST_BACKWARDS:
                raise NotCarried(UNDECIDED if is_smooth(step, rule) else KINKED)
            values = [v.index for v in step.inputs]
            rows, error = self.amplifier.rows(values, bent.open.select, self.entered, bent.open.slip)
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
        several = len(step.outputs) != 1 or not step.inputs or (rule not in PRODUCTS and len(step.inputs) != 1)
        whole = all(v.tensor.dtype == torch.float64 for v in (*step.inputs, *step.outputs))
        writes = rule in PRODUCTS and bool(step.writes)  # into a factor: what it was is gone
        if rule not in BENT or several or writes or step.trouble or step.random is not None or not whole:
            raise NotCarried("it is not followed")
        for value in step.inputs:
            typical = float(value.tensor.norm()) / math.sqrt(max(value.tensor.numel(), 1))
            for amplifier in self.amplifiers:
                amplifier.sharpen(value.index, typical)
        value, secant = step.inputs[0], self.secant and radius > 0
        # with slopes in the middle of a ball errors pass otherwise than at the sample: those of the first sweep count
        errors = [self.asked(radius, lambda v=v: self.centre.value_error(v.index)) for v in step.inputs]  # type: ignore[misc]
        error = errors[0]
        if rule in PRODUCTS:
            return multiplied(step, rule, lambda v, places: self.block_reach(v, places, radius), errors, secant)
        if rule in ELEMENTWISE:
            known = lambda here, curve: self.entry_reach(value.index, curve.distance(here), error, radius)  # noqa: E731
            return activated(step, rule, known, error, secant)
        if rule in (*NORMALIZERS, *SOFTMAXES):
            far = lambda pushes: self.moved(value.index, pushes, radius)  # noqa: E731
            if rule in SOFTMAXES:
                return softened(step, rule, far, error, secant)
            return normalized(step, self.native, far, error, secant)
        return pooled(step, gains[0], lambda a, b: self.pair_reach(value.index, a, b, error, radius), error)

    def asked(self, radius: float, anew: Callable[[], T]) -> T:
        """How far something moves in a ball: as the sweep over secants found it, or anew."""
        if radius and self.given is not None:
            return cast("T", next(self.given[self.place]))
        found = anew()
        if radius:
            self.found.setdefault(self.place, []).append(found)
        return found

    def block_reach(self, value: Value, places: Tensor, radius: float) -> Tensor:
        """How far the entries of each block (blocks, entries) of a value move together, errors included."""
        error = self.asked(radius, lambda: self.centre.value_error(value.index))
        if places.shape[1] == 1:
            still = torch.zeros_like(value.tensor)
            return self.entry_reach(value.index, still, error, radius).reshape(-1)[places[:, 0]]
        pushes: list[Push] = [lambda v, few=few: v[0].reshape(len(v[0]), -1)[:, few] for few in places]  # type: ignore[misc]
        return house_up(torch.tensor(self.moved(value.index, pushes, radius), dtype=torch.float64) + error)

    def pair_reach(self, value: int, first: Tensor, second: Tensor, error: float, radius: float) -> Tensor:
        """r·t + η for differences of two entries."""
        return self.asked(radius, lambda: self._pair_reach(value, first, second, error, radius))

    def _pair_reach(self, value: int, first: Tensor, second: Tensor, error: float, radius: float) -> Tensor:
        if radius == 0 or math.isinf(radius):
            return torch.full(first.shape, radius + 2 * error, dtype=torch.float64)
        flat, tilt = self.tangents[value].reshape(len(self.tangents[value]), -1), self.amplifier.tangent_error(value)
        size = max(1, ROWS // len(flat))
        parts = [
            self.factor.row_bounds((flat[:, a] - flat[:, b]).T, 2 * tilt)
            for a, b in zip(first.split(size), second.split(size), strict=True)
        ]
        return radius * torch.cat(parts or [first.new_zeros(0).double()]) + 2 * error

    def entry_reach(self, value: int, away: Tensor, error: float, radius: float) -> Tensor:
        """r·t + η for every entry; ``away`` is how far it may move without being of interest."""
        return self.asked(radius, lambda: self._entry_reach(value, away, error, radius))

    def _entry_reach(self, value: int, away: Tensor, error: float, radius: float) -> Tensor:
        if radius == 0 or math.isinf(radius):
            return torch.full_like(away, radius + error)
        flat, tilt = self.tangents[value].reshape(len(self.tangents[value]), -1), self.amplifier.tangent_error(value)
        wanted = ((away.reshape(-1) - error) / self.radius).clamp_min(0.0)
        lengths, proved = entry_lengths(
            flat, Proved(self.units, self.logs, self.factor, self.known), tilt, wanted, self.tunes
        )
        self.logs, self.factor, self.known = proved.logs, proved.factor, proved.factor
        self.tuned = len(self.units.rows)
        return (self.radius * lengths + error).reshape(away.shape)

    def moved(self, value: int, pushes: Sequence[Push], radius: float) -> list[float]:
        """r·sup‖∂(push)/∂x‖ for each, with multipliers that suit them all."""
        return self.asked(radius, lambda: self._moved(value, pushes, radius))

    def _moved(self, value: int, pushes: Sequence[Push], radius: float) -> list[float]:
        if radius == 0 or math.isinf(radius):
            return [radius] * len(pushes)
        error = self.amplifier.tangent_error(value)
        rows = [push([self.tangents[value]]).flatten(1).T for push in pushes]
        self.retune(torch.cat(rows))
        return [self.radius * self.factor.norm_bound(some, error) for some in rows]

    def retune(self, rows: Tensor) -> None:
        """Choose multipliers anew that suit rows about to be bounded."""
        if not len(self.units.rows) or not self.tunes:
            return
        few = rows if len(rows) <= MANY else sketched(rows)
        level, logs = self.factor.norm_bound(few, 0.0), self.logs
        for barrier, power, steps in RETUNING:
            affords = affordable(steps, len(self.units.rows), RETUNED_WORK)
            self.work += affords * len(self.units.rows) ** 3
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
        directions = len(self.units.columns) + len(new.entering)
        if max(directions, (len(self.units.rows) + len(rows)) // 2) > self.most:
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


def is_smooth(step: Step, rule: str) -> bool:
    """Whether a step that is followed has no kink, so that its slopes change with its values and never jump."""
    return rule != "pooling.max_pool" and not (rule in ELEMENTWISE and curve_of(step, rule).kinks)


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
