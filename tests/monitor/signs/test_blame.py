"""Of steps that are too long, which of the reasons is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from normgauge.monitor.facts import Facts
from normgauge.monitor.signs.sign import Place
from normgauge.monitor.watch import AlarmWatch
from tests.monitor.readings import PLACES, reading, said

ATTENTION = {"ScaledDotProductFlashAttentionForCpuBackward0": 4}
DEEP = [Place(f"l.{k}", "matrix", (16, 16), 2.4) for k in range(7)]


def diverging(known: Facts, first: float = 2.0, turn: float = 0.1, places=PLACES):
    """The alarms of a loss that doubles at each step, with steps of this relative length."""
    watch = AlarmWatch(places)
    rows = [{"frobenius": 2.4, "update": 2.4 * turn, "gradient": 0.1} for _ in places]
    found = []
    for step in range(1, 12):
        seen = reading(step, first * 1.5**step, facts=known, pairs={})
        found += watch.observe(replace(seen, rows=rows))
    return said(found)[:1]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("learning_rate", {"known": Facts(adaptive=False)}),
        ("loss_reduction", {"known": Facts(adaptive=False, reduction="sum")}),
        ("learning_rate", {"known": Facts(adaptive=True, reduction="sum")}),
        ("data_scale", {"known": Facts(adaptive=False), "first": 1e6}),
        ("no_warmup", {"known": Facts(adaptive=True, nodes=ATTENTION)}),
        ("learning_rate", {"known": Facts(adaptive=True, nodes=ATTENTION), "turn": 0.5}),
        ("learning_rate", {"known": Facts(adaptive=True), "places": DEEP}),
        ("no_normalizer", {"known": Facts(adaptive=True), "places": [*DEEP, Place("out", "matrix", (4, 16), 1.0)]}),
    ],
)
def test_the_first_reason_that_applies_is_named(kind, given):
    assert diverging(**given) == [(kind, "")]


def test_a_loss_that_rises_beside_small_steps_is_not_theirs():
    assert diverging(Facts(adaptive=True), turn=0.005) == []
