"""What to do about a reading, and the words that its pages use."""

from __future__ import annotations

import math
from collections.abc import Iterator

from normgauge.core.reading import Reading
from normgauge.render.levels import followed_direction
from normgauge.render.numbers import scope_words
from normgauge.render.verdict import CLOSED, edit_contradicts

TIGHT = 1.0  # decades between found and proved: enough to compare networks by
STEPS = 3
EXPLAIN = "with the file that --json or reading.save() writes, normgauge explain READING.json"
WORDS = (
    ("found", "met at an actual input"),
    ("decade", "a factor of ten"),
    ("folded", "linear maps taken together with the normalizers beside them"),
    ("gauge", "a way to write the same function down with other weights"),
    ("balanced", "folded, and minimised over the gauges"),
)


def next_steps(reading: Reading) -> list[str]:
    """What to do about it, the most pressing first."""
    if edit_contradicts(reading):
        return ["Measure again: the file was edited after it was written, and its numbers contradict each other."]
    return [*_pressing(reading), *_useful(reading)][:STEPS]


def _pressing(reading: Reading) -> Iterator[str]:
    if reading.log_refuted is not None and reading.edited:
        yield "Measure again: the file was edited after it was written, and its numbers do not go together."
    elif reading.log_refuted is not None:
        yield "Report this network: a bound below a slope is a fault of normgauge, or of a rule of yours."
    for finding in (reading.unknown or reading.no_bound)[:1]:
        yield f"Give {finding.name} a rule of its own, or replace it: without one nothing is proved."
    for finding in reading.unbounded[:1]:
        yield f"Measure in a smaller scope, or bound what goes into {finding.name}: its slope has no end."
    if reading.scope.kind != "point" and math.isfinite(reading.gap) and reading.gap > TIGHT:
        where = scope_words(reading.scope)
        yield f"Read at the samples, or in a smaller ball: {where} the bound is loose. effort=long may lower it."


def _useful(reading: Reading) -> Iterator[str]:
    owner = reading.gap_owner() if reading.gap > CLOSED else None
    if owner is not None:
        along = followed_direction(reading)
        yield f"Look at {owner.name}, the most slack along {along}: {EXPLAIN} {owner.name}"
    elif reading.layers:
        steep = max(reading.layers, key=lambda layer: layer.log_stretch)
        yield f"Look at {steep.name}, the largest bound of a layer by itself: {EXPLAIN} {steep.name}"
    yield "Ask what to mend: normgauge advise MODEL --batch BATCH"
    yield "Keep the reading and compare the next network with it: normgauge diff BEFORE.json AFTER.json"
