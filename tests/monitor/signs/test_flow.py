"""Gradients that are missing, dead units, gradients that shrink with depth."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from normgauge.monitor.facts import Facts, LayerFacts
from normgauge.monitor.signs.sign import Place
from normgauge.monitor.thresholds import BARE_ROW, BARE_STEPS, THAW_STEPS
from normgauge.monitor.watch import AlarmWatch
from tests.monitor.readings import HEAD, MAP, NORM, PLACES, reading, said

HELD = Facts([LayerFacts(held=1) for _ in PLACES])
BARE = {"gradient": 0.0, "scale_free_gradient": 0.0, "update": 0.0}


def looked(steps, watch: AlarmWatch | None = None, **changes) -> list[tuple[str, str]]:
    watch = watch or AlarmWatch(PLACES)
    return said([x for step in steps for x in watch.observe(reading(step, **{"facts": HELD, **changes}))])


def test_a_layer_without_a_gradient_is_named_and_a_reading_asked_for_where_few_come():
    watch = AlarmWatch(PLACES)
    for step in range(1, BARE_ROW):
        watch.story.wanted = False
        assert looked([step], watch, changed={MAP: BARE}) == []
        assert watch.story.wanted == (step > 1)  # the next one, until there are enough in a row
    assert looked([BARE_ROW], watch, changed={MAP: BARE}) == []
    watch.story.wanted = False
    watch.story.note(BARE_STEPS, 0.1)
    assert watch.story.wanted
    assert looked([BARE_STEPS + 1], watch, changed={MAP: BARE}) == [("no_gradient", "b.1.map")]


def test_a_layer_that_is_trained_at_every_second_step_is_healthy_at_whatever_steps_it_is_read():
    watch = AlarmWatch(PLACES)
    found = []
    for step in range(1, 200):
        if watch.story.wanted or step in (1, 2, 4, 8, 16, 32, 64, 128):
            watch.story.wanted = False
            found += looked([step], watch, changed={MAP: BARE} if step % 2 == 0 else {})
        else:
            watch.story.note(step, 0.1)
    assert found == []


def test_a_light_reading_says_nothing_about_updates():
    watch = AlarmWatch(PLACES)
    found = []
    for step in range(1, 20):
        seen = reading(step, facts=HELD, changed={MAP: {"update": 0.0}})
        if step % 10 == 0:
            seen = replace(seen, rows=[{k: v for k, v in row.items() if k != "update"} for row in seen.rows])
        found += said(watch.observe(seen))
    assert found == [("no_update", "b.1.map")]


def test_gradients_that_no_layer_has_are_missed_unless_the_weights_move():
    nothing = {row: {**BARE, "bias_gradient": 0.0} for row in range(len(PLACES))}
    assert looked(range(1, 30), changed=nothing) == [("no_gradient", "b.0.map")]
    cleared = {row: {"gradient": 0.0, "scale_free_gradient": 0.0, "update": 0.02} for row in range(len(PLACES))}
    assert looked(range(1, 30), changed=cleared) == []


def test_what_begins_at_zero_and_wakes_up_is_healthy_and_so_is_what_is_frozen():
    watch = AlarmWatch(PLACES)
    assert looked(range(1, 4), watch, changed={MAP: BARE}) + looked(range(4, 60), watch) == []
    frozen = Facts([LayerFacts(trains=row != MAP, held=1) for row, _ in enumerate(PLACES)])
    assert looked(range(1, 60), changed={MAP: BARE}, facts=frozen) == []


def test_a_tied_layer_is_measured_under_its_other_name():
    watch = AlarmWatch(PLACES)
    for step in range(1, 30):
        seen = reading(step, facts=HELD)
        assert watch.observe(replace(seen, rows=[{} if row == HEAD else x for row, x in enumerate(seen.rows)])) == []


def test_a_layer_with_a_gradient_that_does_not_move_is_named():
    assert looked(range(1, 30), changed={MAP: {"update": 0.0}}) == [("no_update", "b.1.map")]
    still = {MAP: {"update": 0.0, "rate": 0.0}}
    assert looked(range(1, THAW_STEPS), changed=still) == []  # perhaps it is thawed later
    assert looked(range(1, THAW_STEPS + 2), changed=still) == [("no_update", "b.1.map")]


def test_what_bfloat16_cannot_step_is_said_so_and_a_gain_of_1_is_not_expected_to_move():
    half = Facts([LayerFacts(held=1, dtype=torch.bfloat16) for _ in PLACES])
    assert looked(range(1, 30), changed={MAP: {"update": 0.0}}, facts=half) == [("update_lost", "b.1.map")]
    assert looked(range(1, 30), changed={NORM: {"update": 0.0}}, facts=half) == []


def test_a_layer_that_stands_still_because_the_rate_has_faded_is_not_blamed():
    watch = AlarmWatch(PLACES)
    assert looked(range(1, 20), watch) == []
    faded = looked(range(20, 45), watch, changed={MAP: {"update": 0.0}}, rate=1e-6)
    assert ("no_update", "b.1.map") not in faded


def test_a_layer_behind_which_only_biases_learn_is_dead():
    starved = {HEAD: {"gradient": 0.0, "bias_gradient": 0.1}}
    assert looked(range(1, 4), changed=starved)[:1] == [("dead_relu", "b.2.map")]
    assert looked(range(1, 30), changed={HEAD: {"bias_gradient": 0.1}}) == []


PLAIN = [Place(f"l.{k}", "matrix", (16, 16), 2.4) for k in range(9)]


@pytest.mark.parametrize(
    ("factor", "nodes", "kind"),
    [
        (0.1, {"SigmoidBackward0": 8}, "vanishing_gradient"),
        (0.1, {"ReluBackward0": 8}, "no_normalizer"),
        (10.0, {"ReluBackward0": 8}, "no_normalizer"),
        (0.8, {"SigmoidBackward0": 8}, ""),
    ],
)
def test_gradients_that_change_with_depth(factor, nodes, kind):
    rows = [{"frobenius": 2.4, "update": 0.02, "gradient": 0.1 * factor ** (8 - k)} for k in range(9)]
    known = Facts([LayerFacts(held=1) for _ in PLAIN], nodes=nodes)
    watch = AlarmWatch(PLAIN)
    seen = [replace(reading(step), rows=rows, pairs={}, facts=known) for step in (1, 2)]
    layer = "l.0" if kind == "vanishing_gradient" else ""  # what no layer has, the network lacks
    assert said([x for one in seen for x in watch.observe(one)]) == ([(kind, layer)] if kind else [])


def stood_still(steps, changed, **known) -> list:
    watch, facts = AlarmWatch(PLACES), replace(HELD, **known)
    return [x for step in range(1, steps) for x in watch.observe(reading(step, facts=facts, changed=changed))]


def test_layers_of_a_group_whose_rate_is_0_are_named_together_with_what_to_do():
    still = {row: {"update": 0.0, "rate": 0.0} for row in (MAP, NORM)}
    (alarm,) = stood_still(THAW_STEPS + 2, still)
    assert alarm.layer == "b.1.map" and alarm.sentence.startswith("b.1.map, b.1.norm: it gets no update. Its weight")
    assert "learning rate is 0)" in alarm.sentence and alarm.advice.startswith("Raise the learning rate")


def test_a_gain_of_1_that_float32_cannot_step_is_put_down_to_the_rate():
    still = {row: {"update": 0.0, "rate": 1e-8} for row in (1, 3, 5)}
    (alarm,) = stood_still(30, still, adaptive=True, betas=(0.9, 0.999))
    assert (alarm.alarm, alarm.layer) == ("rate_small", "b.0.norm") and "none below 3e-08" in alarm.sentence
    assert alarm.sentence.startswith("b.0.norm, b.1.norm, b.2.norm: the learning rate is too small for float32.")
    (alarm,) = stood_still(30, {row: {"update": 0.0, "rate": 1e-3} for row in (1, 3, 5)}, betas=(0.9, 0.999))
    assert alarm.alarm == "no_update"
    (alarm,) = stood_still(30, still)  # of others than Adam a step's length is not known
    assert alarm.alarm == "no_update"


def test_a_gradient_that_is_missing_says_nothing_about_the_loss():
    (alarm,) = stood_still(30, {MAP: BARE})
    assert alarm.alarm == "no_gradient" and "does not depend" not in alarm.sentence
