"""The number to quote in a scope: the best of all bounds, with the method that gave it and how it is known.

point    the Jacobian's norm: proved where the rounding of values and tangents can be carried, else computed
ball     the bound over open units (`sweep`), or the balanced one
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
from normgauge.core.rounding import log_outward
from normgauge.instrument.balance import Balanced
from normgauge.instrument.compose import Composition
from normgauge.instrument.local.amplify import PROBES
from normgauge.instrument.local.jacobians import JacobianNorms, jacobian_norms
from normgauge.instrument.local.journey import swept_ball
from normgauge.instrument.local.pieces import NotCarried
from normgauge.instrument.local.recheck import level_again
from normgauge.instrument.local.standing import on_kink
from normgauge.instrument.local.sweep import MOST_OPEN
from normgauge.instrument.local.swept import NEWTON, Swept
from normgauge.instrument.loop import LoopEffort, loop_bound
from normgauge.instrument.probe.linearize import SampleMap
from normgauge.instrument.session import Session
from normgauge.instrument.spectral.random_start import weight_seed
from normgauge.instrument.trace.again import tensors_alike
from normgauge.instrument.trace.step import Trace

INF = math.inf
BUDGETS = {"quick": 1.0, "default": 10.0, "long": 600.0}
"""Seconds of counted work that a scope may take beyond the balanced bound."""

GAPS = {"quick": 1e-2, "default": 1e-3, "long": 1e-4}
STEPS = {"quick": 30, "default": 60, "long": 150}
UNITS = {"quick": 64, "default": 320, "long": 1200}
"""Most open units in the scope global, where all are open."""

SMOOTH_PRODUCTS = ("attention.attention", "projection.matmul", "projection.einsum", "combine.multiply", "softmax.glu")
BENT = ("activation.", "norm_layer.", "pooling.max", "recognise.")
ROWS = {"quick": 100, "default": 700, "long": MOST_OPEN}
"""Most directions of open units in a ball."""

NEWTON_STEP, DESCENT_STEP = 6e-10, 2e-10  # seconds of a step of order 1, by the cube
FEWEST_STEPS = 6  # are always made

LOOP_STEPS, LOOP_WORK = {"default": 200, "long": 400}, {"default": 1e8, "long": 1e9}
"""Steps of the loop transformation's descent, and multiplications of one sample's way up to which it is tried."""

FAILURES = (RuntimeError, MemoryError)  # an eigenvalue that does not converge, memory that is full: no better bound
DIGESTED = 2**16  # entries of each weight that a seed is made of
LANCZOS = {"quick": 8, "default": 16, "long": 32}
"""Steps towards a Jacobian's norm that are made whatever they cost: eight give it to a half, sixteen to a tenth."""

MORE = "effort='long' would look for a smaller bound in this ball"
BALANCED, JACOBIAN, OPEN_UNITS, LOOP = "balanced", "jacobian", "open units", "loop"


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
    """

    log_upper: Tensor
    method: str = BALANCED
    evidence: Evidence | None = None
    chance: float = 0.0
    notes: tuple[str, ...] = ()
    multipliers: tuple[Multipliers, ...] = ()

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


def effort_of(session: Session) -> str:
    """How much work is wanted."""
    return session.options.effort


def one_run(session: Session) -> float:
    """Seconds of counted work of one run of the network on all samples."""
    return max(network_of(session).work.seconds, 1e-6)


def network_of(session: Session) -> SampleMap:
    """The network as a map of samples, its work counted."""

    def made() -> SampleMap:
        axis = session.composed(Scope.parse("point")).flows[session.trace.end.index].axis
        return SampleMap(session.function(), session.trace.measured, 1 if session.together else session.samples, axis)

    return session.once("sample map", made)


def seed_of(session: Session) -> int:
    """A seed that follows from the weights: what has a chance holds for weights not chosen against it."""

    def made() -> int:
        seed = weight_seed(session.trace.sources[0].tensor)
        for tensor in session.model.state_dict().values():
            if tensor.layout == torch.strided and tensor.device.type != "meta":
                flat = tensor.detach().reshape(-1)[:DIGESTED]
                few = (torch.view_as_real(flat) if flat.is_complex() else flat).to(torch.float64)  # however it is held
                seed = (seed * 1_000_003 ^ weight_seed(few)) % 2**55
        return seed

    return session.once("seed", made)


def at_points(session: Session, parts: Composition, plain: Headline) -> Headline:
    """Jacobians at the samples: proved one by one where all of that fits the budget, else as autograd computes them."""
    budget = BUDGETS[effort_of(session)]
    proving = (PROBES * (len(session.trace.steps) / 4 + 4) + network_of(session).outputs) * one_run(session)
    if proving <= budget:
        proved = _swept_samples(session, parts, plain, 0.0)
        if proved is not None:
            return dataclasses.replace(proved, method=JACOBIAN)
    found = session.once(("jacobians", budget), lambda: _computed(session, budget))
    if found is None or len(found.norms) != len(plain.log_upper):
        return plain
    seen = torch.where(on_kink(parts), INF, found.norms)
    logs = torch.tensor([log_outward(float(n)) if math.isfinite(n) else INF for n in seen], dtype=torch.float64)
    if not float(torch.minimum(logs, plain.log_upper).max()) < plain.total:
        return plain
    lowest = torch.minimum(logs, plain.log_upper)
    known = bool((logs <= plain.log_upper).any())
    notes = (f"the Jacobian's norm is known to {math.expm1(found.wide):.0%}; more effort would narrow it",)
    return Headline(
        lowest, JACOBIAN, Evidence.COMPUTED if known else None, found.chance, notes if found.wide > 0.02 else ()
    )


def _computed(session: Session, budget: float) -> JacobianNorms | None:
    if any(step.kind.strip("_") in ("detach", "data") for step in session.trace.steps):
        return None
    try:
        return jacobian_norms(network_of(session), budget, seed_of(session), LANCZOS[effort_of(session)])
    except (RuntimeError, TypeError, ValueError, AttributeError):  # autograd refuses what overwrites its inputs
        return None


def in_scope(session: Session, parts: Composition, plain: Headline) -> Headline:
    """The bound over open units in a ball around every sample, or anywhere."""
    radius, effort = parts.ctx.scope.radius, effort_of(session)
    if effort == "quick":
        return plain
    inputs = session.trace.measured.numel() // (1 if session.together else session.samples)
    alone = math.isinf(radius)
    work = inputs * one_run(session) / (session.samples if alone else 1)
    found = None
    if work <= BUDGETS[effort] and not (alone and open_entries(session) > UNITS[effort]):
        found = _swept_samples(session, session.composed(Scope.parse("point")), plain, radius)
    if found is None and alone:
        found = _looped(session, parts, plain)
    if found is None and effort == "default" and not alone:
        return dataclasses.replace(plain, notes=(MORE,)) if work <= BUDGETS["long"] else plain
    return plain if found is None else found


def _looped(session: Session, parts: Composition, plain: Headline) -> Headline | None:
    """The bound over all inputs of a network too large for multipliers, by one weighted norm (`instrument.loop`)."""
    effort = effort_of(session)
    known = Balanced(plain.log_upper)
    given = given_multipliers(session, INF, 0)
    try:
        found = loop_bound(session, parts, known, LoopEffort(LOOP_STEPS[effort], most_work=LOOP_WORK[effort]), given)
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


def open_entries(session: Session) -> int:
    """How many numbers of one sample pass through nonlinear steps."""
    rules = session.composed(Scope.parse("point")).rules
    bent = [
        step.outputs[0].tensor.numel()
        for step in session.trace.steps
        if (rule := rules[step.index]) is not None and rule.id.startswith(BENT)
    ]
    return sum(bent) // session.samples


def _swept_samples(session: Session, parts: Composition, plain: Headline, radius: float) -> Headline | None:
    """The bound of every sample, or of the first for all inputs; None where the network is not followed."""
    samples = 1 if session.together or math.isinf(radius) else session.samples
    logs, chance, proved = plain.log_upper.clone(), 0.0, [False] * len(plain.log_upper)
    used: dict[int, list[float]] = {}
    for sample in range(samples):
        swept = swept_sample(session, parts, sample, radius, ROWS[effort_of(session)])
        if swept is None:
            return None
        effort = effort_of(session)
        steps = int(min(STEPS[effort], BUDGETS[effort] / step_seconds(swept) / samples))
        given = given_multipliers(session, radius, sample)
        if given is None and samples * DESCENT_STEP * swept.work > BUDGETS[effort]:
            return None  # many samples of a deep network: more effort would help
        if given is None:
            best = swept.improved(GAPS[effort], max(steps, FEWEST_STEPS))
            bound, used[sample] = best.bound(), best.logs.tolist()
        else:
            bound, used[sample] = bound_again(swept, given), given.tolist()
        proved[sample] = math.isfinite(bound)
        logs[sample] = min(float(logs[sample]), log_outward(bound) if proved[sample] else INF)
        chance += swept.chance
    better = float(logs.max()) < plain.total or (radius == 0 and proved[int(logs.argmax())])
    kept = kept_multipliers(used) if radius else ()
    return Headline(logs, OPEN_UNITS, None, chance, multipliers=kept) if better else None


def bound_again(swept: Swept, given: Tensor) -> float:
    """The bound that given multipliers prove, by two ways that must both allow it; infinite where they do not fit."""
    if len(given) != len(swept.logs):
        return INF
    try:
        bound = dataclasses.replace(swept, logs=given).bound()
        return max(bound, level_again(swept.units, swept.target, given)) if math.isfinite(bound) else INF
    except FAILURES:  # numbers that nobody would look for
        return INF


def step_seconds(swept: Swept) -> float:
    """Seconds of counted work of one step for better multipliers."""
    rows = len(swept.units.rows)
    if rows > NEWTON:
        return DESCENT_STEP * rows**3
    return NEWTON_STEP * (2 * rows + len(swept.target)) ** 3


def swept_sample(
    session: Session, parts: Composition, sample: int, radius: float, most: int = MOST_OPEN
) -> Swept | None:
    """One sample's network over a ball; None where it is not followed."""
    one = session.once(("alone", sample), lambda: alone(session, sample))
    if one is None:
        return None
    try:
        with torch.no_grad():
            return swept_ball(one, parts, sample, radius, session.native, seed_of(session) + sample, most)
    except (NotCarried, *FAILURES):
        return None


def alone(session: Session, sample: int) -> Trace | None:
    """The trace of one sample, with the steps and the output it has in its batch; None where it has others."""
    if session.together or session.samples == 1:
        return session.trace
    whole_input = session.call.measured if session.trace.embeddings else session.trace.sources[0].tensor
    x = whole_input[sample : sample + 1]
    try:
        one = session.retrace(x)
    except Exception:  # a model that needs the whole batch, and says so in its own way
        return None
    same = len(one.steps) == len(session.trace.steps) and all(
        a.target == b.target and a.outputs[0].tensor.numel() * session.samples == b.outputs[0].tensor.numel()
        for a, b in zip(one.steps, session.trace.steps, strict=True)
    )
    if not same or one.output is None:
        return None
    axis = session.composed(Scope.parse("point")).flows[session.trace.end.index].axis
    whole = session.trace.end.tensor
    share = whole.shape[axis] // session.samples
    return one if tensors_alike(one.end.tensor, whole.narrow(axis, sample * share, share)) else None
