"""`check_rule`: the contract every rule must meet, for the library's own rules and for anybody else's.

    check_rule(lambda: nn.LayerNorm(5), (3, 5))                       # a module
    check_rule(F.softplus, (2, 4))                                    # a function of one tensor
    check_rule(MyLayer, (2, 4), rules=REGISTRY.extended({MyLayer: my_rule}), attained=0.99)

A network of that one layer is measured in every scope, with the balanced bound and without. Then, in float64 and at
points of the scope, some of them found by gradient steps, every fact that the rule of any step states must hold:
norm, low, high, row, radius, the samples' axis, a gain for each input, disjoint (`audit`). Dense Jacobian norms and
secant slopes of the whole must stay below the bound, and outputs of the ball within the displacement promised. A worked
formula must end with the gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from normgauge.core.bound import Evidence, Scope
from normgauge.core.reading import Reading
from normgauge.instrument.compose import Composition, compose
from normgauge.instrument.measure import measured
from normgauge.instrument.rules import Context, Registry
from normgauge.instrument.rules.flow import SamplesMixed
from normgauge.instrument.rules.worked import stated_gain
from normgauge.instrument.session import Options, Session, opened
from normgauge.instrument.testing.audit import BrokenFact, facts_broken, jacobians_broken, steps_broken
from normgauge.instrument.testing.bench import (
    ROUNDING,
    Bench,
    OneStep,
    is_factory,
    jacobian_norm,
    make_bench,
    probe_points,
    secant,
    uphill,
)
from normgauge.instrument.trace.untouched import untouched

SLACK = 1e-9
PRINTED = 1e-3  # relative room for a number that was rounded to be read
DENSE = range(3)  # the points at which every step's own Jacobian is taken, besides the steepest found
Points = list[tuple[str, Tensor]]


def check_rule(
    target: Callable[..., Any],
    inputs: Tensor | Sequence[int],
    *,
    rules: Registry | None = None,
    scopes: Sequence[str] = ("global", "ball:0.1", "point"),
    attained: float | bool = False,
    seed: int = 0,
    mode: str = "eval",
    unknown: bool = False,
) -> dict[str, float]:
    """Test every fact a rule states against dense Jacobians, secants, values and displacements.

    Args:
        target: a module, a class or factory of modules without arguments, or a function of one tensor.
        inputs: the batch, or its shape.
        rules: the registry that holds the rule; normgauge's own without it.
        scopes: where to test.
        attained: the part of the bound that must be found somewhere (True: 0.999) in each scope with a finite bound.
        seed: of weights, inputs and points.
        mode: eval or train.
        unknown: whether an infinite bound for want of a rule is accepted.

    Returns:
        The largest slope found as a part of the bound, by scope (0 where the bound is infinite).

    Raises:
        AssertionError: saying what was expected, what was found, in which scope and at which point.
        RuleError: when a rule of the user's raises an error of its own.
    """
    bench, options = make_bench(target, inputs, mode, seed), Options(mode, search=False, rules=rules, effort="quick")
    bench.rewind()
    with opened(bench.model, bench.x, options) as session:
        tried = [_audited(bench, Scope.parse(scope), session) for scope in scopes]
    bench.rewind()
    shares: dict[str, float] = {}
    for scope, points, reading in zip(scopes, tried, measured(bench.model, bench.x, scopes, options), strict=True):
        _consistent(reading, unknown)
        with untouched(bench.model, torch.float64, bench.x.device, mode == "train", bench.x.dtype):
            shares[scope] = _attacked(bench, reading, points)
    least = 0.999 if attained is True else float(attained)
    for scope, share in shares.items():
        if 0 < share < least:
            raise AssertionError(f"{scope}: expected a slope of at least {least} of the bound, found {share:.6f} of it")
    return shares


def _audited(bench: Bench, scope: Scope, session: Session) -> Points:
    """The points that were tried, if no step breaks a fact at any of them.

    Raises:
        AssertionError: naming the first step that does, its rule and the fact.
    """
    tried = [*probe_points(bench, scope), *uphill(bench, scope)]
    parts = _as_stated(session, scope)
    here = parts.trace
    for count, (name, x) in enumerate(tried):
        bench.rewind()
        there = session.retrace(x)
        if [step.target for step in there.steps] != [step.target for step in here.steps]:
            continue  # Python control flow took another path
        broken: list[BrokenFact] = [*facts_broken(parts, there)]
        if count in DENSE or x is tried[-1][1]:
            broken += jacobians_broken(parts, there)
        if scope.kind != "point":
            broken += steps_broken(parts, here, there)
        if broken:
            raise AssertionError(f"{scope}: {min(broken).text}, at {name}\n{x}")
    return tried


def _as_stated(session: Session, scope: Scope) -> Composition:
    """The composition as the rules state it, uncorrected: sample by sample unless one says that samples mix."""
    options = session.options
    if scope.kind != "global" and session.samples > 1:
        ctx = Context(scope, session.samples, options.width, {}, options.mode == "train", session.native)
        with suppress(SamplesMixed):
            return compose(session.trace, options.registry, ctx)
    return session.composed(scope)


def _consistent(reading: Reading, unknown: bool) -> None:
    """Check that the reading agrees with itself and that every worked formula ends with its layer's gain.

    Raises:
        AssertionError: when it does not.
    """
    if reading.unknown and not unknown:
        what = "; ".join(f"{f.name}: {f.why}" for f in reading.unknown)
        raise AssertionError(f"{reading.scope}: expected a rule that covers this use, got {what}")
    if reading.evidence is Evidence.REFUTED or reading.log_lower > reading.log_upper + SLACK:
        raise AssertionError(
            f"{reading.scope}: lower {reading.log_lower} above upper {reading.log_upper} (natural logs)"
        )
    if reading.log_upper > reading.log_folded + SLACK:
        raise AssertionError(
            f"{reading.scope}: expected balancing to lower {reading.log_folded}, got {reading.log_upper}"
        )
    for row in reading.layers:
        if row.gain.lo > row.gain.hi + SLACK:
            raise AssertionError(f"{reading.scope}: {row.name} has a gain from {row.gain.lo} to {row.gain.hi}")
        said = stated_gain(row.worked)
        if row.worked and said is None:
            raise AssertionError(
                f"{row.name}: expected a text that ends with '= number' or 'in [a, b]', got {row.worked!r}"
            )
        if said is not None and said.hi != row.gain.hi and not abs(said.hi - row.gain.hi) <= PRINTED:
            raise AssertionError(f"{reading.scope}: expected the gain {math.exp(row.gain.hi):.5g}, got {row.worked!r}")


def _attacked(bench: Bench, reading: Reading, tried: Points) -> float:
    """The largest slope found in the scope, as a part of the bound.

    Raises:
        AssertionError: when it is more than all of it, or an output moves farther than the reading says.
    """
    scope, upper = reading.scope, math.exp(min(reading.log_upper, 700.0))
    if math.isinf(reading.log_upper) and reading.log_upper > 0:
        return 0.0
    best = 0.0
    for name, x in tried:
        slope, direction = jacobian_norm(bench.function, x)
        found = [(slope, f"the Jacobian at {name}")]
        if scope.kind != "point":
            reach = 1e-3 if scope.kind == "global" else 4e-4 * scope.radius
            found.append((secant(bench, x, x + reach * direction), f"a secant from {name}"))
            found.append((secant(bench, bench.x, x), f"the secant from the centre to {name}"))
        for value, where in found:
            if value > upper * (1 + SLACK) + ROUNDING:
                raise AssertionError(f"{scope}: expected slopes up to {upper:.12g}, got {value:.12g}: {where}\n{x}")
            best = max(best, value)
        if scope.kind == "ball" and reading.displacement is not None:
            with torch.no_grad():
                moved = float((bench.function(x) - bench.function(bench.x)).norm())
            most = math.exp(min(reading.displacement, 700.0))
            if moved > most * (1 + SLACK) + ROUNDING:
                raise AssertionError(
                    f"{scope}: expected the output to move by {most:.12g}, got {moved:.12g} at {name}\n{x}"
                )
    return best / upper if upper > 0 else 1.0


__all__ = ["OneStep", "check_rule", "is_factory"]
