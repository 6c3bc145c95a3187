"""One network through everything; the summary of many."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch

from normgauge.core.bound import Scope
from normgauge.core.reading import Reading
from normgauge.instrument.balance.bounds import _certified as certified
from normgauge.instrument.balance.ties import tie_weights
from normgauge.instrument.balance.weighted import Weighting
from normgauge.instrument.compose import Composition
from normgauge.instrument.measure import readings
from normgauge.instrument.rules import REGISTRY, Registry
from normgauge.instrument.session import Options, Session, start
from normgauge.instrument.testing.audit import BrokenFact, facts_broken, jacobians_broken, steps_broken
from normgauge.instrument.trace import untouched
from normgauge.instrument.trace.inputs import make_call
from normgauge.instrument.trace.step import Trace
from tests.fuzz.attack import inside, per_sample_slopes, steepest, wander
from tests.fuzz.nets import Case, make_case

SLACK = 1e-9
FLOOR = 1e-10  # slopes below are rounding: an output that does not move still wobbles


@dataclass
class Outcome:
    seed: int
    rules: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    finite: dict[str, bool] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    slopes: dict[str, float] = field(default_factory=dict)  # the steepest found, by scope
    tightest: float = 0.0  # largest found/bound
    seconds: float = 0.0
    what: str = ""  # the network, in words, where something was broken


def fuzz_one(seed: int, registry: Registry = REGISTRY, balance: bool = True, effort: int = 8) -> Outcome:
    """Measure, audit and attack one random network."""
    begun = time.process_time()
    outcome = Outcome(seed)
    case = make_case(seed)
    scopes = ["global", f"ball:{case.radius:g}", "point"]
    rng = Random(seed)
    weighed, searched = rng.choice(scopes), rng.choice(scopes)  # what costs most is done in one scope of each network
    found: list[Reading] = []
    for weigh in (False, True):
        some = [scope for scope in scopes if weigh == (balance and scope == weighed)]
        if some:
            case.rewind()
            options: dict[str, Any] = {"mode": case.mode, "search": False, "rules": registry, "balance": weigh}
            found.extend(readings(case.model, case.batch, some, **options))
    for reading in found:
        judge(case, reading, outcome, effort if str(reading.scope) == searched else 0)
    inspect(case, registry, outcome, found)
    outcome.seconds = time.process_time() - begun
    return outcome


def judge(case: Case, reading: Reading, outcome: Outcome, effort: int) -> None:
    """The reading against itself and against slopes that were found."""
    kind = reading.scope.kind
    outcome.finite[kind] = math.isfinite(reading.log_upper)
    outcome.unknown += [f"{f.name}: {f.why}" for f in reading.unknown if f"{f.name}: {f.why}" not in outcome.unknown]
    if reading.log_upper > reading.log_folded + SLACK:
        outcome.broken.append(f"{kind}: balanced {reading.log_upper} above folded {reading.log_folded}")
    if reading.log_lower > reading.log_upper + SLACK:
        outcome.broken.append(f"{kind}: lower {reading.log_lower} above upper {reading.log_upper} (natural logs)")
    for row in reading.layers:
        if row.gain.lo > row.gain.hi:
            outcome.broken.append(f"{kind}: {row.name} has a gain from {row.gain.lo} to {row.gain.hi}")
    if not math.isfinite(reading.log_upper) and reading.log_upper > 0:
        return
    together = len(case.start) == 1 or kind == "global" or reading.together
    radius = {"global": math.inf, "point": 0.0}.get(kind, case.radius)
    upper = math.exp(min(reading.log_upper, 700.0))
    if upper == 0:  # a constant: autograd's Jacobian is amplified rounding, and `inspect` looks at the values
        return
    slope, where = steepest(case, radius, together, effort, upper * (1 + SLACK) + FLOOR)
    outcome.slopes[str(reading.scope)] = slope
    if slope > upper * (1 + SLACK) + FLOOR:
        outcome.broken.append(f"{reading.scope}: bound {upper:.12g}, found {slope:.12g}: {where}")
    outcome.tightest = max(outcome.tightest, slope / upper)
    if kind == "point" and not together and len(reading.samples) == len(case.start):
        for i, (got, row) in enumerate(zip(per_sample_slopes(case, case.start), by_index(reading), strict=False)):
            if got > 10 ** min(row, 300.0) * (1 + 1e-8) + FLOOR:
                outcome.broken.append(f"point: sample {i} bound 10^{row:.6f}, found {got:.12g}")
    if reading.displacement is not None:
        displaced(case, reading, together, outcome)


NOT_COVERED = ("as_strided", "a variance", "nothing but padding", "does not replay", "ceil_mode")
"""Reasons for which an operation of the generator may have no rule; anything else unknown is a hole."""


def uncovered(outcome: Outcome) -> list[str]:
    """Operations that should have had a rule."""
    return [text for text in outcome.unknown if not any(reason in text for reason in NOT_COVERED)]


def by_index(reading: Reading) -> list[float]:
    """Upper bounds of the samples in their order."""
    return [float(s["log10_upper"]) for s in sorted(reading.samples, key=lambda s: s["index"])]


def displaced(case: Case, reading: Reading, together: bool, outcome: Outcome) -> None:
    """No output in the ball may be farther from the centre's than the reading says."""
    assert reading.displacement is not None
    most = math.exp(min(reading.displacement, 700.0))
    with torch.no_grad():
        centre = case.function(case.start)
        for x in wander(case, case.radius, True, torch.Generator().manual_seed(case.seed + 1)):
            gap = float((case.function(x) - centre).norm())
            root = 1.0 if together else math.sqrt(len(case.start))
            if gap > most * root * (1 + SLACK) + 1e-9 * float(1 + centre.norm()):
                outcome.broken.append(
                    f"{reading.scope}: the output moved by {gap:.12g}, at most {most:.12g} was promised"
                )


def inspect(case: Case, registry: Registry, outcome: Outcome, found: list[Reading]) -> None:
    """Audit every step in the global scope and in the ball; the plain product must not be below the folded bound."""
    call = make_call(case.model, case.batch)

    def traced(x: torch.Tensor, balance: bool = True) -> Session:
        options = Options(mode=case.mode, rules=registry, search=False, balance=balance)
        case.rewind()
        use = make_call(case.body, x) if x is not case.batch else call
        model = case.body if x is not case.batch else case.model
        session = start(model, use, torch.float64, torch.device("cpu"), options)
        assert session is not None
        return session

    with untouched(case.model, torch.float64, torch.device("cpu"), case.mode == "train", case.start.dtype):
        centres = {balance: traced(case.start, balance) for balance in {r.options["balance"] for r in found}}
        centre = next(iter(centres.values()))
        for step in centre.trace.steps:
            rule = registry.lookup(step.target)
            outcome.rules[rule.id if rule else "none"] += 1
            outcome.kinds[step.kind] += 1
        for reading in found:
            scope = Scope.parse(str(reading.scope))
            parts = centres[reading.options["balance"]].composed(scope)
            plain = float(parts.log_upper.max())
            if reading.log_folded > plain + SLACK:
                outcome.broken.append(f"{scope}: folded {reading.log_folded} above plain {plain}")
            outcome.broken += sorted({f"{scope}: {text}" for text in misweighed(parts, outcome.slopes, case.seed)})
            if scope.kind == "point":
                continue
            outcome.broken += dict.fromkeys(f"{scope}: {text}" for text in audited(case, parts, traced, scope))


def misweighed(parts: Composition, slopes: dict[str, float], seed: int) -> Iterator[str]:
    """Every choice of channel weights must give a bound, not only the best one: try some at random."""
    slope = slopes.get(str(parts.ctx.scope))
    if slope is None or not math.isfinite(float(parts.log_upper.max())):
        return
    weighting = Weighting(parts, tie_weights(parts))
    generator = torch.Generator().manual_seed(seed)
    for size in (0.3, 2.0):
        theta = size * torch.randn(weighting.free, dtype=torch.float64, generator=generator)
        upper = math.exp(min(certified(weighting, theta).total, 700.0))
        if slope > upper * (1 + SLACK) + FLOOR:
            yield f"random channel weights of size {size} give {upper:.12g}, found {slope:.12g}"


def only_rounding(there: Trace, beside: Trace) -> Iterator[int]:
    """Steps whose inputs or outputs a shake of a few ε moves by more than a millionth of their size."""
    for a, b in zip(there.steps, beside.steps, strict=False):
        for v, w in zip((*a.inputs, *a.outputs), (*b.inputs, *b.outputs), strict=False):
            if v.tensor.shape == w.tensor.shape and v.tensor.is_floating_point():
                moved, size = float((v.tensor - w.tensor).norm()), float(v.tensor.norm())
                if moved > 1e-6 * size:
                    yield a.index


def audited(case: Case, parts: Composition, traced: Any, scope: Scope) -> list[str]:
    together = parts.ctx.samples == 1
    generator = torch.Generator().manual_seed(case.seed + 2)
    points = list(wander(case, scope.radius, together, generator))
    if scope.kind == "ball":  # small steps show the slope at a point
        points.append(
            inside(
                case,
                points[0] + 1e-4 * scope.radius * torch.randn(points[0].shape, generator=generator),
                scope.radius,
                together,
            )
        )
    else:
        points.append(points[0] + 1e-4 * torch.randn(points[0].shape, generator=generator))
    traces = [traced(p).trace for p in points]
    if any(len(t.steps) != len(parts.trace.steps) for t in traces):
        return []  # Python control flow took another branch
    broken: list[BrokenFact] = [*jacobians_broken(parts, traces[0])]
    for t in traces:
        broken += facts_broken(parts, t)
        broken += steps_broken(parts, parts.trace, t)
    broken += steps_broken(parts, traces[0], traces[-1])
    if broken:  # a normalizer of a constant gives rounding, magnified: nothing behind it says anything
        shakes = [p * (1 + 1e-15 * torch.randn(p.shape, dtype=p.dtype, generator=generator)) for p in points]
        blurred = {i for t, shake in zip(traces, shakes, strict=True) for i in only_rounding(t, traced(shake).trace)}
        broken = [found for found in broken if found.step not in blurred]
    return [found.text for found in sorted(broken)]
