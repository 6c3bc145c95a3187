"""What the viewers of runs show: labels, series, cells of layers, alarms put together, and the state in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from normgauge.core.store import Run
from normgauge.core.store.numbers import read_number
from normgauge.core.store.steps import StepRecord
from normgauge.render.numbers import log_enclosure, plural

POINTS = 90  # buckets of a curve; each keeps what it has of first, lowest, highest and last
EVIDENCE = {
    "norm_lower": "proved", "norm_upper": "proved", "folded": "estimated", "log10_P_w": "proved",
    "log10_P_w_lower": "proved", "log10_folded": "estimated", "update": "estimated",
}  # fmt: skip
MOVED = 0.1  # decades below which a total is said to stay where it is
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
        return self.run.steps[-1]["step"] if self.run.steps else None


@dataclass(frozen=True, slots=True)
class Warned:
    """Alarms of one kind at one layer.

    Attributes:
        first: the step of the first of them.
        last: the step of the last.
        times: how many.
        alarm: its kind.
        layer: where; empty for the whole network.
        sentence: what the first said.
    """

    first: int
    last: int
    times: int
    alarm: str
    layer: str
    sentence: str


def labelled_runs(runs: Sequence[Run]) -> list[LabelledRun]:
    """Each run with the shortest end of its path that no other run has."""
    parts = [_parts(run) for run in runs]
    labels = []
    for own in parts:
        size = next((n for n in range(1, len(own)) if sum(p[-n:] == own[-n:] for p in parts) == 1), len(own))
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


def layer_phrase(layer: str) -> str:
    """A layer in a sentence: one that is only a number, as in ``nn.Sequential``, needs a word in front.

    >>> layer_phrase("3"), layer_phrase("blocks.3")
    ('layer 3', 'blocks.3')
    """
    return f"layer {layer}" if layer.isdecimal() else layer


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
        odd = [i for i, (_, value) in enumerate(bucket) if not math.isfinite(value)][:1]
        fine = [i for i, (_, value) in enumerate(bucket) if math.isfinite(value)]
        ends = [min(fine, key=lambda i: bucket[i][1]), max(fine, key=lambda i: bucket[i][1])] if fine else []
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


def _buckets(points: Sequence[Point], most: int) -> list[list[Point]]:
    """The points, cut where the steps pass equal parts of their range."""
    first, width = points[0][0], max(points[-1][0] - points[0][0], 1)
    cut: list[list[Point]] = [[] for _ in range(most)]
    for point in points:
        cut[min((point[0] - first) * most // width, most - 1)].append(point)
    return [bucket for bucket in cut if bucket]


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
        picked[min((record["step"] - first) * most // width, most - 1)] = record
    filled = [i for i, line in enumerate(picked) if line is not None]
    for i in range(min(filled, default=0) + 1, max(filled, default=0)):
        picked[i] = picked[i] or picked[i - 1]
    return picked


def run_alarms(run: Run) -> list[Warned]:
    """The alarms, those of one kind at one layer together, in the order in which they began."""
    together: dict[tuple[str, str], Warned] = {}
    for record in run.alarms:
        step = record.get("step")
        step = step if isinstance(step, int) else 0
        key = (str(record.get("alarm", "alarm")), str(record.get("layer") or ""))
        old = together.get(key)
        sentence = str(record.get("sentence", ""))
        together[key] = (
            Warned(step, step, 1, *key, sentence)
            if old is None
            else Warned(old.first, max(step, old.last), old.times + 1, *key, old.sentence)
        )
    return sorted(together.values(), key=lambda w: w.first)


def step_span(runs: Sequence[LabelledRun]) -> tuple[int, int]:
    """The first and the last step of all runs; (0, 1) before the first line."""
    ends = [end["step"] for item in runs if item.run.steps for end in (item.run.steps[0], item.run.steps[-1])]
    low, high = min(ends, default=0), max(ends, default=1)
    return (low, high) if high > low else (low, low + 1)


def healthy(item: LabelledRun) -> bool:
    """No alarm, and the last loss is a number."""
    return not item.run.alarms and all(math.isfinite(value) for _, value in loss_series(item.run)[-1:])


def run_sentences(item: LabelledRun) -> list[str]:
    """The state of a run: alarms first, then loss, then the products, then whether it goes on."""
    if not item.run.steps:
        return ["The run has a header and no step yet."]
    return [
        sentence for sentence in (_alarms(item), _loss(item), _folded(item), _norms(item), _state(item)) if sentence
    ]


def _alarms(item: LabelledRun) -> str:
    groups = run_alarms(item.run)
    if not groups:
        return f"No alarm up to step {item.last:,}."
    first = groups[0]
    where = f" in {layer_phrase(first.layer)}" if first.layer else ""
    said = f"{plural(len(item.run.alarms), 'alarm')}, the first at step {first.first:,}{where}: {first.sentence}"
    layers = dict.fromkeys(group.layer for group in groups[1:] if group.layer and group.layer != first.layer)
    more = (
        f" Later also {', '.join(map(layer_phrase, list(layers)[:3]))}{' and others' if len(layers) > 3 else ''}."
        if layers
        else ""
    )
    return said.rstrip(". ") + "." + more


def _loss(item: LabelledRun) -> str:
    series = loss_series(item.run)
    if not series:
        return "No loss was given."
    gone = next((step for step, value in series if not math.isfinite(value)), None)
    if gone is not None:
        return f"The loss is not finite at step {gone:,}."
    (first, start), (_, now) = series[0], series[-1]
    if start == now:
        return f"The loss is {now:.3g}."
    return f"The loss {'fell' if now < start else 'rose'} from {start:.3g} at step {first:,} to {now:.3g}."


def _folded(item: LabelledRun) -> str:
    folded = [(step, value) for step, value in item.run.total("log10_folded") if math.isfinite(value)]
    if not folded:
        return ""
    start, now = folded[0][1], folded[-1][1]
    known = total_evidence(item.run, "log10_folded")
    if abs(now - start) < MOVED:
        return f"The folded product stays near 10^{now:.2f} ({known})."
    return f"The folded product {'grew' if now > start else 'fell'} from 10^{start:.2f} to 10^{now:.2f} ({known})."


def _norms(item: LabelledRun) -> str:
    """The product of the layers' norms with both its ends: the upper one has slack between two proofs."""
    last = item.run.steps[-1]["totals"]
    ends = [read_number(last.get(name)) for name in ("log10_P_w_lower", "log10_P_w")]
    if not any(end is not None and math.isfinite(end) for end in ends):
        return ""
    known = total_evidence(item.run, "log10_P_w")
    return f"The log10 of P_w is {log_enclosure(*ends)} ({known}; depends on the gauge)."


def _state(item: LabelledRun) -> str:
    end = item.run.end
    if end is None:
        return "The run has no end yet: it is still being written, or it was killed."
    share, step = end.get("share"), end.get("step")
    spent = f" Measuring took {share:.1%} of its time." if isinstance(share, float) else ""
    return f"The run ended at step {step if isinstance(step, int) else item.last:,}.{spent}"
