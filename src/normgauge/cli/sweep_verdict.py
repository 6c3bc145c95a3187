"""What the exit code of `sweep` says: whether trials failed, and whether a bound exceeds the limit of --fail-above."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from normgauge.cli.gauge import ABOVE, OK
from normgauge.cli.obstacles import PATH, WHY
from normgauge.core.bound import Scope
from normgauge.core.spelled import LN10, ceil_log10
from normgauge.render.numbers import plural, shortened_names
from normgauge.render.sweep import UPPER, TrialOutcome, known_words, settings_words

NAMED = 3
FAILED = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a sweep ends with.

    Attributes:
        code: the exit code.
        told: sentences that say why.
    """

    code: int
    told: tuple[str, ...] = ()


def judge(
    outcomes: Sequence[TrialOutcome],
    scopes: Sequence[str],
    strict: bool,
    limit: float | None,
    allowed: Sequence[str] = (),
) -> Verdict:
    """The verdict on a sweep.

    Args:
        outcomes: the trials.
        scopes: those they are gauged in; the widest counts.
        strict: as --fail-on-failed asks.
        limit: of log10 of the upper bound, as --fail-above asks; None for none.
        allowed: as --allow says.

    Returns:
        3 where a bound is above the limit, whatever else is wrong. 1 where every trial failed; with a limit, where a
        trial has no bound, or one that is not known to hold off the path traced; where ``strict``, where one failed or
        could not be gauged; with either, where the result of one was made with earlier code, which says nothing about
        that of now.
    """
    parts = [_failures(outcomes, strict)]
    if strict or limit is not None:
        parts.append(_earlier(outcomes))
    if limit is not None:
        parts.append(_limit(outcomes, scopes, limit, allowed))
    return Verdict(max(part.code for part in parts), tuple(line for part in parts for line in part.told))


def _failures(outcomes: Sequence[TrialOutcome], strict: bool) -> Verdict:
    failed = [outcome.id for outcome in outcomes if outcome.status == "failed"]
    lacking = [outcome.id for outcome in outcomes if outcome.not_gauged]
    if not strict:
        every = bool(failed) and len(failed) == len(outcomes)
        return Verdict(FAILED, (f"every trial failed: {_named(failed)}",)) if every else Verdict(OK)
    found = ((failed, "failed"), (lacking, "could not be gauged"))
    words = [f"{len(names)} {what}: {_named(names)}" for names, what in found if names]
    if not words:
        return Verdict(OK)
    return Verdict(FAILED, (f"--fail-on-failed: of {plural(len(outcomes), 'trial')} {'; '.join(words)}",))


def _earlier(outcomes: Sequence[TrialOutcome]) -> Verdict:
    earlier = [outcome.id for outcome in outcomes if outcome.outdated]
    if not earlier:
        return Verdict(OK)
    used = f"{len(earlier)} of {plural(len(outcomes), 'trial')} used earlier code, or files that have changed since"
    return Verdict(FAILED, (f"no verdict on what is there now: {used}: {_named(earlier)}; run again with --fresh",))


def _limit(outcomes: Sequence[TrialOutcome], scopes: Sequence[str], limit: float, allowed: Sequence[str]) -> Verdict:
    scope = max(scopes, key=lambda name: Scope.parse(name).radius)
    bounds = [(outcome.values.get(scope + UPPER), outcome) for outcome in outcomes]
    known = [(bound, outcome) for bound, outcome in bounds if bound is not None]
    without = [outcome.id for bound, outcome in bounds if bound is None]
    above = sum(bound > limit for bound, _ in known)
    if without and not above:
        lacking = f"{len(without)} of {plural(len(outcomes), 'trial')} {'has' if len(without) == 1 else 'have'}"
        return Verdict(FAILED, (f"no limit is held: {lacking} no upper bound in scope {scope}: {_named(without)}",))
    if not above and any(outcome.outdated for outcome in outcomes):
        return Verdict(FAILED)  # why has been said
    doubt = "" if above else _doubt([outcome for _, outcome in known], scope, allowed)
    if doubt:
        return Verdict(FAILED, (f"no limit is held: {doubt}",))
    largest, worst = max(known, key=lambda pair: pair[0])
    shown = "infinite" if largest == math.inf else ceil_log10(largest * LN10)
    cause = _cause(worst, scope) if largest == math.inf else ""
    why = f"{known_words(worst, scope)}{f'; {cause}' * bool(cause)}"
    told = f"{above} of {plural(len(outcomes), 'trial')} above 10^{limit:g}; the largest upper bound, scope {scope}, "
    of = f"of {worst.id} ({settings_words(worst)})"
    line = f"limit {'FAILED' if above else 'passed'}: {told}is {shown} ({why}), {of}"
    return Verdict(ABOVE if above else OK, (line,))


def _doubt(outcomes: Sequence[TrialOutcome], scope: str, allowed: Sequence[str]) -> str:
    """Why finite bounds keep no limit: they hold on one path alone, or it is not known how they hold; "" elsewhere."""
    silent = [o.id for o in outcomes if scope not in o.known]
    if silent:
        return f"how the upper bound is known, scope {scope}, was not stored of {_named(silent)}; run --fresh-all"
    on_path = [o.id for o in outcomes if o.known[scope].path_dependent and o.values[scope + UPPER] < math.inf]
    if on_path and PATH not in allowed:
        return f"in {_named(on_path)} {WHY}, scope {scope}. Allow it: --allow {PATH}"
    return ""


def _cause(outcome: TrialOutcome, scope: str) -> str:
    """What has no finite bound, as the trial's notes say it; "" where they do not."""
    start = f"{scope}: "
    causes = [note.removeprefix(start) for note in outcome.notes if note.startswith(start)]
    more = f" and {len(causes) - 1} more" if len(causes) > 1 else ""
    return f"{causes[0]}{more}" if causes else ""


def _named(ids: Sequence[str]) -> str:
    return shortened_names(ids, NAMED)
