"""Contradictions: a slope found above a bound takes the bound back, and what is left says so."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from normgauge.core.bound import Evidence
from normgauge.core.spelled import LN10

if TYPE_CHECKING:
    from normgauge.core.reading import Reading

INF = math.inf
ROUNDING = 1e-4  # natural log: what autograd may lose next to a singular point, such as a standard deviation near 0
ROOM = 0.01  # a direction is followed over at most this far; a smaller scope does not hold its way


class Contradiction(NamedTuple):
    """A slope found where a bound forbids it; both natural logs."""

    where: str
    slope: float
    bound: float


def contradictions(reading: Reading) -> Iterator[Contradiction]:
    """What was found above a bound by more than rounding: the total, each sample, each layer on the way.

    In a refuted reading the bounds are the ones taken back.
    """
    upper = reading.log_upper if reading.log_refuted is None else reading.log_refuted
    totals = [("", reading.log_lower, upper)]
    for row in reading.samples:
        bound = row["log10_upper"] if row.get("log10_refuted") is None else row["log10_refuted"]
        if bound is not None:
            totals.append((f"sample {row['index']}", row["log10_lower"] * LN10, bound * LN10))
    if can_be_followed(reading):
        totals += [
            (f"the output of {record.name}", record.log_reached, record.log_cumulative)
            for record in reading.layers
            if record.log_reached is not None and record.log_cumulative is not None
        ]
    yield from (Contradiction(*item) for item in totals if item[1] > item[2] + ROUNDING)


def can_be_followed(reading: Reading) -> bool:
    """Whether what a direction reached at a layer can be held against the layer's cumulative bound.

    The direction is followed from a sample over a short way, which must lie in the scope: the bound at a point holds at
    the point alone. Seven digits are too few for so short a way. A part that is not known may hide a way into a layer,
    and where the path depends on the data the sample alone may take another than it does in its batch.
    """
    sure = reading.evidence is not Evidence.UNKNOWN and not reading.path_dependent
    return sure and reading.scope.radius >= ROOM and reading.precision == "float64"


def judged_reading(reading: Reading) -> Reading:
    """The reading with its bound held against the slopes found.

    A slope above the bound by no more than rounding is cut down to it. A larger one refutes the bound: the upper ends
    become infinite, and the numbers that were there are kept as refuted.
    """
    if reading.log_refuted is None and next(contradictions(reading), None) is not None:
        refuted = dataclasses.replace(reading, log_refuted=reading.log_upper, evidence=Evidence.REFUTED)
        rows = tuple(
            row if row["log10_upper"] is None else {**row, "log10_refuted": row["log10_upper"]}
            for row in reading.samples
        )
        return without_bound(dataclasses.replace(refuted, samples=rows))
    excess = reading.log_lower - reading.log_upper if reading.log_lower > reading.log_upper else 0.0
    if not excess:
        return reading
    said = f"the slope found exceeded the bound by rounding ({excess:.0e}) and was cut down to it"
    return dataclasses.replace(reading, log_lower=reading.log_upper, notes=(*reading.notes, said))


def without_bound(reading: Reading) -> Reading:
    """The reading with every upper end infinite."""
    rows = tuple(row if row["log10_upper"] is None else {**row, "log10_upper": INF} for row in reading.samples)
    return dataclasses.replace(
        reading,
        log_upper=INF,
        log_balanced=None if reading.log_balanced is None else INF,
        log_folded=INF,
        samples=rows,
        loss=dict.fromkeys(reading.loss, INF),
        displacement=None if reading.displacement is None else INF,
    )
