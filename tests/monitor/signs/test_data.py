"""The size of the input, and labels blamed for a loss that jumps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from normgauge.monitor.facts import Facts
from normgauge.monitor.signs.data import _listed
from normgauge.monitor.watch import AlarmWatch
from tests.monitor.readings import MAP, NORM, PLACES, after, named, reading, said, watched

CLASSES = Facts(classes=10)
CAUSES = {
    "data from the start": ("data_scale", "", {"given": 140.0}, 1),
    "data jump": ("data_scale", "", {"given": 0.01}, 1),
    "labels": ("label_noise", "", {"loss": 2.5, "facts": CLASSES}, 4),
}  # fmt: skip


@pytest.mark.parametrize("case", CAUSES)
def test_a_cause_is_named(case):
    named(*CAUSES[case])


def test_a_jump_of_the_loss_is_not_blamed_on_the_labels_when_something_moved():
    for moved in (
        {"changed": {NORM: {"sigma_rms": 6.0}}},
        {"changed": {MAP: {"frobenius": 6.0}}},
    ):
        alarms = after(watched(), 8, loss=2.5, facts=CLASSES, **moved)
        assert "label_noise" not in [alarm.alarm for alarm in alarms], moved


def test_a_long_step_before_the_jump_clears_the_labels_and_one_after_it_does_not():
    long = {row: {"update": 0.4} for row in (0, 2, 4, 6)}
    watch = watched()
    watch.observe(reading(31, changed=long))
    assert said(after(watch, 8, first=32, loss=2.5, facts=CLASSES)) == [("learning_rate", "")]
    longer = {row: {"update": 0.1} for row in (0, 2, 4, 6)}  # as noisy labels make them
    assert said(after(watched(), 6, loss=2.5, changed=longer, facts=CLASSES)) == [("label_noise", "")]


def test_one_high_loss_is_no_label_noise():
    watch = watched()
    for step in range(31, 60):
        assert watch.observe(reading(step, 2.5 if step % 10 == 0 else 0.5)) == []


def test_labels_are_blamed_only_where_the_network_was_seen_all_the_while():
    far = reading(40, facts=CLASSES)
    assert watched().observe(replace(far, losses=[(step, 2.5) for step in range(31, 41)])) == []
    watch = watched()
    pairs = [replace(reading(step, facts=CLASSES), losses=[(step - 1, 2.5), (step, 2.5)]) for step in (32, 34)]
    assert [said(watch.observe(pair)) for pair in pairs] == [[], [("label_noise", "")]]


def test_a_level_that_lasts_becomes_the_usual_one():
    watch = watched()
    assert said(after(watch, 200, loss=2.5, facts=CLASSES)) == [("label_noise", "")]


def test_labels_of_other_losses_are_not_blamed():
    assert after(watched(), 50, loss=2.5) == []


def test_a_loss_near_zero_may_double():
    watch = watched()
    for step in range(1, 60):
        after(watch, 1, loss=0.5 * 0.8**step)
    low = 0.5 * 0.8**59
    assert said(after(watch, 8, loss=3 * low)) == []


def test_labels_are_blamed_with_what_was_compared_and_no_more():
    (alarm,) = after(watched(), 6, loss=2.5, facts=CLASSES)
    assert "the input's size, every σ, the weights' norms and the steps before were as usual" in alarm.sentence
    assert "every σ" not in _listed({("weight", 0): 1.0, ("sigma", 0): None})  # a network without normalizers


@pytest.mark.parametrize(
    ("changed", "kind"),
    [({"sigma_rms": 0.96}, "batch_change"), ({"sigma_min": 0.08}, "batch_change"), ({}, "label_noise")],
)
def test_a_sigma_that_left_its_own_range_with_the_loss_speaks_of_the_data(changed, kind):
    watch = AlarmWatch(PLACES)
    for step in range(1, 61):
        wave = 1.0 + 0.05 * (-1) ** step
        usual = {NORM: {"sigma_rms": 0.6 * wave, "sigma_min": 0.03 * wave}}
        assert watch.observe(reading(step, changed=usual, totals={"gradient": wave})) == []
    bad = {NORM: {"sigma_rms": 0.6, "sigma_min": 0.03, **changed}}
    (alarm,) = after(watch, 6, first=61, loss=2.5, facts=CLASSES, changed=bad, totals={"gradient": 1.5})
    assert (alarm.alarm, alarm.began) == (kind, 61)
    assert "the norm of all gradients was 1.5 at step 61, and 0.95 to 1.05 in the 20 readings" in alarm.sentence
    assert ("every σ" in alarm.sentence) == (kind == "label_noise")
    if "sigma_rms" in changed:
        assert "σ of b.1.norm was 0.96 at step 61, and 0.57 to 0.63 in the 20 readings before" in alarm.sentence


def test_a_loss_a_hundred_times_that_of_the_start_is_no_doing_of_labels():
    watch = watched()
    for step in range(31, 61):
        watch.observe(reading(step, totals={"gradient": 1.0}))
    (alarm,) = after(watch, 6, first=61, loss=500.0, facts=CLASSES, totals={"gradient": 1e3})
    assert (alarm.alarm, alarm.began) == ("gradient_jump", 61) and "what multiplies the loss" in alarm.advice
