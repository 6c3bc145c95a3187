"""What the exit code of `sweep` says: whether trials failed, and whether a bound exceeds the limit of --fail-above."""

from __future__ import annotations

import math
from collections.abc import Sequence

from normgauge.cli.gauge import ABOVE, OK
from normgauge.cli.output import complain, tell_gate
from normgauge.core.bound import Scope
from normgauge.render.numbers import plural, shortened_names
from normgauge.render.sweep import TrialOutcome, settings_words

NAMED = 3
FAILED = 1


def failure_code(outcomes: Sequence[TrialOutcome], strict: bool) -> int:
    """1 where every trial failed; where ``strict``, one that failed or could not be gauged is enough."""
    failed = [outcome.status == "failed" for outcome in outcomes]
    if strict:
        return FAILED if any(failed) or any(outcome.not_gauged for outcome in outcomes) else OK
    return FAILED if failed and all(failed) else OK


def limit_code(outcomes: Sequence[TrialOutcome], scopes: Sequence[str], limit: float) -> int:
    """The exit code of --fail-above, with one line on standard error; no limit is held where a trial has no bound.

    Args:
        outcomes: the trials.
        scopes: those they are gauged in; the widest counts.
        limit: of log10 of the upper bound.

    Returns:
        3 where a bound is above, 1 where none is and one is missing, 0 elsewhere.
    """
    scope = max(scopes, key=lambda name: Scope.parse(name).radius)
    bounds = [(outcome.values.get(f"{scope}.log10_upper"), outcome) for outcome in outcomes]
    known = [(bound, outcome) for bound, outcome in bounds if bound is not None]
    without = [outcome.id for bound, outcome in bounds if bound is None]
    above = sum(bound > limit for bound, _ in known)
    if without and not above:
        lacking = f"{len(without)} of {plural(len(outcomes), 'trial')} {'has' if len(without) == 1 else 'have'}"
        complain(f"no limit is held: {lacking} no upper bound in scope {scope}: {shortened_names(without, NAMED)}")
        return FAILED
    largest, worst = max(known, key=lambda pair: pair[0])
    shown = "infinite" if largest == math.inf else f"10^{largest:.4g}"
    told = f"{above} of {plural(len(outcomes), 'trial')} above 10^{limit:g}; the largest upper bound, scope {scope}, "
    tell_gate("limit", not above, f"{told}is {shown}, of {worst.id} ({settings_words(worst)})")
    return ABOVE if above else OK
