"""`radius`: for each sample a distance within which its prediction cannot change, beside one at which it did."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from normgauge.advice.certified.attack import Attack, AttackPlan
from normgauge.advice.certified.engines import ENGINES
from normgauge.advice.certified.labelled import check_inputs, checked_labels, checked_outputs, split_labels
from normgauge.advice.certified.largest_radius import largest_radius
from normgauge.advice.certified.margin_bounds import MarginBounds
from normgauge.advice.certified.output_rounding import OutputRounding, output_rounding
from normgauge.core.bound import Evidence
from normgauge.core.certified import ALREADY_WRONG, TIED, CertifiedRadii, SampleRadius, judged_radius
from normgauge.core.errors import InputError
from normgauge.core.rounding import size_down, size_up
from normgauge.instrument.fingerprint import digest_beside
from normgauge.instrument.rules import Registry
from normgauge.instrument.session import Options, Progress, Session, opened
from normgauge.instrument.trace import unwrap
from normgauge.instrument.trace.inputs import make_call

ROOT2 = size_up(math.sqrt(2.0))
SMALL = 0.1  # of a margin: the rounding that may be taken off it before it is measured instead of enclosed
NO_BOUND = 'no bound is proved around this sample; ng.gauge(model, batch, scope="global") names the part without one'
TOO_CLOSE = "the margin is not larger than what rounding may hide"


def radius(
    model: nn.Module,
    batch: Any,
    labels: Any = None,
    *,
    restarts: int = 4,
    steps: int = 40,
    seed: int = 0,
    input: str | None = None,
    output: str | None = None,
    rules: Registry | None = None,
    progress: Progress | None = None,
    effort: str = "default",
) -> CertifiedRadii:
    """Certify how far each sample may be moved, in l2 length, before its prediction could change; and attack it.

    m_i(x) = f_y(x) − f_i(x), less the rounding of f: the class y stays within r if m_i > L_i(r)·r for every i ≠ y,
    where L_i(r) bounds the slope of f_y − f_i on the ball. What is certified is the network in eval mode, with the
    weights as stored and exact arithmetic; the model is left as it was.

    Args:
        model: any network with one output a class, (samples, classes).
        batch: as for `gauge`; or a pair (inputs, labels).
        labels: one class number a sample. A sample that is wrong already has radius 0. Without labels a radius is
            about the class the network names itself.
        restarts: descents of the attack from each sample; 0 for no attack.
        steps: of each descent.
        seed: of the attack's random starts.
        input: as for `gauge`, like the rest.
        output: the measured output.
        rules: a registry.
        progress: called with a stage and the fraction of it done.
        effort: ``quick``, ``default`` or ``long``: how many radii are tried, and how many units may be open in a ball.

    Returns:
        One radius a sample, with the accuracy that is verified and that an attack leaves, at any radius.

    Raises:
        InputError: for a model, batch, labels or option that cannot be taken.
    """
    if restarts < 0 or steps < 1 or seed < 0:
        raise InputError(f"expected restarts and seed from 0 and steps from 1 on, got {restarts}, {seed} and {steps}")
    begun = time.process_time()
    batch, labels = split_labels(batch, labels)
    check_inputs(make_call(unwrap(model), batch, input))
    options = Options(
        search=False, input=input, output=output, rules=rules, progress=progress, pictures=False, effort=effort
    )
    plan = AttackPlan(restarts, steps, seed)
    with digest_beside(unwrap(model)) as weights:
        with opened(model, batch, options) as session:
            found = certify(session, labels, plan)
        digest = weights()
    return dataclasses.replace(found, weights=digest, seconds=time.process_time() - begun)


def certify(session: Session, labels: Any, plan: AttackPlan) -> CertifiedRadii:
    """Radii and attacks of a traced network."""
    outputs = checked_outputs(session)
    given = checked_labels(labels, *outputs.shape)
    wanted = outputs.argmax(1) if given is None else given.to(outputs.device)
    rounding = output_rounding(session)
    gaps = (outputs.gather(1, wanted[:, None]) - outputs).scatter(1, wanted[:, None], math.inf).cpu()
    away, trouble = attacked_distances(session, wanted, rounding, plan)
    engines = [make(session) for make in ENGINES]
    samples = []
    for i, gap in enumerate(gaps):
        if session.options.progress is not None:
            session.options.progress("radii", i / len(gaps))
        case = Case(i, None if given is None else int(given[i]), int(outputs[i].argmax()), gap, away[i])
        samples.append(certified_sample(case, int(wanted[i]), session, rounding, engines))
    return CertifiedRadii(
        model=type(session.model).__name__,
        classes=outputs.shape[1],
        samples=tuple(samples),
        failure_probability=session.failure_probability,
        attack=dataclasses.asdict(plan) if plan.restarts else {},
        notes=(*session.call.notes, *session.trace.notes, *session.size_notes, *trouble),
    )


@dataclass(frozen=True, slots=True)
class Case:
    """One sample: its margins to every class, inf to its own, and the distance of the attack that succeeded."""

    index: int
    label: int | None
    predicted: int
    gaps: Tensor
    attacked: float | None


def certified_sample(
    case: Case, target: int, session: Session, rounding: OutputRounding, engines: list[MarginBounds]
) -> SampleRadius:
    """The largest radius that any engine certifies, held against the attack."""
    margin = float(case.gaps.min())
    lost, proved = usable_rounding(rounding, case.index, margin)
    known: dict[str, Any] = {name: getattr(case, name) for name in ("index", "label", "predicted", "attacked")}
    known |= {"margin": margin, "rounding": lost, "method": ""}
    if case.label not in (None, case.predicted) or margin <= 0:
        reason = TIED if margin == 0 else ALREADY_WRONG
        return SampleRadius(**{**known, "attacked": None}, radius=0.0, evidence=Evidence.PROVED, reason=reason)
    room = size_down(size_down(case.gaps) - size_up(ROOT2 * lost))
    if not bool((room > 0).all()):
        return SampleRadius(**known, radius=0.0, evidence=Evidence.UNKNOWN, reason=TOO_CLOSE)
    best = 0.0
    for engine in engines:
        found = largest_radius(engine, case.index, target, room, best, case.attacked)
        if found > best:
            best, known["method"] = found, engine.name
    if not best:
        return SampleRadius(**known, radius=0.0, evidence=Evidence.UNKNOWN, reason=NO_BOUND)
    evidence = Evidence.ESTIMATED if not session.exact else Evidence.PROVED if proved else Evidence.COMPUTED
    return judged_radius(best, **known, evidence=evidence)


def usable_rounding(rounding: OutputRounding, sample: int, margin: float) -> tuple[float, bool]:
    """The rounding to take off a margin, and whether it is enclosed: where that leaves too little, it is measured."""
    proved = float(rounding.proved[sample])
    if proved <= SMALL * abs(margin) or proved <= rounding.measured:
        return proved, True
    return rounding.measured, False


def attacked_distances(
    session: Session, wanted: Tensor, rounding: OutputRounding, plan: AttackPlan
) -> tuple[list[float | None], list[str]]:
    """The length of the smallest change found that changes each sample's class, and why there was no attack, if so."""
    source, inner = session.trace.measured.detach(), session.function()
    slack = 2 * ROOT2 * rounding.proved.clamp_max(rounding.measured)
    attack = Attack(lambda x: inner(x.to(source.dtype)).double(), source.double(), wanted, slack)
    trouble = []
    try:
        with warnings.catch_warnings():  # the model's own were seen when it was traced
            warnings.simplefilter("ignore")
            if plan.restarts:
                attack.run(plan)
    except (RuntimeError, TypeError, ValueError, InputError) as error:  # autograd refuses some networks
        trouble.append(f"the attack ended early: {str(error).partition(chr(10))[0]}")
    return [length if math.isfinite(length) else None for length in attack.distance.tolist()], trouble
