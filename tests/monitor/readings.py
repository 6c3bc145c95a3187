"""Readings of an imaginary network of three blocks, each a matrix and a normalizer, and a head."""

from __future__ import annotations

import math
from typing import Any

from normgauge.monitor.signs.sign import Alarm, Place, Seen
from normgauge.monitor.watch import AlarmWatch

PLACES = [
    *(
        place
        for k in range(3)
        for place in (Place(f"b.{k}.map", "matrix", (16, 16), 2.4), Place(f"b.{k}.norm", "norm", (16,), 4.0))
    ),
    Place("head", "matrix", (4, 16), 1.2),
]
PAIRS = {0: 1, 2: 3, 4: 5}
MAP, NORM, HEAD = 2, 3, 6  # rows of the middle block, and of the head


def rows() -> list[dict[str, float]]:
    """Numbers as a healthy step has them."""
    matrix = {"frobenius": 2.4, "update": 0.02, "gradient": 0.1, "scale_free_gradient": 0.24, "folded": 2.0}
    norm = {"frobenius": 4.0, "sigma_rms": 0.6, "sigma_max": 0.8, "eps": 1e-5, "running": 0.36, "gradient": 0.1}
    return [dict(norm if place.role == "norm" else matrix) for place in PLACES]


def reading(step: int, loss: float = 0.5, changed: dict[int, dict[str, float]] | None = None, **others: Any) -> Seen:
    """One reading; ``changed`` replaces numbers of rows."""
    numbers = rows()
    for row in (1, 3, 5):
        numbers[row]["running"] += 1e-4 * step  # statistics that are alive
    for row, given in (changed or {}).items():
        numbers[row] |= given
    kept = {"totals": {"log10_folded": 1.0}, "pairs": PAIRS, "rate": 0.1, "given": 1.0, **others}
    return Seen(step, [(step, loss)], numbers, **kept)


def watched(healthy: int = 30) -> AlarmWatch:
    """A watch that has seen a healthy start."""
    watch = AlarmWatch(PLACES)
    for step in range(1, healthy + 1):
        assert watch.observe(reading(step)) == []
    return watch


def said(alarms: list[Alarm]) -> list[tuple[str, str]]:
    """Kind and layer of each."""
    return [(alarm.alarm, alarm.layer) for alarm in alarms]


def after(watch: AlarmWatch, count: int, first: int = 31, **changes: Any) -> list[Alarm]:
    """The alarms of the next readings, all changed alike."""
    return [alarm for step in range(first, first + count) for alarm in watch.observe(reading(step, **changes))]


def named(kind: str, layer: str, changes: dict[str, Any], readings: int) -> None:
    """A watch with a healthy start names this layer and cause, and nothing else, after so many changed readings."""
    alarms = after(watched(), readings, **changes)
    assert said(alarms) == [(kind, layer)]
    (alarm,) = alarms
    assert alarm.step == 30 + readings
    assert alarm.sentence.endswith((".", "?")) and layer in alarm.sentence
    assert not math.isnan(alarm.threshold)
