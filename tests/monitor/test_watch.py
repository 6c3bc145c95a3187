"""When an alarm comes, when it comes again, and that every kind can come."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from normgauge.monitor import thresholds
from normgauge.monitor.signs.normalizers import SigmaShift
from normgauge.monitor.signs.sign import Place
from normgauge.monitor.signs.weights import Capacity
from normgauge.monitor.watch import AlarmWatch
from tests.monitor.readings import HEAD, MAP, NORM, PAIRS, PLACES, reading, rows, said, watched


def after(watch: AlarmWatch, count: int, first: int = 31, **changes):
    """The alarms of the next readings, all changed alike."""
    return [alarm for step in range(first, first + count) for alarm in watch.observe(reading(step, **changes))]


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
    assert after(watch, thresholds.QUIET + 1, first=51) == []
    assert said(after(watch, 5, first=80, given=255.0)) == [("data_scale", "")]


def test_a_short_pause_is_no_recovery():
    watch = watched()
    after(watch, 3, given=255.0)
    after(watch, thresholds.QUIET - 5, first=34)
    assert after(watch, 3, first=50, given=255.0) == []


def test_symptoms_are_left_unsaid_while_a_cause_is_known():
    exploded = {MAP: {"scale_free_gradient": 1e6}}
    assert said(after(watched(), 5, changed=exploded)) == [("gradient_explosion", "b.1.map")]
    assert said(after(watched(), 5, changed=exploded, given=255.0)) == [("data_scale", "")]


CAUSES = {
    "data from the start": ("data_scale", "", {"given": 140.0}, 1),
    "data jump": ("data_scale", "", {"given": 0.01}, 1),
    "nan input": ("nan_input", "", {"given": math.nan, "loss": math.nan}, 1),
    "half overflow": (
        "half_overflow", "b.1.map", {"loss": math.nan, "half": True, "changed": {NORM: {"sigma_rms": math.nan}}}, 1,
    ),
    "half near": ("half_overflow", "b.1.map", {"half": True, "changed": {NORM: {"sigma_max": 3e4}}}, 1),
    "half backward": (
        "half_overflow", "", {"half": True, "changed": {MAP: {"gradient": math.inf, "frobenius": math.nan}}}, 1,
    ),
    "nan loss": ("nan", "", {"loss": math.inf}, 1),
    "nan gradient": ("nan", "b.1.map", {"changed": {MAP: {"gradient": math.nan, "frobenius": math.nan}}}, 1),
    "momentum": ("momentum", "", {"changed": {MAP: {"momentum": 0.999}}}, 1),
    "rate jump": (
        "learning_rate", "", {"rate": 10.0, "changed": {row: {"update": 0.5} for row in (0, 2, 4, 6)}}, 1,
    ),
    "rate from the start": ("learning_rate", "", {"changed": {row: {"update": 2.0} for row in (0, 2, 4, 6)}}, 1),
    "three long steps": ("learning_rate", "", {"changed": {row: {"update": 1.1} for row in (0, 2, 4, 6)}}, 3),
    "large weights": ("weight_scale", "b.1.map", {"changed": {MAP: {"frobenius": 2400.0}}}, 1),
    "small weights": ("weight_scale", "head", {"changed": {HEAD: {"frobenius": 1e-4}}}, 1),
    "growing alone": ("weight_scale", "b.1.map", {"changed": {MAP: {"frobenius": 14.0}}}, 1),
    "eps": ("eps_dominates", "b.1.norm", {"changed": {NORM: {"eps": 100.0, "sigma_rms": 10.02}}}, 1),
    "constant input": ("sigma_collapse", "b.1.norm", {"changed": {NORM: {"sigma_rms": 0.0032}}}, 1),
    "dead": ("dead_normalizer", "b.1.norm", {"changed": {NORM: {"frobenius": 0.0}}}, 1),
    "gain replaced": ("gamma_jump", "b.1.norm", {"changed": {NORM: {"update": 4.0}}}, 1),
    "decay known": (
        "gamma_decay", "", {"changed": {NORM: {"frobenius": 3.4, "rate": 0.01, "weight_decay": 1.0}}}, 1,
    ),
    "decay inferred": ("gamma_decay", "", {"changed": {row: {"frobenius": 2.0} for row in (1, 3, 5)}}, 1),
    "statistics used": ("stale_statistics", "b.1.norm", {"changed": {NORM: {"running": 0.4, "batch": 20.0}}}, 1),
    "statistics of others": ("stale_statistics", "b.1.norm", {"changed": {NORM: {"sigma_rms": 3.0}}}, 13),
    "statistics still": ("stale_statistics", "b.1.norm", {"changed": {NORM: {"running": 0.5}}}, 21),
    "labels": ("label_noise", "", {"loss": 2.5}, 4),
}  # fmt: skip


@pytest.mark.parametrize("case", CAUSES)
def test_a_cause_is_named(case):
    kind, layer, changes, readings = CAUSES[case]
    alarms = after(watched(), readings, **changes)
    assert said(alarms) == [(kind, layer)]
    (alarm,) = alarms
    assert alarm.step == 30 + readings
    assert alarm.sentence.endswith((".", "?")) and (layer in alarm.sentence)
    assert not math.isnan(alarm.threshold)


def test_what_is_wrong_at_the_start_is_said_at_the_first_reading():
    assert said(AlarmWatch(PLACES).observe(reading(1, given=140.0))) == [("data_scale", "")]
    odd = [replace(place, size=2.4e-4) if place.name == "b.1.map" else place for place in PLACES]
    assert said(AlarmWatch(odd).observe(reading(1))) == [("weight_scale", "b.1.map")]


def test_statistics_on_their_way_are_not_stale():
    watch = AlarmWatch(PLACES)
    for step in range(1, 100):
        running = 10.0 * 0.9**step + 0.36
        assert watch.observe(reading(step, changed={row: {"running": running} for row in (1, 3, 5)})) == []


def test_normalizers_frozen_on_purpose_are_not_stale():
    frozen = {row: {"running": 0.36, "batch": 0.4} for row in (1, 3, 5)}
    assert after(watched(), 50, changed=frozen) == []


def test_a_jump_of_the_loss_is_not_blamed_on_the_labels_when_something_moved():
    for moved in (
        {"changed": {NORM: {"sigma_rms": 6.0}}},
        {"changed": {MAP: {"frobenius": 6.0}}},
    ):
        alarms = after(watched(), 8, loss=2.5, **moved)
        assert "label_noise" not in [alarm.alarm for alarm in alarms], moved


def test_a_long_step_before_the_jump_clears_the_labels_and_one_after_it_does_not():
    long = {row: {"update": 0.4} for row in (0, 2, 4, 6)}
    watch = watched()
    watch.observe(reading(31, changed=long))
    assert after(watch, 8, first=32, loss=2.5) == []
    assert said(after(watched(), 8, loss=2.5, changed=long)) == [("label_noise", "")]


def test_one_high_loss_is_no_label_noise():
    watch = watched()
    for step in range(31, 60):
        assert watch.observe(reading(step, 2.5 if step % 10 == 0 else 0.5)) == []


def test_labels_are_blamed_only_where_the_network_was_seen_all_the_while():
    far = reading(40)
    assert watched().observe(replace(far, losses=[(step, 2.5) for step in range(31, 41)])) == []
    watch = watched()
    pairs = [replace(reading(step), losses=[(step - 1, 2.5), (step, 2.5)]) for step in (32, 34)]
    assert [said(watch.observe(pair)) for pair in pairs] == [[], [("label_noise", "")]]


def test_a_level_that_lasts_becomes_the_usual_one():
    watch = watched()
    assert said(after(watch, 200, loss=2.5)) == [("label_noise", "")]


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
    alarms = after(watched(60), readings, first=61, **changes)
    assert said(alarms) == [(kind, layer)]
    assert layer in alarms[0].sentence and alarms[0].sentence.endswith(".")


def test_sigma_that_follows_its_weights_is_a_change_of_gauge():
    sign = SigmaShift(PLACES)
    for step in range(1, 31):
        assert not list(sign.look(reading(step)))
    assert not list(sign.look(reading(31, changed={MAP: {"frobenius": 240.0}, NORM: {"sigma_rms": 60.0}})))
    (alarm,) = sign.look(reading(32, changed={NORM: {"sigma_rms": 60.0}}))
    assert (alarm.alarm, alarm.layer, round(alarm.value)) == ("sigma_explosion", "b.1.norm", 100)


def test_capacity_that_grows_over_thousands_of_steps_is_training():
    sign = Capacity(PLACES)
    for k in range(60):
        assert not list(sign.look(reading(1 + 300 * k, totals={"log10_folded": 0.3 * k})))


@pytest.mark.parametrize(("first", "later", "alarms"), [(1.0, 60.0, 1), (1.0, 9.0, 0), (30.0, 60.0, 0)])
def test_momentum_is_inferred_for_plain_sgd_only(first, later, alarms):
    watch = AlarmWatch(PLACES)
    found = []
    for step in range(1, 40):
        update = (first if step == 1 else later) * 1e-4 * 0.1
        found += watch.observe(reading(step, changed={row: {"update": update} for row in (0, 2, 4, 6)}, rate=1e-4))
    assert said(found) == [("momentum", "")] * alarms


@pytest.mark.parametrize(("scale", "word"), [(0.96, "larger"), (1.04, "smaller")])
def test_the_effective_rate_drifts_when_scale_free_weights_do(scale, word):
    watch = watched()
    found = []
    for step in range(31, 131):
        by = scale ** (step - 30)
        changed = {row: {"frobenius": 2.4 * by, "update": 0.02 * by} for row in (0, 2, 4, 6)}
        changed |= {row: {"sigma_rms": 0.6 * by, "running": 0.36 * by**2} for row in (1, 3, 5)}
        found += watch.observe(reading(step, changed=changed))
    assert {("effective_rate", f"b.{k}.map") for k in range(3)} == set(said(found))
    assert word in found[0].sentence


def test_a_scaler_that_skips_a_few_steps_is_healthy_and_many_are_not():
    skipped = {"half": True, "changed": {MAP: {"gradient": math.inf}}}
    assert after(watched(), thresholds.SKIPPED - 1, **skipped) == []
    assert said(after(watched(), thresholds.SKIPPED, **skipped)) == [("half_overflow", "")]


def test_after_the_weights_are_gone_nothing_more_is_said():
    watch = watched()
    gone = {row: dict.fromkeys(numbers, math.nan) for row, numbers in enumerate(rows())}
    assert said(watch.observe(reading(31, math.nan, gone, totals={"log10_folded": math.nan})))[0][0] == "nan"
    nothing = {"loss": math.nan, "changed": gone, "totals": {"log10_folded": math.nan}}
    assert after(watch, 50, first=32, **nothing) == []
    assert after(watch, 5, first=82, given=math.nan, half=True, **nothing) == []


def test_a_block_without_the_normalizer_of_its_sisters_is_named():
    places = [place for place in PLACES if place.name != "b.1.norm"]
    numbers = [row for place, row in zip(PLACES, rows(), strict=True) if place.name != "b.1.norm"]
    watch = AlarmWatch(places)
    seen = replace(reading(2), rows=numbers, pairs={0: 1, 3: 4})
    (alarm,) = watch.observe(seen)
    assert (alarm.alarm, alarm.layer) == ("missing_normalizer", "b.1.map")
    assert "b.1.norm" in alarm.sentence and "Inferred" in alarm.sentence


def test_a_layer_without_among_normalized_ones_is_named_from_the_wiring_alone():
    roles = {"one": "matrix", "n1": "norm", "two": "matrix", "three": "matrix", "n3": "norm", "out": "matrix"}
    places = [Place(name, role, (16,) if role == "norm" else (16, 16)) for name, role in roles.items()]
    kind = {place.name: row for place, row in zip(PLACES, rows(), strict=True)}
    numbers = [kind["b.0.norm" if place.role == "norm" else "b.0.map"] for place in places]
    seen = replace(reading(2), rows=numbers, pairs={0: 1, 3: 4})
    assert said(AlarmWatch(places).observe(seen)) == [("missing_normalizer", "two")]


def test_a_network_without_normalizers_or_with_plain_ends_misses_none():
    assert AlarmWatch(PLACES).observe(reading(2)) == []
    bare = [place for place in PLACES if place.role != "norm"]
    numbers = [row for place, row in zip(PLACES, rows(), strict=True) if place.role != "norm"]
    assert AlarmWatch(bare).observe(replace(reading(2), rows=numbers, pairs={})) == []
    assert PAIRS.get(HEAD) is None


def test_numbers_that_are_missing_are_no_trouble():
    watch = AlarmWatch(PLACES)
    for step in range(1, 50):
        empty = replace(reading(step), rows=[{} for _ in PLACES], totals={}, losses=[], rate=None, given=None)
        assert watch.observe(empty) == []


def test_a_loss_near_zero_may_double():
    watch = watched()
    for step in range(1, 60):
        after(watch, 1, loss=0.5 * 0.8**step)
    low = 0.5 * 0.8**59
    assert said(after(watch, 8, loss=3 * low)) == []
