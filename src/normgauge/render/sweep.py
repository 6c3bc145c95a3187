"""What a sweep found: trials, the points they are seeds of, and the table of them, one row a point."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any

from normgauge.core.bound import Known
from normgauge.render.numbers import ABSENT, plural, shortened_names
from normgauge.render.table import Grid
from normgauge.render.verdict import evidence_words

SHORT = {"gap": "accuracy gap", "log10_P_w": "log10 P_w", "log10_prod_inv_sigma_rms": "log10 Π1/σ", "alarms": "alarms"}
NOT_GAUGED = "not gauged: "  # how the note of a trial begins that was trained and has no reading
UPPER = ".log10_upper"  # how the name of a bound ends, behind its scope
NOT_STORED = "known in a way that was not stored"
NAMED = 3
ENDS = {"upper": "at most", "lower": "found", "median": "median sample"}


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """One trial of a sweep, and what it gave.

    Attributes:
        id: of the trial.
        point: the settings that vary in the sweep.
        seed: of the trial.
        status: ``new``, ``running``, ``done`` or ``failed``.
        values: what was measured, by name.
        attempts: begun so far.
        seconds: of the attempts that ended; None where they are not known.
        error: last lines of the last attempt, where it failed.
        notes: sentences about the values.
        known: by scope, how the upper bound is known; empty in results of older versions.
        outdated: made with an earlier version of the user's code.
    """

    id: str
    point: Mapping[str, Any]
    seed: int
    status: str
    values: Mapping[str, float]
    attempts: int = 0
    seconds: float | None = 0.0
    error: str = ""
    notes: tuple[str, ...] = ()
    outdated: bool = False
    known: Mapping[str, Known] = field(default_factory=dict)

    @property
    def not_gauged(self) -> str:
        """Why a trial that is done has no reading; "" where it has one."""
        return next((n.removeprefix(NOT_GAUGED) for n in self.notes if n.startswith(NOT_GAUGED)), "")


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """Trials that differ in their seed only."""

    settings: Mapping[str, Any]
    outcomes: tuple[TrialOutcome, ...]

    @property
    def done(self) -> int:
        """How many trials have a result."""
        return sum(outcome.status == "done" for outcome in self.outcomes)

    def values(self, measure: str) -> list[float]:
        """A measure of the seeds that have it."""
        return [outcome.values[measure] for outcome in self.outcomes if measure in outcome.values]

    def mean(self, measure: str) -> float | None:
        """The mean over the seeds that have it; infinite or not a number where one of them is."""
        return average(self.values(measure))

    def std(self, measure: str) -> float | None:
        """The sample standard deviation over seeds; None for fewer than two, or where one is not finite."""
        found = self.values(measure)
        return stdev(found) if len(found) > 1 and all(map(math.isfinite, found)) else None


def average(values: Sequence[float]) -> float | None:
    """Return the mean; None for no values."""
    if not values:
        return None
    return mean(values) if all(map(math.isfinite, values)) else sum(values)


def sweep_points(outcomes: Iterable[TrialOutcome]) -> list[SweepPoint]:
    """The outcomes by point, in the order in which points first come."""
    groups: dict[str, list[TrialOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault(json.dumps(outcome.point, sort_keys=True, default=str), []).append(outcome)
    return [SweepPoint(group[0].point, tuple(group)) for group in groups.values()]


def measures(outcomes: Iterable[TrialOutcome]) -> list[str]:
    """The names of everything measured, in the order in which they first come."""
    return list(dict.fromkeys(name for outcome in outcomes for name in outcome.values))


def ranked(found: Sequence[SweepPoint], measure: str) -> list[SweepPoint]:
    """Points with the best first: the largest accuracy, the gap nearest to 0, the smallest of anything else.

    Those without a value come last.
    """

    def place(point: SweepPoint) -> tuple[bool, float]:
        value = point.mean(measure)
        absent = value is None or math.isnan(value)
        if value is None or absent:
            return True, 0.0
        return False, abs(value) if measure.endswith("gap") else -value if measure.endswith("accuracy") else value

    return sorted(found, key=place)


def key_labels(keys: Sequence[str]) -> list[str]:
    """Keys without their tables where no two are alike then, whole ones elsewhere.

    >>> key_labels(["network.options.norm", "training.lr", "other.lr"])
    ['norm', 'training.lr', 'other.lr']
    """
    shorts = [key.rpartition(".")[2] for key in keys]
    return [name if shorts.count(name) == 1 else key for name, key in zip(shorts, keys, strict=True)]


def spelled_setting(value: Any) -> str:
    """A setting as people write it.

    >>> spelled_setting(0.001), spelled_setting([64, 10]), spelled_setting("batch"), spelled_setting(True)
    ('0.001', '64-10', 'batch', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return "-".join(spelled_setting(item) for item in value)
    return str(value)


def measure_title(measure: str) -> str:
    """Return the heading of a measure."""
    if measure in SHORT:
        return SHORT[measure]
    scope, _, end = measure.rpartition(".log10_")
    return f"log10 {ENDS.get(end, end)}, {scope}" if scope else measure.replace("_", " ")


def measure_is_share(measure: str) -> bool:
    """Whether a measure is told in percent."""
    return measure.endswith("accuracy") or measure == "gap"


def format_measure(value: float | None, measure: str) -> str:
    """A number in the units of its measure."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return str(value)
    if measure_is_share(measure):
        return f"{value:.1%}"
    return f"{value:.3g}" if measure.endswith("loss") or "log10" not in measure else f"{value:.2f}"


def cell(point: SweepPoint, measure: str) -> str:
    """Mean ± standard deviation; how many seeds have the number where not all that are done do."""
    found = point.values(measure)
    shown, spread = format_measure(point.mean(measure), measure), point.std(measure)
    if spread is not None:
        shown = f"{shown.removesuffix('%')} ± {format_measure(spread, measure)}"
    return f"{shown} ({len(found)})" if found and len(found) < point.done else shown


def main_measures(outcomes: Sequence[TrialOutcome]) -> list[str]:
    """The measures of the table: accuracy, gap, median, bound and slope of each scope beside the published ones."""
    chosen = ("test_accuracy", "gap", "log10_P_w", "log10_prod_inv_sigma_rms", "alarms")
    known = measures(outcomes)
    scoped = [name for end in ("median", "upper", "lower") for name in known if name.endswith(f".log10_{end}")]
    return [name for name in (*chosen[:2], *scoped, *chosen[2:]) if name in known]


def result_grid(found: Sequence[SweepPoint], keys: Sequence[str], sort: str, name: str) -> Grid:
    """The table; the best point first."""
    columns = main_measures([outcome for point in found for outcome in point.outcomes])
    if sort not in columns and any(sort in outcome.values for point in found for outcome in point.outcomes):
        columns.insert(0, sort)
    rows = tuple(
        (
            *(spelled_setting(point.settings[key]) for key in keys),
            f"{point.done}/{len(point.outcomes)}",
            *(cell(point, measure) for measure in columns),
        )
        for point in ranked(found, sort)
    )
    headers = (*key_labels(keys), "seeds", *map(measure_title, columns))
    order = "the one nearest to 0 first" if sort.endswith("gap") else "the best first"
    steepest = [ENDS[end] for end in ("upper", "lower") if any(name.endswith(f".log10_{end}") for name in columns)]
    legend = f"{', '.join(steepest)}: the steepest sample; " if steepest else ""
    footer = f"mean ± standard deviation over seeds; {legend}sorted by {measure_title(sort)}, {order}"
    return Grid(f"Sweep {name}", headers, rows, frozenset(range(len(keys), len(headers))), footer, len(keys))


def trial_failures(outcomes: Sequence[TrialOutcome]) -> list[str]:
    """A sentence for each failed trial, with the last line of its error."""
    return [
        f"failed: {outcome.id} ({settings_words(outcome)}), {plural(outcome.attempts, 'attempt')} in all: "
        + (outcome.error.splitlines() or ["no reason given"])[-1]
        for outcome in outcomes
        if outcome.status == "failed"
    ]


def trials_not_gauged(outcomes: Sequence[TrialOutcome]) -> list[str]:
    """A sentence for each trial that was trained and could not be gauged, with the reason."""
    return [
        f"{NOT_GAUGED}{outcome.id} ({settings_words(outcome)}): {outcome.not_gauged}"
        for outcome in outcomes
        if outcome.not_gauged
    ]


def known_words(outcome: TrialOutcome, scope: str) -> str:
    """How the upper bound of a trial is known."""
    return evidence_words(outcome.known[scope]) if scope in outcome.known else NOT_STORED


def bound_sentences(outcomes: Sequence[TrialOutcome]) -> list[str]:
    """For each scope how the upper bounds are known, and in which trials where not all are known alike."""
    told = []
    for scope in (name.removesuffix(UPPER) for name in measures(outcomes) if name.endswith(UPPER)):
        groups: dict[str, list[str]] = {}
        for outcome in outcomes:
            if scope + UPPER in outcome.values:
                groups.setdefault(known_words(outcome, scope), []).append(outcome.id)
        parts = [f"{words} in {len(ids)}: {shortened_names(ids, NAMED)}" for words, ids in groups.items()]
        told.append(f"{ENDS['upper']}, {scope}: {next(iter(groups)) if len(groups) == 1 else '; '.join(parts)}")
    return told


def settings_words(outcome: TrialOutcome) -> str:
    """The varied settings and the seed on one line."""
    named = zip(key_labels(list(outcome.point)), outcome.point.values(), strict=True)
    return ", ".join([*(f"{key} {spelled_setting(value)}" for key, value in named), f"seed {outcome.seed}"])


def csv_text(outcomes: Sequence[TrialOutcome], keys: Sequence[str]) -> str:
    """One row a trial: id, status, varied settings, seed, measures, how bounds are known, why it failed, notes."""
    stream = io.StringIO()
    columns = measures(outcomes)
    scopes = [name.removesuffix(UPPER) for name in columns if name.endswith(UPPER)]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        [
            "id",
            "status",
            *keys,
            "seed",
            "attempts",
            "seconds",
            *columns,
            *(f"{scope}.evidence" for scope in scopes),
            "error",
            "notes",
        ]
    )
    for o in outcomes:
        numbers = [o.values.get(name, "") for name in columns]
        numbers += [known_words(o, scope) if scope + UPPER in o.values else "" for scope in scopes]
        settings = [spelled_setting(o.point[key]) for key in keys]
        seconds = "" if o.seconds is None else o.seconds
        writer.writerow([o.id, o.status, *settings, o.seed, o.attempts, seconds, *numbers, o.error, "; ".join(o.notes)])
    return stream.getvalue()
