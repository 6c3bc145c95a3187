"""Of steps that are too long, which of the reasons is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from normgauge.monitor import thresholds
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


def first_alarm(turns, losses, known):
    """The first alarm of a training with these relative steps and losses."""
    watch = AlarmWatch(PLACES)
    for step, (turn, loss) in enumerate(zip(turns, losses, strict=True), 1):
        rows = [{"frobenius": 2.4, "update": 2.4 * turn, "gradient": 0.1} for _ in PLACES]
        for alarm in watch.observe(replace(reading(step, loss, facts=known, pairs={}), rows=rows)):
            return alarm
    return None


def test_the_number_and_the_threshold_that_fired_are_stored_and_every_step_is_told():
    cold = Facts(adaptive=True, nodes=ATTENTION)
    alarm = first_alarm([0.51, 0.31, 0.22], [3.0, 2.9, 2.8], cold)
    assert alarm is not None and "51%, 31% and 22%" in alarm.sentence and "median layer" in alarm.sentence
    assert (round(alarm.value, 2), alarm.threshold) == (1.04, thresholds.TURN_FROZEN)
    alarm = first_alarm([0.1] * 4, [2.0, 4.0, 9.0, 20.0], Facts(adaptive=False))
    assert alarm is not None and alarm.sentence.endswith("too high; the loss went from 2 at first to 20 at step 4.")
    assert (alarm.value, alarm.threshold) == (9.0, 2.0 * thresholds.LOSS_RISEN)  # the median of the last three


@pytest.mark.parametrize(("stays", "said"), [(False, "was too high: it went"), (True, "is too high: it went")])
def test_one_step_at_a_rate_that_jumped_is_blamed_for_the_loss_after_it(stays, said):
    watch, found = AlarmWatch(PLACES), []
    for step in range(1, 60):
        watch.story.note(step, rate := 0.1 if step == 31 or (stays and step > 31) else 1e-3)
        loss = 4.0 * 0.98**step if step <= 31 else 4.5 * 0.98 ** (step - 31)
        if step != 32:  # that of the jump itself was not read
            found += watch.observe(reading(step, loss, rate=rate, facts=Facts(adaptive=True)))
        watch.story.hear(step, loss)
    (alarm, *others) = found
    assert (alarm.alarm, alarm.began, others) == ("learning_rate", 31, [])
    assert said in alarm.sentence and "at step 31" in alarm.sentence
    assert "still fell" not in alarm.advice and "still rising" not in alarm.sentence
    assert (", and is 0.001 at step " in alarm.sentence) != stays


def test_what_a_cross_entropy_costs_at_first_comes_from_no_target_that_could_be_scaled():
    assert diverging(Facts(adaptive=False, classes=65), first=1e6) == [("learning_rate", "")]


def test_a_sum_is_divided_by_its_summands_and_not_by_the_samples():
    alarm = first_alarm([0.1] * 4, [2.0, 4.0, 9.0, 20.0], Facts(adaptive=False, reduction="sum"))
    assert alarm is not None and alarm.alarm == "loss_reduction"
    assert "by the number of summands" in alarm.advice and "batch size" not in alarm.advice


def jumping(
    at: int, unread: int = 0, rates=lambda step: 0.1, factor: float = 1e3, turn: float = 0.01, more: int = 4
) -> list:
    """The alarms of a run with short steps whose gradient jumps at a step, and whose loss does after it."""
    watch, found = AlarmWatch(PLACES), []
    for step in range(1, at + more):
        long, hit = step >= at, step > at
        loss = 2.5 * 40.0 ** min(step - at, 20) if hit else 2.5
        watch.story.note(step, rates(step))
        watch.story.hear(step, loss)
        if at - unread < step <= at + (unread > 0):
            continue  # not read
        changed = {row: {"update": (2.2 if long else 2.4 * turn)} for row in (0, 2, 4, 6)}
        totals = {"gradient": 0.6 * (factor if long else 1.0)}
        found += watch.observe(reading(step, loss, changed, rate=rates(step), totals=totals))
    return found


def test_a_gradient_that_jumps_in_one_step_at_the_same_rate_and_loss_is_not_blamed_on_the_rate():
    alarm, *_ = jumping(60)
    assert (alarm.alarm, alarm.began) == ("gradient_jump", 60)
    assert "from 0.6 at step 59 to 600 at step 60, while the loss was 2.5" in alarm.sentence
    assert "did not rise (0.1)" in alarm.sentence and "too high" not in alarm.sentence and "rate" not in alarm.advice
    assert jumping(60, factor=3.0)[0].alarm == "learning_rate"  # as longer steps leave it
    assert jumping(60, rates=lambda step: 0.1 if step < 59 else 1.0)[0].alarm == "learning_rate"


def test_a_loss_that_jumps_where_no_step_was_read_is_not_asserted_to_be_the_rates_doing():
    alarm, *_ = jumping(60, unread=10)
    assert (alarm.alarm, alarm.began) == ("loss_jump", 61)
    assert "from 2.5 at step 60 to 100 at step 61" in alarm.sentence and "between 50 and 61" in alarm.sentence
    assert "every=1" in alarm.advice and "too high" not in alarm.sentence
    assert jumping(60, unread=10, turn=0.2)[0].alarm == "learning_rate"  # long steps were read before it
    assert jumping(30, unread=10)[0].alarm == "learning_rate"  # early losses jump by themselves


def test_a_rate_is_blamed_since_the_first_of_the_readings_with_long_steps():
    watch, found = AlarmWatch(DEEP), []
    for step in range(1, 160):
        turn = 0.8 if step == 1 or step > 140 else 0.01
        rows = [{"frobenius": 2.4, "update": 2.4 * turn, "gradient": 0.1} for _ in DEEP]
        loss = 4.0 - 0.02 * min(step, 140) + 0.4 * max(0, step - 143)
        found += watch.observe(replace(reading(step, loss, facts=Facts(adaptive=False), pairs={}), rows=rows))
    assert (found[0].alarm, found[0].began) == ("learning_rate", 141)


def summed(adaptive: bool, far: bool) -> list:
    """The alarms of a mean that becomes a sum at step 60, every step read, or every tenth and those after it."""
    watch, found = AlarmWatch(PLACES), []
    known = Facts(adaptive=adaptive, reduction="sum", classes=10, entropy=True)
    for step in range(1, 75):
        after = step >= 60
        watch.story.note(step, 0.1, reduction="sum" if after else "mean")
        turn = 0.01 if adaptive or not after else 0.9
        rows = [{"frobenius": 2.4, "update": 2.4 * turn, "gradient": 0.1} for _ in PLACES]
        gradient = 500.0 if after else 0.5
        loss = 2000.0 if after else 2.0
        if not far or (step % 10 == 0 and step < 60) or step > 60:
            seen = reading(step, loss, facts=known, pairs={}, totals={"gradient": gradient, "log10_folded": 1.0})
            found += watch.observe(replace(seen, rows=rows))
        watch.story.hear(step, loss)
    return found


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("far", [False, True])
def test_a_mean_that_becomes_a_sum_is_dated_and_named_first(adaptive, far):
    cause, *others = summed(adaptive, far)
    assert (cause.alarm, cause.began) == ("loss_reduction", 60)
    assert "a sum from step 60 on; up to then it was a mean" in cause.sentence and "from 2 at step 59" in cause.sentence
    assert "label_noise" not in {other.alarm for other in others}
    assert all(getattr(other, "set_at", None) is None for other in others)  # neither is the rate a suspect


@pytest.mark.parametrize("unread", [0, 10])
def test_a_rate_that_stayed_is_no_suspect_beside_a_jump_of_the_gradient_or_the_loss(unread):
    found = jumping(60, unread=unread, more=40)
    assert found[0].alarm == ("loss_jump" if unread else "gradient_jump")
    assert "learning_rate" not in {alarm.alarm for alarm in found}
