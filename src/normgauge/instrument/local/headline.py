"""The number to quote in a scope: the best of all bounds, with the method that gave it and how it is known.

point    the Jacobian's norm: proved where the rounding of values and tangents can be carried, else computed
ball     the bound over open units (`sweep`), the balanced one, or that over all inputs
global   the same with every slope open, or the balanced one

The balanced bound is always there; what is better takes effort, which is counted and not clocked.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.bound import Evidence, Scope
from normgauge.core.multipliers import Multipliers, kept_multipliers
from normgauge.core.rounding import log_inward, log_outward
from normgauge.instrument.balance import Balanced
from normgauge.instrument.compose import Composition
from normgauge.instrument.local.amplify import PROBES
from normgauge.instrument.local.effort import SPENDINGS, spending_of
from normgauge.instrument.local.jacobians import JacobianNorms, jacobian_norms
from normgauge.instrument.local.journey import TOO_WIDE
from normgauge.instrument.local.one_sample import (
    FAILURES,
    WHY_NOT,
    network_of,
    one_run,
    open_entries,
    seed_of,
    swept_sample,
)
from normgauge.instrument.local.recheck import bound_again
from normgauge.instrument.local.standing import on_kink
from normgauge.instrument.local.sweep import MOST_OUTPUTS
from normgauge.instrument.local.swept import NEWTON, Swept
from normgauge.instrument.loop import loop_bound
from normgauge.instrument.one_map import is_one_map
from normgauge.instrument.session import Session
from normgauge.render.numbers import format_above

INF = math.inf
SMOOTH_PRODUCTS = ("attention.attention", "projection.matmul", "projection.einsum", "combine.multiply", "softmax.glu")
NEWTON_STEP, DESCENT_STEP = 6e-10, 2e-10  # seconds of a step of order 1, by the cube
FEWEST_STEPS = 6  # are always made
TUNED = 0.2  # of the budget, in counted work of multipliers tuned on the way: all else on that way takes ten times that
UNTUNED = "around so many samples multipliers were not tuned on the way: effort=long may lower the bound a little"
NOT_BELOW = "what its rounding allows is not below the bound composed of layers"
TOO_LONG = "of so many samples of so deep a network it takes more work than the effort allows"
MORE = "effort=long would look for a smaller bound in this ball"
BALANCED, JACOBIAN, OPEN_UNITS, LOOP, EVERYWHERE = "balanced", "jacobian", "open units", "loop", "everywhere"
ALL_INPUTS = "headline over all inputs"  # as a session keeps it


@dataclass(frozen=True, slots=True)
class Headline:
    """The best bound, sample by sample.

    Attributes:
        log_upper: one entry a sample.
        method: what gave the largest of them.
        evidence: of the whole; None where it is that of the balanced bound.
        chance: that a random start or a measured error misled it.
        notes: what a reader should know.
        multipliers: what it was proved with.
        steepest: a direction at each sample, (samples, inputs), in which the network is about as steep, if one was met.
        log_lower: at the samples, the lower ends of what encloses their Jacobians' norms; −inf where nothing does.
    """

    log_upper: Tensor
    method: str = BALANCED
    evidence: Evidence | None = None
    chance: float = 0.0
    notes: tuple[str, ...] = ()
    multipliers: tuple[Multipliers, ...] = ()
    steepest: Tensor | None = None
    log_lower: Tensor | None = None

    @property
    def total(self) -> float:
        """The largest log bound over the samples."""
        return float(self.log_upper.max())


def headline(session: Session, parts: Composition, best: Balanced) -> Headline:
    """The best bound for the effort asked for; never above the balanced one."""
    plain = Headline(best.log_upper)
    scope = parts.ctx.scope
    asked = session.options.balance or scope.kind == "point"  # a Jacobian at a point is nothing to be optimised
    if not session.exact or not asked or session.trace.draws:
        return plain
    if any(step.trouble or step.random is not None for step in session.trace.steps) or not _is_followed(parts):
        return plain
    if scope.kind == "point":
        return at_points(session, parts, plain)
    if session.trace.path_dependent or session.options.mode == "train":
        return plain
    return in_scope(session, parts, plain)


def _is_followed(parts: Composition) -> bool:
    """Whether each step has a bound, or is smooth and lacks one only because what it multiplies is not bounded."""
    for step in parts.trace.steps:
        rule = parts.rules[step.index]
        for out in step.outputs:
            transfer = parts.transfers[out.index]
            bounded = all(bool((g.log < INF).all()) for g in transfer.gains)
            if transfer.unknown or rule is None or not (bounded or rule.id in SMOOTH_PRODUCTS):
                return False
    return True


def at_points(session: Session, parts: Composition, plain: Headline) -> Headline:
    """Jacobians at the samples: proved one by one where all of that fits the budget, else as autograd computes them."""
    budget, most = spending_of(session).seconds, SPENDINGS["long"].seconds
    proving = (PROBES * (len(session.trace.steps) / 4 + 4) + network_of(session).outputs) * one_run(session)
    wide = network_of(session).outputs > MOST_OUTPUTS
    why = (
        TOO_WIDE
        if wide
        else "a proof takes more work than "
        + (
            "effort=long allows"
            if proving > most
            else f"effort={session.options.effort} allows; effort=long may give one"
        )
    )
    if proving <= budget and not wide:
        proved = _swept_samples(session, parts, plain, 0.0)
        if proved is not None:
            return dataclasses.replace(proved, method=JACOBIAN)
        why = session.cache[WHY_NOT]
    found = session.once(("jacobians", budget), lambda: _computed(session, budget))
    if found is None or len(found.norms) != len(plain.log_upper):
        return plain
    kinked = on_kink(parts)
    seen = torch.where(kinked, INF, found.norms)
    logs = torch.tensor([log_outward(float(n)) if math.isfinite(n) else INF for n in seen], dtype=torch.float64)
    lowest = torch.minimum(logs, plain.log_upper)
    least = torch.minimum(torch.where(kinked, 0.0, found.least).log(), lowest)
    if not float(lowest.max()) < plain.total:
        return dataclasses.replace(plain, log_lower=least)
    known = bool((logs <= plain.log_upper).any())
    notes = [f"the Jacobian's norm is computed in float64, not proved: {why}"] if known else []
    if found.wide > 0.02:
        narrower = "" if budget >= most else "; effort=long would narrow it"
        notes.append(f"the Jacobian's norm is known to {format_above(100 * math.expm1(found.wide))} %{narrower}")
    evidence = Evidence.COMPUTED if known else None
    return Headline(lowest, JACOBIAN, evidence, found.chance, tuple(notes), (), found.steepest, least)


def _computed(session: Session, budget: float) -> JacobianNorms | None:
    if any(step.kind.strip("_") in ("detach", "data") for step in session.trace.steps):
        return None
    try:
        return jacobian_norms(network_of(session), budget, seed_of(session), spending_of(session).lanczos)
    except (RuntimeError, TypeError, ValueError, AttributeError):  # autograd refuses what overwrites its inputs
        return None


def in_scope(session: Session, parts: Composition, plain: Headline) -> Headline:
    """The bound over open units in a ball around every sample, or anywhere; in a ball no larger than anywhere."""
    if session.options.effort == "quick":
        return plain
    if parts.ctx.scope.kind == "global":
        return session.once(ALL_INPUTS, lambda: everywhere(session, parts, plain))
    found, work = plain, _sweep_seconds(session)
    if work <= spending_of(session).seconds:
        found = _swept_samples(session, session.composed(Scope.parse("point")), plain, parts.ctx.scope.radius) or plain
    if ALL_INPUTS in session.cache or (found is plain and _is_small(session)):
        other = _everywhere_known(session)
        if other.method != BALANCED and other.total < found.total:  # its own rows are kept: it holds in every ball
            return dataclasses.replace(other, log_upper=plain.log_upper.clamp_max(other.total), method=EVERYWHERE)
    more = found is plain and session.options.effort == "default" and work <= SPENDINGS["long"].seconds
    return dataclasses.replace(plain, notes=(MORE,)) if more else found


def _sweep_seconds(session: Session) -> float:
    """Seconds of counted work of all tangents of all samples."""
    inputs = session.trace.measured.numel() // (1 if session.together else session.samples)
    return inputs * one_run(session)


def _is_small(session: Session) -> bool:
    """Whether all units together may have multipliers: then a bound over all inputs costs little."""
    known = spending_of(session)
    return _sweep_seconds(session) / session.samples <= known.seconds and open_entries(session) <= known.units


def everywhere(session: Session, parts: Composition, plain: Headline) -> Headline:
    """The bound over all inputs: multipliers for all units where they are few, else the loop transformation.

    One sample stands for all if its network is theirs; else each is asked, and the steepest network counts.
    """
    found, one = None, is_one_map(session)
    if _is_small(session) and (one or _sweep_seconds(session) <= spending_of(session).seconds):
        found = _swept_samples(session, session.composed(Scope.parse("point")), plain, INF)
    return found or _looped(session, parts, plain) or plain


def _everywhere_known(session: Session) -> Headline:
    """The same, read before or now."""
    parts = session.composed(Scope.parse("global"))
    return session.once(ALL_INPUTS, lambda: everywhere(session, parts, Headline(session.bounds(parts)[1].log_upper)))


def _looped(session: Session, parts: Composition, plain: Headline) -> Headline | None:
    """The bound over all inputs of a network too large for multipliers, by one weighted norm (`instrument.loop`)."""
    try:
        found = loop_bound(
            session, parts, Balanced(plain.log_upper), spending_of(session).loop, given_multipliers(session, INF, 0)
        )
    except FAILURES:
        return None
    if found is None or not found.total < plain.total:
        return None
    kept = kept_multipliers({0: found.weights.tolist()})
    return Headline(plain.log_upper.clamp_max(found.total), LOOP, multipliers=kept)


def given_multipliers(session: Session, radius: float, sample: int) -> Tensor | None:
    """Logs of the multipliers that a bound is to be proved with; None where they are looked for."""
    given = session.options.multipliers.get(radius)
    return None if given is None else torch.tensor(given.get(sample, ()), dtype=torch.float64)


def _swept_samples(session: Session, parts: Composition, plain: Headline, radius: float) -> Headline | None:
    """The bound of every sample, and for all inputs the largest of them; None where the network is not followed.

    For all inputs the first sample is enough where all have one network.
    """
    everywhere = math.isinf(radius)
    samples = 1 if session.together or (everywhere and is_one_map(session)) else session.samples
    chance, tops, lows = 0.0, list[float](), list[float]()
    used: dict[int, list[float]] = {}
    spending = spending_of(session)
    first = swept_sample(session, parts, 0, radius, spending.rows)
    if first is None:
        return None
    session.cache[WHY_NOT] = NOT_BELOW
    tune = samples == 1 or not TUNED * spending.seconds < samples * DESCENT_STEP * first.work <= spending.seconds
    for sample in range(samples):
        given = given_multipliers(session, radius, sample)
        swept = swept_sample(session, parts, sample, radius, spending.rows, tune) if sample or not tune else first
        if swept is not None and not tune and given is not None and len(given) != len(swept.logs):
            swept = swept_sample(session, parts, sample, radius, spending.rows)  # of a file that was tuned
        if swept is None:
            return None
        if given is None and samples * DESCENT_STEP * swept.work > spending.seconds:
            session.cache[WHY_NOT] = TOO_LONG
            return None
        steps = int(min(spending.steps, spending.seconds / step_seconds(swept) / samples))
        if given is None:
            best = swept.improved(spending.gap, max(steps, FEWEST_STEPS))
            bound, used[sample] = best.bound(), best.logs.tolist()
        else:
            bound, used[sample] = bound_again(swept, given), given.tolist()
        tops.append(log_outward(bound) if math.isfinite(bound) else INF)
        lows.append(log_inward(swept.least()) if radius == 0 and math.isfinite(bound) else -INF)
        chance += swept.chance
    found = torch.tensor([max(tops)] if everywhere else tops, dtype=torch.float64)
    logs = torch.minimum(plain.log_upper, found)
    least = torch.minimum(torch.tensor(lows, dtype=torch.float64), logs)
    better = float(logs.max()) < plain.total or (radius == 0 and bool(found[int(logs.argmax())] < INF))
    kept = kept_multipliers(used) if radius else ()
    notes = () if tune else (UNTUNED,)
    known = None if radius else least
    return Headline(logs, OPEN_UNITS, None, chance, notes, kept, log_lower=known) if better else None


def step_seconds(swept: Swept) -> float:
    """Seconds of counted work of one step for better multipliers."""
    rows = len(swept.units.rows)
    if rows > NEWTON:
        return DESCENT_STEP * rows**3
    return NEWTON_STEP * (2 * rows + len(swept.target)) ** 3
