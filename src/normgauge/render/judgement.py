"""What to make of a reading: how tight it is, what is usual elsewhere, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

from normgauge.core import reference
from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10
from normgauge.render.numbers import format_factor, scope_words

CLOSED, TIGHT = 0.05, 1.0  # decades between found and proved: no gap to speak of; enough to compare networks by
STEPS = 3
WORDS = (
    ("found", "met at an actual input"),
    ("decade", "a factor of ten"),
    ("folded", "linear maps taken together with the normalizers beside them"),
    ("gauge", "a way to write the same function down with other weights"),
    ("balanced", "folded, and minimised over the gauges"),
)


def judgement(reading: Reading) -> str:
    """How much the bracket says, and how steep networks are that come with normgauge; a plain sentence or two."""
    beside = beside_references(reading)
    return " ".join(filter(None, [tightness(reading), beside]))


def tightness(reading: Reading) -> str:
    """What the gap between found and proved lets one conclude."""
    if math.isinf(reading.gap):
        return "There is no upper bound here, so nothing can be promised; the slope found holds."
    if reading.gap <= CLOSED:
        return "Found and proved agree: this is how steep the network is there."
    if reading.gap <= TIGHT:
        return "Found and proved lie within a factor of ten: enough to compare networks that differ by more."
    by = "what was found" if reading.scope.kind == "point" else "readings at the samples"
    return f"The bound is true and far above what was found: it rules out little. Compare networks by {by}."


@cache
def usual_slopes(scope: str) -> tuple[tuple[float, str], ...]:
    """The slopes found in the references in one scope, log10, smallest first, with what the networks are called."""
    found = []
    for name in reference.names():
        content = reference.reference_content(name)
        slopes = [float(r["log10_lower"]) for r in content["readings"] if r["scope"] == scope]
        found += [(slope, str(content["title"])) for slope in slopes]
    return tuple(sorted(found))


def beside_references(reading: Reading) -> str:
    """Between which of the references the slope found lies."""
    if not math.isfinite(reading.log_lower):
        return ""
    known, here = usual_slopes(str(reading.scope)), reading.log_lower / LN10
    if not known:
        return ""
    told = [f"{title} {format_factor(slope * LN10)}" for slope, title in known]
    below = sum(slope <= here for slope, _ in known)
    if below == 0:
        place = f"less steep than all networks that come with normgauge, the tamest being {told[0]}"
    elif below == len(known):
        place = f"steeper than all networks that come with normgauge, the steepest being {told[-1]}"
    else:
        place = f"between {told[below - 1]} and {told[below]} of the networks that come with normgauge"
    return f"The slope found is {place}, each on data of its own: what is usual, not what is right."


def next_steps(reading: Reading) -> list[str]:
    """What to do about it, the most pressing first."""
    return [*_pressing(reading), *_useful(reading)][:STEPS]


def _pressing(reading: Reading) -> Iterator[str]:
    if reading.log_refuted is not None:
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
        yield f"Look at {owner.name}, which owns most of the gap: normgauge explain READING.json {owner.name}"
    elif reading.layers:
        steep = max(reading.layers, key=lambda layer: layer.gain.hi)
        yield f"Look at {steep.name}, which can stretch most: normgauge explain READING.json {steep.name}"
    yield "Ask what to mend: normgauge advise MODEL --batch BATCH"
    yield "Keep the reading and compare the next network with it: normgauge diff BEFORE.json AFTER.json"
