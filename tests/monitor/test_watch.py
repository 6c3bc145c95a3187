"""When an alarm comes, when it comes again, and that symptoms come where no cause is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from normgauge.monitor import thresholds
from normgauge.monitor.signs.sign import Alarm, Consequence
from normgauge.monitor.watch import AlarmWatch
from tests.monitor.readings import MAP, NORM, PLACES, after, reading, said, watched


def test_a_healthy_run_is_quiet():
    assert after(watched(), 300) == []


def test_a_learning_rate_that_falls_and_a_loss_that_falls_are_healthy():
    watch = watched()
    for step in range(31, 131):
        scale = 0.97 ** (step - 30)
        changed = {row: {"update": 0.02 * scale, "scale_free_gradient": 0.24 * scale} for row in (0, 2, 4, 6)}
        assert watch.observe(reading(step, 0.5 * scale, changed, rate=0.1 * scale)) == []


def test_an_alarm_comes_once_and_again_only_after_recovery():
    watch = watched()
    assert said(after(watch, 10, given=255.0)) == [("data_scale", "")]
    assert after(watch, 10, first=41, given=255.0) == []
    assert after(watch, thresholds.FOLDED_STEPS + 1, first=51) == []
    assert said(after(watch, 5, first=52 + thresholds.FOLDED_STEPS, given=255.0)) == [("data_scale", "")]


def test_a_short_pause_is_no_recovery():
    watch = watched()
    after(watch, 3, given=255.0)
    after(watch, thresholds.QUIET - 5, first=34)
    assert after(watch, 3, first=50, given=255.0) == []


EXPLODED = {MAP: {"scale_free_gradient": 1e6}}


def test_a_symptom_is_a_consequence_while_a_cause_is_known():
    assert said(after(watched(), 8, loss=1.0, changed=EXPLODED)) == [("gradient_explosion", "b.1.map")]
    cause, consequence = after(watched(), 8, loss=1.0, changed=EXPLODED, given=255.0)
    assert (cause.alarm, consequence.alarm) == ("data_scale", "gradient_explosion")
    assert isinstance(consequence, Consequence)
    assert (consequence.cause, consequence.cause_step) == ("data_scale", cause.step)


def test_what_shows_long_after_an_incident_is_one_of_its_own():
    watch = watched()
    after(watch, 2, given=255.0)
    after(watch, thresholds.FOLDED_STEPS, first=33)
    (alarm,) = after(watch, 8, first=34 + thresholds.FOLDED_STEPS, loss=1.0, changed=EXPLODED)
    assert isinstance(alarm, Alarm)


def test_a_symptom_beside_a_loss_at_its_best_is_none():
    assert after(watched(), 8, changed=EXPLODED) == []


def test_settings_that_are_wrong_by_themselves_are_incidents_of_their_own():
    both = after(watched(), 3, given=255.0, changed={MAP: {"momentum": 0.999}})
    assert said(both) == [("data_scale", ""), ("momentum", "")] and all(isinstance(x, Alarm) for x in both)


def test_what_is_wrong_at_the_start_is_said_at_the_first_reading():
    assert said(AlarmWatch(PLACES).observe(reading(1, given=140.0))) == [("data_scale", "")]
    odd = [replace(place, size=2.4e-4) if place.name == "b.1.map" else place for place in PLACES]
    assert said(AlarmWatch(odd).observe(reading(1))) == [("weight_scale", "b.1.map")]


SYMPTOMS = {
    "sigma up": ("sigma_explosion", "b.1.norm", {"changed": {NORM: {"sigma_rms": 60.0}}}, 1),
    "sigma down": ("sigma_collapse", "b.1.norm", {"changed": {NORM: {"sigma_rms": 0.01}}}, 1),
    "gradient up": ("gradient_explosion", "b.1.map", {"changed": {MAP: {"scale_free_gradient": 1e4}}}, 3),
    "gradient gone": ("gradient_vanishing", "b.1.map", {"changed": {MAP: {"scale_free_gradient": 1e-9}}}, 3),
    "capacity": ("capacity_growth", "b.1.map", {"totals": {"log10_folded": 4.0}, "changed": {MAP: {"folded": 2e3}}}, 1),
}


@pytest.mark.parametrize("case", SYMPTOMS)
def test_a_symptom_is_named(case):
    kind, layer, changes, readings = SYMPTOMS[case]
    alarms = after(watched(60), readings + 6, first=61, loss=1.0, **changes)
    assert said(alarms[:1]) == [(kind, layer)] and all(isinstance(x, Consequence) for x in alarms[1:])
    assert layer in alarms[0].sentence and alarms[0].sentence.endswith(".")


def test_numbers_that_are_missing_are_no_trouble():
    watch = AlarmWatch(PLACES)
    for step in range(1, 50):
        empty = replace(reading(step), rows=[{} for _ in PLACES], totals={}, losses=[], rate=None, given=None)
        assert watch.observe(empty) == []
