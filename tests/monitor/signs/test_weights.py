"""Weights of an odd size, gradients that explode or vanish, capacity that grows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from normgauge.monitor.facts import Facts, LayerFacts
from normgauge.monitor.signs.weights import Capacity, Gradients
from normgauge.monitor.watch import AlarmWatch
from tests.monitor.readings import HEAD, MAP, PLACES, named, reading, said

CAUSES = {
    "large weights": ("weight_scale", "b.1.map", {"changed": {MAP: {"frobenius": 2400.0}}}, 1),
    "small weights": ("weight_scale", "head", {"changed": {HEAD: {"frobenius": 1e-4}}}, 1),
    "growing alone": ("weight_scale", "b.1.map", {"changed": {MAP: {"frobenius": 14.0}}}, 1),
}  # fmt: skip


@pytest.mark.parametrize("case", CAUSES)
def test_a_cause_is_named(case):
    named(*CAUSES[case])


def test_capacity_that_grows_over_thousands_of_steps_is_training():
    sign = Capacity(PLACES)
    for k in range(60):
        assert not list(sign.look(reading(1 + 300 * k, totals={"log10_folded": 0.3 * k})))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ([0.24] * 13, "By the readings it rose there first."),
        ([0.24] * 8 + [1e3] * 5, "and not first: it rose in b.0.map before, at step 9."),
        ([1e-4, 0.24, *[0.24] * 11], "and not first: it rose in b.0.map before, at step 2."),  # its level is settled
        ([0.24] * 10 + [1e3] * 3, "1 other layer rose at the same reading."),
    ],
)
def test_a_gradient_is_said_to_explode_first_only_where_no_other_rose_before(other, said):
    sign, found = Gradients(PLACES), []
    for step, size in enumerate(other, 1):
        changed = {0: {"scale_free_gradient": size}, MAP: {"scale_free_gradient": 0.24 if step <= 10 else 1e6}}
        found += sign.look(reading(step, changed=changed))
    alarm = found[-1]
    assert (alarm.alarm, alarm.layer) == ("gradient_explosion", "b.1.map") and alarm.sentence.endswith(said)


def test_where_all_gradients_rise_alike_no_layer_is_named_and_the_first_such_reading_dates_it():
    sign, found = Gradients(PLACES), []
    for step in range(1, 14):
        factor = 1.0 if step <= 10 else 1e4
        changed = {
            row: {"scale_free_gradient": 0.24 * factor * (4.0 if factor > 1.0 and row == MAP else 1.0)}
            for row in (0, 2, 4, 6)
        }
        found += sign.look(reading(step, changed=changed))
    alarm = found[-1]
    assert (alarm.alarm, alarm.layer, alarm.step, alarm.began) == ("gradient_explosion", "", 13, 11)
    assert "of all 4 matrices and convolutions is 1e+04 to 4e+04 times its level at step 13" in alarm.sentence


def test_layers_of_an_odd_scale_are_named_together_and_what_lies_far_behind_them_is_not_judged():
    odd = {row: {"frobenius": 2400.0} for row in (MAP, HEAD)}
    began = [replace(place, size=2400.0) if row in odd else place for row, place in enumerate(PLACES)]
    (alarm,) = AlarmWatch(began).observe(reading(1, changed=odd))
    assert alarm.sentence == (
        "b.1.map: the rows of its weight have norm 600, those of the median layer 0.6; a normalizer follows straight "
        "behind it. Also far from it: head."
    )
    (alarm,) = AlarmWatch([*PLACES[:HEAD], began[HEAD]]).observe(reading(1, changed={HEAD: odd[HEAD]}))
    assert "; no normalizer follows straight behind it." in alarm.sentence and "outputs" not in alarm.sentence


@pytest.mark.parametrize(
    ("rate", "update", "size", "named"),
    [
        (1.0, 11.0, 12.0, 1),
        (1.0, 5.0, 12.0, 0),  # a step that leaves most of the weight
        (0.02, 11.0, 12.0, 0),  # a rate that is no more than 20 times the others'
        (1.0, 0.1, 0.1, 0),  # a head that began small catches up
    ],
)
def test_a_layer_whose_rate_is_far_above_the_others_and_replaces_it_is_named(rate, update, size, named):
    watch = AlarmWatch(PLACES)
    known = Facts([LayerFacts(held=1, owner=0) for _ in PLACES], adaptive=True)
    changed = {row: {"rate": 1e-3} for row in range(len(PLACES))}
    changed[MAP] = {"rate": rate, "update": update, "frobenius": size}
    found = watch.observe(reading(1, 4.0, changed, facts=known, rate=1e-3))
    assert said(found) == [("rate_apart", "b.1.map")] * named
    if named:
        assert "the learning rate is 1, " in found[0].sentence and "slower layers 0.001" in found[0].sentence
        assert "group" in found[0].advice
