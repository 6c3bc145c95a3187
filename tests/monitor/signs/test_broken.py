"""Numbers that are no numbers: in the input, in half precision, in a loss or a gradient."""

from __future__ import annotations

import math

import pytest

from normgauge.monitor import thresholds
from normgauge.monitor.signs.sign import Broken, broken_sample
from tests.monitor.readings import MAP, NORM, after, named, reading, rows, said, watched

CAUSES = {
    "nan input": ("nan_input", "", {"given": math.nan, "changed": {MAP: {"gradient": math.nan}}}, 1),
    "half overflow": (
        "half_overflow", "b.1.map", {"loss": math.nan, "half": True, "changed": {NORM: {"sigma_rms": math.nan}}}, 1,
    ),
    "half near": ("half_overflow", "b.1.map", {"changed": {NORM: {"sigma_max": 3e4, "half": 1.0}}}, 1),
    "half backward": (
        "half_overflow", "", {"half": True, "changed": {MAP: {"gradient": math.inf, "frobenius": math.nan}}}, 1,
    ),
    "nan loss": ("nan", "", {"loss": math.inf}, 1),
    "nan gradient": ("nan", "b.1.map", {"changed": {MAP: {"gradient": math.nan, "frobenius": math.nan}}}, 1),
    "nan weight": ("nan", "b.1.map", {"changed": {MAP: {"frobenius": math.nan}}}, 1),
}  # fmt: skip


@pytest.mark.parametrize("case", CAUSES)
def test_a_cause_is_named(case):
    named(*CAUSES[case])


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


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("input", "sample 5 of 64"),
        ("target", "the target of"),
        ("entered", "first layer"),
        ("output", "alone"),
        ("slope", "gradient"),
    ],
)
def test_the_sample_that_broke_is_named_and_the_loss_it_broke_is_its_consequence(what, words):
    first, second = watched().observe(reading(31, math.nan, broken=Broken(what, 5, 1, 64)))
    assert (first.alarm, first.began) == ("nan_input", 31) and words in first.sentence
    assert (second.alarm, second.cause, second.cause_step) == ("nan", "nan_input", 31)


def test_a_mask_in_the_input_that_breaks_nothing_is_healthy():
    assert after(watched(), 5, given=math.inf) == []
    assert after(watched(), 5, broken=Broken("input", 3, 8, 64)) == []


def test_large_activations_outside_float16_are_none_of_its_business():
    assert after(watched(), 5, half=True, changed={NORM: {"sigma_max": 3e4}}) == []


def test_which_samples_broke_is_read_from_counts():
    network = {
        "input_at": 0.0,
        "input_bad": 0.0,
        "input_of": 8.0,
        "output_at": 3.0,
        "output_bad": 2.0,
        "output_of": 8.0,
    }
    assert broken_sample(network) == Broken("output", 3, 2, 8)
    assert broken_sample(network | {"output_bad": 8.0}) is None  # all are broken: the weights are
    assert broken_sample(network | {"input_bad": 8.0}) == Broken("input", 0, 8, 8)


def test_a_gradient_that_breaks_is_named_where_the_backward_pass_comes_to_it_first():
    broke = {MAP: {"gradient": math.nan, "frobenius": math.nan}, 4: {"gradient": math.nan, "frobenius": math.nan}}
    (alarm,) = after(watched(), 1, changed=broke, order=[0, 1, 2, 3, 4, 5, 6])
    assert (alarm.layer, "backward" in alarm.sentence) == ("b.2.map", True)
    (alarm,) = after(watched(), 1, changed=broke, order=[4, 5, 6, 0, 1, 2, 3])  # as the layers were heard, not listed
    assert alarm.layer == "b.1.map"
    (alarm,) = after(watched(), 1, changed=broke)  # no order was heard: nothing is first
    assert "first" not in alarm.sentence and alarm.layer in alarm.sentence
