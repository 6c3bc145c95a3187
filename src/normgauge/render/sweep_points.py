"""What a sweep found, as plain values: trials, and the points they are seeds of."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """One trial.

    Attributes:
        id: of the trial.
        point: the settings that vary in the sweep.
        seed: of the trial.
        status: ``new``, ``running``, ``done`` or ``failed``.
        values: what was measured, by name.
        attempts: begun so far.
        seconds: of the attempts that ended.
        error: last lines of the last attempt, where it failed.
        notes: sentences about the values.
    """

    id: str
    point: Mapping[str, Any]
    seed: int
    status: str
    values: Mapping[str, float]
    attempts: int = 0
    seconds: float = 0.0
    error: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """Trials that differ in their seed only."""

    settings: Mapping[str, Any]
    outcomes: tuple[Outcome, ...]

    @property
    def done(self) -> int:
        """How many have a result."""
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
    """The mean; None of nothing."""
    if not values:
        return None
    return mean(values) if all(map(math.isfinite, values)) else sum(values)


def points(outcomes: Iterable[Outcome]) -> list[Point]:
    """The outcomes by point, in the order in which points first come."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(json.dumps(outcome.point, sort_keys=True, default=str), []).append(outcome)
    return [Point(group[0].point, tuple(group)) for group in groups.values()]


def measures(outcomes: Iterable[Outcome]) -> list[str]:
    """The names of everything measured, in the order in which they first come."""
    return list(dict.fromkeys(name for outcome in outcomes for name in outcome.values))


def ranked(found: Sequence[Point], measure: str) -> list[Point]:
    """Points with the best first: the largest accuracy, the smallest of anything else; those without a value last."""
    sign = -1.0 if measure.endswith("accuracy") else 1.0

    def place(point: Point) -> tuple[bool, float]:
        value = point.mean(measure)
        absent = value is None or math.isnan(value)
        return absent, 0.0 if value is None or absent else sign * value

    return sorted(found, key=place)
