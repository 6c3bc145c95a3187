"""What the viewers of runs show: labels, series, and cells of layers."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import TypeVar

from normgauge.core.store import Run
from normgauge.core.store.numbers import read_number
from normgauge.core.store.steps import StepRecord

AGAIN = re.compile(r"run-\d+")  # a later run of the same folder
POINTS = 90  # buckets of a curve; each keeps what it has of first, lowest, highest and last
EVIDENCE = {
    "norm_lower": "proved", "norm_upper": "proved", "folded": "estimated", "log10_P_w": "proved",
    "log10_P_w_lower": "proved", "log10_folded": "estimated", "update": "estimated",
}  # fmt: skip
Pairs = Sequence[tuple[int, float]]
Band = Sequence[tuple[int, float, float]]
Point = TypeVar("Point", tuple[int, float], tuple[int, float, float])


@dataclass(frozen=True, slots=True)
class LabelledRun:
    """A run with the name it goes by on the page."""

    label: str
    run: Run

    @property
    def last(self) -> int | None:
        """The last step that was read; None before the first."""
        return self.run.steps[-1].step if self.run.steps else None

    @property
    def reached(self) -> int | None:
        """The last step that was taken, as far as the file says: its end may know of later ones than were read."""
        step = (self.run.end or {}).get("step")
        return step if isinstance(step, int) and abs(step) < 2**53 else self.last

    @property
    def last_loss(self) -> tuple[int, float] | None:
        """Step and value of the last loss: that of the end where it has one, else of the last step that has a line."""
        series, loss = self.run.total("loss") or loss_series(self.run), read_number((self.run.end or {}).get("loss"))
        if loss is not None and self.reached is not None:
            return self.reached, loss
        return series[-1] if series else None


def rate_moved(run: Run) -> bool:
    """Whether the learning rate was not the same at all steps read: else it is worth no row and no curve."""
    return len({rate for _, rate in run.total("lr")}) > 1


def labelled_runs(runs: Sequence[Run]) -> list[LabelledRun]:
    """Each run with the shortest end of its path that no other run has."""
    parts = [_parts(run) for run in runs]
    labels = []
    for run, own in zip(runs, parts, strict=True):
        least = 2 if AGAIN.fullmatch(run.path.stem) else 1  # run-2 says nothing without its folder
        size = next((n for n in range(least, len(own)) if sum(p[-n:] == own[-n:] for p in parts) == 1), len(own))
        labels.append("/".join(own[-size:]))
    return [LabelledRun(label, run) for label, run in zip(labels, runs, strict=True)]


def _parts(run: Run) -> tuple[str, ...]:
    path = run.path.absolute()
    return path.parent.parts[1:] if path.stem == "run" else (*path.parent.parts[1:], path.stem)


def column_evidence(run: Run, name: str, tables: Sequence[str] = ("columns", "totals")) -> str:
    """How a column or total is known: as the header says, or as such a quantity is known at best."""
    for table in tables:
        known = run.header.get(table)
        said = known.get(name) if isinstance(known, dict) else None
        if isinstance(said, dict) and isinstance(said.get("evidence"), str):
            return str(said["evidence"])
    return EVIDENCE.get(name, "observed")


def total_evidence(run: Run, name: str) -> str:
    """How a total is known; ``gradient`` is the name of a column, too."""
    return column_evidence(run, name, ("totals", "columns"))


def run_notes(run: Run) -> list[str]:
    """What the run and its reader have to say about it, once each, newest last."""
    told = [f"step {note.get('step')}: {note.get('sentence', '')}".rstrip(".") + "." for note in run.notes]
    return list(dict.fromkeys([*told, *(f"{problem}." for problem in run.problems)]))


def loss_series(run: Run) -> Pairs:
    """The loss, as the mean over the steps since the line before where a run has it."""
    return run.total("loss_mean") or run.total("loss")


def thin_series(pairs: Pairs, most: int = POINTS) -> list[tuple[int, float]]:
    """The series at no more than four points a bucket of steps; no peak and no hole is lost."""
    if len(pairs) <= 4 * most:
        return list(pairs)
    kept: list[tuple[int, float]] = []
    for bucket in _buckets(pairs, most):
        values = [value for _, value in bucket]
        fine = values if math.isfinite(math.fsum(values)) else [value for value in values if math.isfinite(value)]
        odd = [] if fine is values else [i for i, value in enumerate(values) if not math.isfinite(value)][:1]
        ends = [values.index(min(fine)), values.index(max(fine))] if fine else []
        kept.extend(bucket[i] for i in sorted({0, *odd, *ends, len(bucket) - 1}))
    return kept


def both_ends(low: Pairs, high: Pairs) -> list[tuple[int, float, float]]:
    """Both ends of an enclosure, where both are known and finite."""
    upper = dict(high)
    return [(step, value, upper[step]) for step, value in low if step in upper and math.isfinite(value + upper[step])]


def thin_band(both: Band, most: int = POINTS) -> list[tuple[int, float, float]]:
    """A band at the widest of each bucket of steps: thinned, it still encloses."""
    if len(both) <= 2 * most:
        return list(both)
    kept: list[tuple[int, float, float]] = []
    for bucket in _buckets(both, most):
        bottom, top = min(item[1] for item in bucket), max(item[2] for item in bucket)
        kept.extend((step, bottom, top) for step in dict.fromkeys((bucket[0][0], bucket[-1][0])))
    return kept


def told_band(both: Band, pairs: Pairs) -> list[tuple[int, float, float]]:
    """A band that is thinned and encloses, with both ends as they are at the steps of a thinned curve."""
    if len(both) <= 2 * POINTS:
        return list(both)
    shown = {step for step, _ in pairs}
    return sorted([*thin_band(both), *(item for item in both if item[0] in shown)], key=lambda item: item[0])


def _buckets(points: Sequence[Point], most: int) -> list[list[Point]]:
    """The points, cut where the steps pass equal parts of their range."""
    first, width = points[0][0], max(points[-1][0] - points[0][0], 1)
    edges: list[int] = [first - (-k * width // most) for k in range(most)]
    cuts = [*(bisect_left(points, edge, key=itemgetter(0)) for edge in edges), len(points)]
    return [list(points[a:b]) for a, b in pairwise(cuts) if b > a]


def layer_cells(record: StepRecord, column: str, count: int) -> list[float | None]:
    """One quantity of every layer at one step line; ``update_ratio`` is the update over the weight's norm."""
    if column == "update_ratio":
        pairs = zip(layer_cells(record, "update", count), layer_cells(record, "frobenius", count), strict=True)
        return [None if a is None or not b else a / b for a, b in pairs]
    found = [read_number(cell) for cell in record["columns"].get(column, ())[:count]]
    return found + [None] * (count - len(found))


def sampled_steps(steps: Sequence[StepRecord], first: int, last: int, most: int) -> list[StepRecord | None]:
    """For each of ``most`` equal parts of the range of steps the last line up to its end; None outside the run."""
    width = max(last - first, 1)
    picked: list[StepRecord | None] = [None] * most
    for record in steps:
        picked[min((record.step - first) * most // width, most - 1)] = record
    filled = [i for i, line in enumerate(picked) if line is not None]
    for i in range(min(filled, default=0) + 1, max(filled, default=0)):
        picked[i] = picked[i] or picked[i - 1]
    return picked


def step_span(runs: Sequence[LabelledRun]) -> tuple[int, int]:
    """The first and the last step of all runs; (0, 1) before the first line."""
    ends = [end["step"] for item in runs if item.run.steps for end in (item.run.steps[0], item.run.steps[-1])]
    low, high = min(ends, default=0), max(ends, default=1)
    return (low, high) if high > low else (low, low + 1)
