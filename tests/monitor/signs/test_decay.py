"""Weight decay that takes the weights away: within the gradient of Adam, of all weights, of gains alone."""

from __future__ import annotations

import pytest

from normgauge.monitor.facts import Facts, LayerFacts
from normgauge.monitor.watch import AlarmWatch
from tests.monitor.readings import PLACES, reading


def facts(**others) -> Facts:
    """Layers that one optimizer holds."""
    return Facts([LayerFacts(held=1) for _ in PLACES], adaptive=True, **others)


@pytest.mark.parametrize(
    ("coupled", "left", "losses", "named"),
    [
        (True, 0.3, [3.0] * 30, 1),
        (False, 0.3, [3.0] * 30, 0),  # AdamW: such weights are as small as its rate makes them
        (True, 0.6, [3.0] * 30, 0),
        (True, 0.3, [3.0 * 0.9**k for k in range(30)], 0),  # it learns all the same
        (True, 0.3, [3.0] + [0.1] * 29, 0),  # and this one has learnt
    ],
)
def test_decay_inside_adam_that_takes_the_weights_away_is_named(coupled, left, losses, named):
    watch, known, found = AlarmWatch(PLACES), facts(coupled=coupled), []
    for step, loss in enumerate(losses, 1):
        size = {"frobenius": 2.4 * left, "weight_decay": 0.1, "gradient": 0.2}
        found += watch.observe(reading(step, loss, dict.fromkeys((0, 2, 4, 6), size), facts=known))
    assert [alarm.alarm for alarm in found if alarm.alarm == "coupled_decay"] == ["coupled_decay"] * named


NORMS, MAPS = (1, 3, 5), (0, 2, 4, 6)


def decaying(share: dict[int, float], loss=lambda step: 4.0, steps: int = 60) -> list:
    """The decays that are named where each step takes these shares of the layers, at a rate of 0.001."""
    watch, found = AlarmWatch(PLACES), []
    for step in range(1, steps):
        changed = {
            row: {"frobenius": place.size * (1 - share.get(row, 0.0)) ** step, "rate": 1e-3, "update": 1e-3,
                  "weight_decay": share.get(row, 0.0) / 1e-3}
            for row, place in enumerate(PLACES)
        }  # fmt: skip
        found += watch.observe(reading(step, loss(step), changed, facts=facts()))
    return [alarm for alarm in found if alarm.alarm.endswith("decay")]


def test_decay_of_all_weights_is_not_put_down_to_the_gains():
    (alarm,) = decaying(dict.fromkeys(range(len(PLACES)), 0.02))
    assert (alarm.alarm, alarm.layer) == ("weight_decay", "") and "takes 2.00% of the median matrix" in alarm.sentence
    assert "normalizers" not in alarm.advice and "for all weights" in alarm.advice


@pytest.mark.parametrize(
    ("share", "loss", "named"),
    [
        (dict.fromkeys(NORMS, 0.02), lambda step: 4.0, ["gamma_decay"]),
        (dict.fromkeys(range(7), 0.02), lambda step: 4.0 * 0.95**step, []),  # it learns all the same
        (dict.fromkeys(range(7), 1e-4), lambda step: 4.0, []),
    ],
)
def test_decay_is_named_where_it_does_harm(share, loss, named):
    assert [alarm.alarm for alarm in decaying(share, loss)] == named


@pytest.mark.parametrize(("known", "named"), [(None, ["gamma_decay"]), (0.0, []), (1e-3, [])])
def test_gains_that_shrink_are_not_put_down_to_a_decay_that_is_known_to_be_none(known, named):
    watch, found = AlarmWatch(PLACES), []
    for step in range(1, 60):
        decay = {} if known is None else {"weight_decay": known, "rate": 1e-3}
        changed = {row: {"frobenius": 4.0 * 0.98**step, "update": 0.08, **decay} for row in NORMS}
        found += watch.observe(reading(step, 0.5, changed, facts=facts()))
    assert [alarm.alarm for alarm in found] == named


def large(share: float, turn: float) -> list:
    """The alarms of three first steps of this length of which decay takes a share, at a rate of 0.01."""
    watch, found = AlarmWatch(PLACES), []
    known = Facts([LayerFacts(held=1) for _ in PLACES], adaptive=True, nodes={"SoftmaxBackward0": 2})
    for step in range(1, 4):
        changed = {
            row: {"frobenius": PLACES[row].size, "update": turn * PLACES[row].size, "rate": 1e-2,
                  "weight_decay": share / 1e-2}
            for row in MAPS
        }  # fmt: skip
        found += watch.observe(reading(step, 4.0, changed, facts=known))
    return found


@pytest.mark.parametrize(
    ("share", "turn", "first"),
    [
        (0.3, 0.5, ["weight_decay"]),  # most of the step, and at once
        (0.3, 0.7, []),  # what decay takes is not counted as the rate's
        (0.001, 0.5, ["learning_rate"]),
        (0.1, 0.9, ["learning_rate"]),  # a usual decay at a rate of 10
    ],
)
def test_decay_that_takes_most_of_a_step_is_named_before_the_rate(share, turn, first):
    found = large(share, turn)
    assert [alarm.alarm for alarm in found] == first
    if first == ["weight_decay"]:
        assert "takes 30.00% of the median matrix" in found[0].sentence and "by 50% of" in found[0].sentence


@pytest.mark.parametrize(("told", "began"), [(True, 31), (False, 36)])
def test_decay_is_dated_by_the_step_that_set_it_and_not_by_the_rate(told, began):
    watch, found = AlarmWatch(PLACES), []
    for step in range(1, 41):
        watch.story.note(step, 1e-3 * min(step / 5, 1.0), decay=(0.4 if step > 30 else 1e-5) if told else None)
        changed = {
            row: {"update": 0.5 * PLACES[row].size, "frobenius": PLACES[row].size, "rate": 1e-3, "weight_decay": 400.0}
            for row in MAPS
        }  # fmt: skip
        if step < 31 or step > 35:
            found += watch.observe(reading(step, 4.0, changed if step > 30 else None, facts=facts()))
        watch.story.hear(step, 4.0)
    (alarm,) = [alarm for alarm in found if alarm.alarm == "weight_decay"]
    assert (alarm.step, alarm.began) == (36, began)
