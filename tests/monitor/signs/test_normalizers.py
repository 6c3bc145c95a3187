"""Normalizers: missing, starved, dead, decaying, or with statistics of other data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from normgauge.monitor.signs.normalizers import SigmaShift
from normgauge.monitor.signs.sign import Place
from normgauge.monitor.watch import AlarmWatch
from tests.monitor.readings import HEAD, MAP, NORM, PAIRS, PLACES, after, named, reading, rows, said, watched

CAUSES = {
    "eps": ("eps_dominates", "b.1.norm", {"changed": {NORM: {"eps": 100.0, "sigma_rms": 10.02}}}, 1),
    "constant input": ("sigma_collapse", "b.1.norm", {"loss": 1.5, "changed": {NORM: {"sigma_rms": 0.0032}}}, 4),
    "dead": ("dead_normalizer", "b.1.norm", {"changed": {NORM: {"frobenius": 0.0}}}, 1),
    "gain replaced": ("gamma_jump", "b.1.norm", {"changed": {NORM: {"update": 4.0}}}, 1),
    "decay known": (
        "gamma_decay", "", {"changed": {NORM: {"frobenius": 3.4, "rate": 0.01, "weight_decay": 1.0}}}, 1,
    ),
    "decay inferred": ("gamma_decay", "", {"changed": {row: {"frobenius": 2.0} for row in (1, 3, 5)}}, 1),
    "statistics used": ("stale_statistics", "b.1.norm", {"changed": {NORM: {"running": 0.4, "batch": 20.0}}}, 1),
    "statistics of others": ("stale_statistics", "b.1.norm", {"changed": {NORM: {"sigma_rms": 3.0}}}, 13),
    "statistics still": ("stale_statistics", "b.1.norm", {"changed": {NORM: {"running": 0.5}}}, 21),
}  # fmt: skip


@pytest.mark.parametrize("case", CAUSES)
def test_a_cause_is_named(case):
    named(*CAUSES[case])


def test_weight_decay_is_not_blamed_for_what_it_cannot_have_taken():
    """1 % a step takes 9 % in nine steps: a gain that has lost far more by then was moved by something else."""
    watch = AlarmWatch(PLACES)
    for step in range(1, 10):
        lost = {"frobenius": 4.0 - 0.2 * step, "rate": 0.01, "weight_decay": 1.0}
        assert "gamma_decay" not in [kind for kind, _ in said(watch.observe(reading(step, changed={NORM: lost})))]


def test_statistics_on_their_way_are_not_stale():
    watch = AlarmWatch(PLACES)
    for step in range(1, 100):
        running = 10.0 * 0.9**step + 0.36
        assert watch.observe(reading(step, changed={row: {"running": running} for row in (1, 3, 5)})) == []


def test_normalizers_frozen_on_purpose_are_not_stale():
    frozen = {row: {"running": 0.36, "batch": 0.4} for row in (1, 3, 5)}
    assert after(watched(), 50, changed=frozen) == []


def test_sigma_that_follows_its_weights_is_a_change_of_gauge():
    sign = SigmaShift(PLACES)
    for step in range(1, 31):
        assert not list(sign.look(reading(step)))
    assert not list(sign.look(reading(31, changed={MAP: {"frobenius": 240.0}, NORM: {"sigma_rms": 60.0}})))
    (alarm,) = sign.look(reading(32, changed={NORM: {"sigma_rms": 60.0}}))
    assert (alarm.alarm, alarm.layer, round(alarm.value)) == ("sigma_explosion", "b.1.norm", 100)


def test_a_block_without_the_normalizer_of_its_sisters_is_named():
    places = [place for place in PLACES if place.name != "b.1.norm"]
    numbers = [row for place, row in zip(PLACES, rows(), strict=True) if place.name != "b.1.norm"]
    watch = AlarmWatch(places)
    seen = replace(reading(2), rows=numbers, pairs={0: 1, 3: 4})
    (alarm,) = watch.observe(seen)
    assert (alarm.alarm, alarm.layer) == ("missing_normalizer", "b.1.map")
    assert "b.1.norm" in alarm.sentence and "Inferred" in alarm.sentence


def test_a_plain_stem_inside_a_series_is_expected():
    names = {"body.0.0": "conv", **{f"body.{k}.{j}": r for k in (1, 2, 3) for j, r in ((0, "conv"), (1, "norm"))}}
    places = [
        Place(name, role, (16,) if role == "norm" else (16, 16, 3, 3), 4.0)
        for name, role in [*names.items(), ("head", "matrix")]
    ]
    numbers = [{"frobenius": 4.0, "gradient": 0.1, "update": 0.01} for _ in places]
    seen = [replace(reading(step), rows=numbers, pairs={1: 2, 3: 4, 5: 6}) for step in (2, 3)]
    watch = AlarmWatch(places)
    assert [x for one in seen for x in watch.observe(one)] == []


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


@pytest.mark.parametrize("size", [0.0, 0.1])
@pytest.mark.parametrize("fed", ["pairs", "order", ""])
def test_of_a_gain_that_faded_is_said_what_passes_and_of_gradients_what_was_seen(size, fed):
    known = {"pairs": PAIRS if fed == "pairs" else {}, "order": range(7) if fed == "order" else ()}
    changed = {NORM: {"frobenius": size}, MAP: {"gradient": 0.25}}
    (alarm,) = (x for x in after(watched(), 1, changed=changed, **known) if x.alarm == "dead_normalizer")
    assert ("nothing passes" in alarm.sentence) == (size == 0.0) == ("little passes" not in alarm.sentence)
    assert "no gradient reaches" not in alarm.sentence
    assert ("b.1.map, before it, had a gradient of 0.25" in alarm.sentence) == bool(fed)
    assert ("a skip may carry some" in alarm.sentence) == (fed != "pairs")
