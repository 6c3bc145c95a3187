"""One sample and a ball around it: how far values move, from secants, and then the tangents of what is left open.

The first sweep follows x − c for every x of the ball: secants of a function from the sample are means of its slopes and
lie closer together than those. It says how far each unit moves; the second opens the units which that leaves open and
gets their rows by backward passes, few as they are. At a point, and for all inputs, there is nothing to find out first.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from normgauge.core.rounding import house_up
from normgauge.instrument.compose import Composition, layer_names
from normgauge.instrument.local.amplify import MANY_PROBES, PROBES, Amplifier
from normgauge.instrument.local.multipliers import Units, factored
from normgauge.instrument.local.pieces import NotCarried, linear_piece
from normgauge.instrument.local.products import PRODUCTS
from normgauge.instrument.local.sweep import BENT, MOST, MOST_OPEN, MOST_OUTPUTS, Sweep
from normgauge.instrument.local.swept import Swept
from normgauge.instrument.local.unfold import Ruled, unfolded
from normgauge.instrument.local.windows import tiled_order
from normgauge.instrument.trace.step import Step, Trace

INF = math.inf
TOO_WIDE = f"an output of more than {MOST_OUTPUTS:,} numbers a sample: have the model return fewer (of the last token)"
LARGEST = 200.0  # log of a gain that can still be worked with


def swept_ball(
    one: Trace,
    parts: Composition,
    sample: int,
    radius: float,
    native: torch.dtype,
    seed: int,
    most: int = MOST_OPEN,
    tune: bool = True,
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
        tune: choose the multipliers anew on the way, which takes most of the time and gains a few per cent.

    Raises:
        NotCarried: for a network with steps that are not followed, or too large for this.
    """
    if len(one.sources) != 1 or one.sources[0].tensor.dtype != torch.float64:
        raise NotCarried("a network with several inputs, or not in float64")
    source, end = one.sources[0], one.end
    if end.tensor.numel() > MOST_OUTPUTS:
        raise NotCarried(TOO_WIDE)
    if not all(out.tensor.numel() for step in one.steps for out in step.outputs):
        raise NotCarried("a value without entries")
    if radius and source.tensor.numel() ** 2 > MOST:
        raise NotCarried("an input of too many numbers: measure a smaller one, or a part of the network")
    if radius == 0 or math.isinf(radius):
        return Journey(one, parts, sample, native, seed, most, tune).finished(radius, radius > 0)
    journey = Journey(one, parts, sample, native, seed, most, tune)
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
    tune: bool

    def made(self, radius: float, forward: bool, secant: bool = False, reached: Sweep | None = None) -> Sweep:
        """A sweep through all steps, over secants or tangents; ``reached`` is one that knows how far values move."""
        source, end, ruled = self.one.sources[0].tensor, self.one.end, self.ruled_steps()
        index = self.one.sources[0].index
        units, none = Units.none(source.numel()), torch.zeros(0, dtype=torch.float64)
        factor = factored(units, none)
        assert factor is not None
        probes = MANY_PROBES if forward else PROBES
        amplifier = Amplifier(source, index, len(ruled), self.seed, probes)
        centre = Amplifier(source, index, len(ruled), self.seed, probes) if forward else amplifier
        sweep = Sweep(radius, self.native, amplifier, centre, units, none, factor, factor, forward=forward)
        sweep.most, sweep.secant, sweep.tunes = self.most, secant, self.tune
        if secant:
            bent = [rule in BENT and not self._scales(step, rule, gains) for step, rule, gains in ruled]
            sweep.until = max((place for place, turns in enumerate(bent) if turns), default=-1)
        if reached is not None:
            sweep.given = {step: iter(found) for step, found in reached.found.items()}
        if forward:
            order = tiled_order(source.shape)  # of no meaning but for speed: lengths are the same in any
            sweep.tangents[index] = torch.eye(source.numel(), dtype=torch.float64)[order].reshape(-1, *source.shape)
        left = Counter(value.index for step, _, _ in ruled for value in step.inputs)
        for step, rule, gains in ruled:
            with self.named(step):
                sweep.follow(step, rule, gains)
            for value in step.inputs:
                left[value.index] -= 1
                if not left[value.index] and value.index != end.index:
                    sweep.tangents.pop(value.index, None)
        typical = float(end.tensor.norm()) / math.sqrt(max(end.tensor.numel(), 1))
        for measured in (sweep.centre,) if secant else sweep.amplifiers:
            measured.sharpen(end.index, typical)
        return sweep

    def _scales(self, step: Step, rule: str, gains: tuple[float, ...]) -> bool:
        """Whether a product is one with constants, whose tangents nobody asks for."""
        return rule in PRODUCTS and linear_piece(step, rule, gains, self.native) is not None

    def ruled_steps(self) -> list[Ruled]:
        """All steps with their rules and gains, attention and gated units in parts."""
        known = [*self.one.sources, *(out for step in self.one.steps for out in step.outputs)]
        fresh = itertools.count(max(value.index for value in known) + 1)
        found = []
        for step, origin in zip(self.one.steps, self.parts.trace.steps, strict=True):
            with self.named(step):
                found += unfolded(step, *own_rule(self.parts, origin, self.sample), fresh)
        return found

    @contextmanager
    def named(self, step: Step) -> Iterator[None]:
        """Inside, a step or a part of it that is not followed is told by the name that the reading has for it.

        Raises:
            NotCarried: with that name.
        """
        try:
            yield
        except NotCarried as failure:
            place = next(place for place, own in enumerate(self.one.steps) if own.index == step.index)
            origin = self.parts.trace.steps[place]
            raise NotCarried(f"{layer_names(self.parts).get(origin.index, origin.name)}: {failure}") from failure

    def finished(self, radius: float, forward: bool, reached: Sweep | None = None) -> Swept:
        """A sweep over tangents, ready to be bounded."""
        sweep, end = self.made(radius, forward, reached=reached), self.one.end
        if forward:
            rows = sweep.tangents[end.index].reshape(len(sweep.tangents[end.index]), -1).T.contiguous()
            error = sweep.amplifier.tangent_error(end.index)
        else:
            rows, error = sweep.amplifier.rows([end.index], lambda v: v[0].reshape(len(v[0]), -1).T, sweep.entered)
        sweeps = [sweep] if reached is None else [sweep, reached]
        chance = house_up(sum(measured.failure_probability for one in sweeps for measured in one.amplifiers))
        work = sum(one.work for one in sweeps)
        return Swept(sweep.units, sweep.logs, rows, error, sweeps[-1].centre.value_error(end.index), chance, work)


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
        raise NotCarried("no rule of normgauge's own, or no bound")
    return rule.id, gains
