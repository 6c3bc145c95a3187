"""Several networks beside each other in words."""

from __future__ import annotations

import dataclasses

import pytest

from normgauge.core.bound import Evidence, Scope
from normgauge.core.spelled import LN10
from normgauge.render.compared import compared_networks, network_warnings, refuted_networks
from normgauge.render.groups import grouped_readings
from tests.made import layer, reading


def seen(middle, most, name="", **changes):
    """At six samples, five of them in the middle, whose bounds are closed."""
    rows = tuple({"index": i, "log10_lower": s, "log10_upper": s + 1e-9} for i, s in enumerate([middle] * 5 + [most]))
    made = {"log_lower": most * LN10, "log_upper": (most + 1e-9) * LN10, "weights": f"sha256:{name}" if name else ""}
    return reading(samples=rows, **{"batch": "sha256:x", **made, **changes})


def anywhere(low, high, name, **changes):
    made = {"scope": Scope.parse("global"), "weights": f"sha256:{name}", **changes}
    return reading(log_lower=low * LN10, log_upper=high * LN10, **made)


def said(*named, files=None):
    groups = grouped_readings([r for _, r in named], [name for name, _ in named], files)
    return network_warnings(groups), compared_networks(groups)


def test_every_network_is_named_with_its_median_and_its_steepest_sample():
    three = [("a", seen(0.9, 1.1, "a")), ("b", seen(0.5, 1.2, "b")), ("c", seen(1.1, 1.3, "c"))]
    assert said(*three) == (
        [],
        [
            "3 networks, one training of each.",
            "Slope of the median sample: 7.9433 for a, 3.1623 for b, 12.589 for c. Slope of the steepest of 6 samples: "
            "12.589 for a, 15.849 for b, 19.953 for c.",
        ],
    )


def test_of_many_networks_the_extremes_of_each_number_are_named():
    many = [(f"n{i}", seen(0.9 - 0.1 * i, 1.1 + 0.1 * i, str(i))) for i in range(8)]
    _, told = said(*many)[1]
    assert "Slope of the median sample, of 8 networks: found from 1.584 for n7 to 7.94 for n0" in told
    assert "Slope of the steepest of 6 samples, of 8 networks: found from 12.58 for n0 to 63.09 for n7" in told


def test_every_scope_is_told_with_found_apart_from_bound():
    rows = [
        (label, r)
        for label, shift in (("BN", 0.0), ("LN", 0.5))
        for seed in range(2)
        for r in (
            seen(0.5 + shift, 1.0 + shift + 0.1 * seed, f"{label}{seed}"),
            anywhere(1.2 + shift, 3.0 + 0.1 * seed, f"{label}{seed}"),
        )
    ]
    told = said(*rows)[1]
    assert told[0].startswith("2 trainings of BN, 2 trainings of LN: of each number the median over them")
    assert "Each training of BN lies below each of LN." in told[1]
    assert told[2] == (
        "Slope everywhere: found 15.84 (15.84 to 15.84), at most 1,123 (1,000 to 1,259) for BN; found 50.1 (50.1 to "
        "50.1), at most 1,123 (1,000 to 1,259) for LN. Whether the ranges overlap is open."
    )


def test_copies_of_one_training_count_once():
    copies = [("X", seen(0.9, 1.1, "a"))] * 3 + [("Y", seen(0.5, 1.2, "b")), ("Y", seen(0.6, 1.3, "c"))]
    warned, told = said(*copies)
    assert warned == ["X is given 3 times with the same weights: that is one training, counted once."]
    assert told[0].startswith("1 training of X, 2 trainings of Y: of each number")
    assert "7.9433 for X" in told[1] and "Each training" not in told[1]


def test_copies_alone_are_one_network():
    assert said(*[("X", seen(0.9, 1.1, "a"))] * 2)[1] == ["One network."]
    warned, told = said(("x", seen(0.9, 1.1, "a")), ("y", seen(0.9, 1.1, "a")))
    assert warned == ["x and y have the same weights."] and told[0] == "One network."


def test_readings_that_do_not_say_their_weights_are_not_called_trainings():
    warned, told = said(("X", seen(0.9, 1.1)), ("X", seen(0.9, 1.1)))
    assert warned == ["Not all readings of X say which weights they are of: copies of one training would count twice."]
    assert told[0].startswith("2 readings of X")


def test_different_networks_under_one_label_are_said_to_be():
    other = (layer("f.0", "Linear", 1.0, 0), layer("f.1", "LayerNorm", 0.5, 1), layer("head", "Linear", 0.7, 2))
    warned, told = said(("X", seen(0.9, 1.1, "a")), ("X", seen(0.5, 1.2, "b", layers=other)))
    assert warned == [
        "X stands for 2 networks whose layers differ (BatchNorm1d, LayerNorm): they are no trainings of one."
    ]
    assert told[0].startswith("2 readings of X")


def test_how_bounds_are_known_is_said_where_they_are_not_proved():
    pair = [("a", anywhere(1, 2, "a")), ("b", anywhere(1, 3, "b", evidence=Evidence.ESTIMATED))]
    assert said(*pair)[1][1].endswith("Not proved without a condition: b (estimated).")


def test_of_chances_that_differ_the_largest_is_told_and_how_many_trainings_have_one():
    chances = (6e-11, 9e-11, 7e-11)
    rows = [("ln", seen(1.0, 2.0, f"{i}", failure_probability=p)) for i, p in enumerate(chances)]
    rows += [("bn", seen(1.0, 2.0, f"b{i}", failure_probability=p)) for i, p in enumerate((0.0, 6e-11))]
    assert said(*rows)[1][1].endswith(
        "Not proved without a condition: ln (proved, fails with p ≤ 9e-11 each), bn (1 of 2 trainings, proved, fails "
        "with p ≤ 6e-11). p is of the proof and moves with the gauge: it says nothing about a normalizer."
    )


def test_readings_of_different_versions_are_said_to_be():
    warned, _ = said(("a", seen(1.0, 2.0, "a", version="0.5.0")), ("b", seen(1.0, 2.0, "b")))
    assert any("different versions of normgauge" in line and "a by 0.5.0; b by" in line for line in warned)


def test_the_scope_that_other_samples_do_not_matter_to_is_compared_still():
    rows = [("a", seen(0.9, 1.1, "a")), ("a", anywhere(1, 2, "a"))]
    rows += [("b", seen(0.9, 1.1, "b", batch="sha256:y")), ("b", anywhere(1, 3, "b"))]
    warned, told = said(*rows)
    assert warned == [
        "Measured on different samples: at the samples they cannot be compared. With the same --batch they can."
    ]
    assert [words.split(":")[0] for words in told] == ["2 networks, one training of each.", "Slope everywhere"]


def test_samples_that_are_not_known_to_be_the_same_are_said_to_be():
    told = said(("a", seen(0.9, 1.1, "a")), ("b", seen(0.9, 1.1, "b", batch="")))[1]
    assert told[1].endswith("Whether these are the same samples is not known.")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"mode": "train", "together": True}, "read in different modes: a whole batch and its samples have no order."),
        ({"mode": "train"}, "read in different modes (eval, train) and not ranked."),
    ],
)
def test_other_modes_have_no_order(changes, why):
    assert said(("a", seen(0.9, 1.1, "a")), ("b", seen(0.9, 1.1, "b", **changes)))[1] == [f"2 networks, {why}"]


def test_nothing_is_concluded_from_an_edited_file_that_contradicts_itself():
    data = seen(0.9, 1.1, "a").to_json() | {"log10_upper": 0.5}
    edited = type(reading()).from_json(data)
    groups = grouped_readings([edited, seen(0.5, 1.2, "b"), seen(0.5, 1.3, "c")], ["a", "b", "c"])
    (refuted,) = refuted_networks(groups)
    assert refuted.startswith("a: EDITED at the samples") and "rule" not in refuted
    told = compared_networks(groups)
    assert told[0] == "2 networks, one training of each." and " for a" not in told[1]
    assert compared_networks(groups[:2]) == []


def test_a_file_that_was_edited_is_named():
    edited = dataclasses.replace(seen(0.9, 1.1, "a"), edited=True)
    assert said(("a", edited), ("b", seen(0.5, 1.2, "b")))[0] == ["a was edited after it was written."]


def test_trainings_are_told_apart_by_their_files():
    readings = [seen(0.9, 1.1, "a"), seen(0.5, 1.2, "b"), seen(0.5, 1.2, "c")]
    groups = grouped_readings(readings, ["BN", "LN", "BN"], ["b0", "l0", "b1"])
    assert [(group.label, group.name) for group in groups] == [("BN (b0)", "BN"), ("LN", "LN"), ("BN (b1)", "BN")]
