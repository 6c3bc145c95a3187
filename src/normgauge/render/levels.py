"""Where each layer takes the bound, following the network's own graph: the numbers behind the waterfall."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from normgauge.core.reading import LayerRecord, Reading
from normgauge.core.spelled import LN10

SHORT = re.compile(r"^([A-Z])[a-z]+([A-Z])[a-z]+(?:\dd)?$")  # BatchNorm1d is BN, LayerNorm LN
STILL = 0.01  # a log gain that cannot be seen


@dataclass(frozen=True, slots=True)
class Bar:
    """One layer, or several in a row that share a bar. Levels are decades.

    Attributes:
        records: the layers.
        start: the largest level among its inputs.
        end: the level at its output; infinite where its gain is.
        first: position of the first of them among the reading's layers.
    """

    records: tuple[LayerRecord, ...]
    start: float
    end: float
    first: int

    @property
    def tone(self) -> str:
        """What kind of layer it is, as `layer_tone` says; ``mixed`` where layers of several kinds share the bar."""
        tones = {layer_tone(record) for record in self.records if abs(record.gain.hi) > STILL} or {"other"}
        if len(self.records) == 1:
            return layer_tone(self.records[0])
        return "open" if "open" in tones else tones.pop() if len(tones) == 1 else "mixed"


def followed_direction(reading: Reading) -> str:
    """What ``log_reached`` is about: beyond the samples the search goes on from there, the direction followed does not.

    A steeper slope may be found away from the sample, where no direction is followed.
    """
    if reading.scope.kind == "point":
        return "the steepest direction found"
    return "the steepest direction at the sample where the search began"


def called_layer(record: LayerRecord) -> list[str]:
    """What a layer may be called in a figure, the longest first: with its kind, with that in short, without it.

    A name that has its kind in it stands alone.
    """
    short = SHORT.sub(r"\1\2", record.kind)
    named = (
        [] if record.kind.lower() in record.name.lower() else [f"{record.name} {kind}" for kind in (record.kind, short)]
    )
    return [*dict.fromkeys(named), record.name]


def layer_tone(record: LayerRecord) -> str:
    """What kind of layer: ``weight``, ``norm``, ``other``, or ``open`` without a finite gain."""
    if record.gain.hi == math.inf:
        return "open"
    if record.sigma is not None:
        return "norm"
    return "weight" if record.log_spectral is not None or record.log_frobenius is not None else "other"


def bars(reading: Reading, most: int) -> list[Bar]:
    """One bar a layer in the order of execution; beyond ``most`` layers neighbours share one, from lowest to highest.

    A bar starts at the largest level of the layer's inputs and ends at its ``log_cumulative``. Behind an infinite gain
    every level is infinite; there the bars go on as if that gain were left out, so that the rest can still be seen.
    """
    single = _single(reading)
    size = math.ceil(len(single) / most)
    if size <= 1:
        return single
    return [_merged(single[i : i + size]) for i in range(0, len(single), size)]


def layer_product(reading: Reading) -> float | None:
    """Natural log of the bound layer by layer, nothing folded, at the output; None without layers."""
    if not reading.layers:
        return None
    levels: dict[int, float] = {}
    if reading.proof is None:
        return reading.layers[-1].log_cumulative
    records = {record.name: record for record in reading.layers}
    for step in reading.proof.steps:
        incoming = max((levels.get(value, 0.0) for value in step.inputs), default=0.0)
        record = records.get(step.layer)
        known = None if record is None else record.log_cumulative
        levels[step.output] = incoming if known is None else known
    return levels.get(reading.proof.output, 0.0)


def _single(reading: Reading) -> list[Bar]:
    """One bar a layer; without a graph each layer follows the one before."""
    chain = [(record.name, (place,), place + 1) for place, record in enumerate(reading.layers)]
    steps = chain if reading.proof is None else [(s.layer, s.inputs, s.output) for s in reading.proof.steps]
    levels: dict[int, float] = {}
    places = {record.name: place for place, record in enumerate(reading.layers)}
    drawn: dict[int, Bar] = {}
    for layer, inputs, output in steps:
        level = max((levels.get(value, 0.0) for value in inputs), default=0.0)
        place = places.get(layer)
        if place is not None:
            bar = _bar(reading.layers[place], level, place)
            drawn.setdefault(place, bar)  # a step with several outputs stands there once for each
            level = bar.start if bar.end == math.inf else bar.end
        levels[output] = level
    return [drawn[p] if p in drawn else _bar(r, 0.0, p) for p, r in enumerate(reading.layers)]


def _bar(record: LayerRecord, start: float, place: int) -> Bar:
    known = record.log_cumulative
    if record.gain.hi == math.inf:
        end = math.inf
    elif known is None or known == math.inf:
        end = start + record.gain.hi / LN10
    else:
        end = known / LN10
    return Bar((record,), start, end, place)


def _merged(group: Sequence[Bar]) -> Bar:
    ends = [level for bar in group for level in (bar.start, bar.end)]
    records = tuple(record for bar in group for record in bar.records)
    return Bar(records, min(ends), max(ends), group[0].first)
