"""Numbers that are no numbers: in the input, in half precision, in a loss or a gradient."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from normgauge import Monitor
from normgauge.monitor import thresholds
from normgauge.monitor.facts import Facts, LayerFacts
from normgauge.monitor.signs.sign import Alarm, Broken, broken_sample, finite_slope
from normgauge.monitor.watch import AlarmWatch
from tests.monitor.readings import HEAD, MAP, NORM, PLACES, after, named, reading, rows, said, watched

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


def test_a_weight_that_was_broken_from_the_start_is_not_blamed_on_the_optimizer():
    places = [replace(place, size=math.nan) if row == MAP else place for row, place in enumerate(PLACES)]
    (alarm,) = AlarmWatch(places).observe(reading(1, changed={MAP: {"frobenius": math.nan}}))
    assert (alarm.alarm, alarm.layer, alarm.began) == ("nan", "b.1.map", 1)
    assert "before the first step" in alarm.sentence and "optimizer" not in alarm.sentence + alarm.advice


@pytest.mark.parametrize(("size", "samples"), [(2.4, 1), (1e25, 0), (math.inf, 0)])
def test_what_a_weight_beyond_float32_makes_of_a_sample_is_no_fault_of_that_sample(size, samples):
    watch, seen = watched(), Broken("output", 5, 1, 64)
    watch.observe(reading(31, 9.0, changed={MAP: {"frobenius": size, "gradient": math.inf}}))
    found = watch.observe(reading(32, math.nan, broken=seen, changed={MAP: {"frobenius": size}}))
    assert [alarm.alarm for alarm in found].count("nan_input") == samples


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
    blamed = "the batch is broken" in first.sentence and "loader" in first.advice
    assert blamed == (what in ("input", "target"))  # what the network makes of a sample may be its own fault
    assert ("the network broke on it" in first.sentence) == (what == "output")  # behind a finite output it is the loss
    assert ("the loss broke on it" in first.sentence and "in the loss" in first.advice) == (what == "slope")
    assert "are told with what followed" not in first.advice  # there may be none
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
    whole = network | {"output_bad": 0.0}
    assert [finite_slope(whole | {"slope_bad": bad}) for bad in (0.0, 8.0)] == [True, False]
    assert finite_slope(whole) is None and finite_slope(network | {"slope_bad": 8.0}) is None


def test_a_gradient_that_breaks_is_named_where_the_backward_pass_comes_to_it_first():
    broke = {MAP: {"gradient": math.nan, "frobenius": math.nan}, 4: {"gradient": math.nan, "frobenius": math.nan}}
    (alarm,) = after(watched(), 1, changed=broke, order=[0, 1, 2, 3, 4, 5, 6])
    assert (alarm.layer, "backward" in alarm.sentence) == ("b.2.map", True)
    (alarm,) = after(watched(), 1, changed=broke, order=[4, 5, 6, 0, 1, 2, 3])  # as the layers were heard, not listed
    assert alarm.layer == "b.1.map"
    (alarm,) = after(watched(), 1, changed=broke)  # no order was heard: nothing is first
    assert "first" not in alarm.sentence and alarm.layer in alarm.sentence


ORDER = list(range(7))
BROKEN = {row: {"gradient": math.nan, "frobenius": math.nan} for row in range(7)}


def test_where_clipping_by_norm_broke_all_gradients_no_layer_is_named():
    for order in (ORDER, ()):
        (alarm,) = after(watched(), 1, changed=BROKEN, order=order)
        assert (alarm.alarm, alarm.layer) == ("nan", "")
        assert "all 7 layers" in alarm.sentence and "clipping by norm" in alarm.sentence
        assert "cannot be told" in alarm.sentence and "last output" not in alarm.sentence
        assert "set_detect_anomaly" in alarm.advice and "without the clip" in alarm.advice


def test_a_broken_gradient_at_the_output_tells_that_it_begins_in_the_loss():
    (alarm,) = after(watched(), 1, changed=BROKEN, order=ORDER, slope=False)
    assert alarm.layer == "" and "begins behind that, in the loss" in alarm.sentence and "in the loss" in alarm.advice
    (alarm,) = after(watched(), 1, changed=BROKEN, order=ORDER, slope=True)
    assert alarm.layer == "" and "output is finite" in alarm.sentence and "cannot be told" in alarm.sentence


@pytest.mark.parametrize(("row", "column", "layer"), [(NORM, "sigma_rms", "b.1.map"), (HEAD, "entered", "head")])
def test_a_forward_pass_that_broke_tells_where_although_all_gradients_are_broken(row, column, layer):
    changed = BROKEN | {row: BROKEN[row] | {column: math.nan}}
    (alarm,) = after(watched(), 1, changed=changed, order=ORDER)
    assert (
        alarm.layer == layer
        and f"forward pass numbers that are not finite were seen first at {layer}" in alarm.sentence
    )


def test_matrices_that_are_clipped_alone_do_not_tell_where_either():
    maps = {row: BROKEN[row] for row in (0, 2, 4, 6)}
    (alarm,) = after(watched(), 1, changed=maps, order=ORDER)
    assert alarm.layer == "" and "all 4 matrices" in alarm.sentence
    (alarm,) = after(watched(), 1, changed=BROKEN | {6: {}}, order=ORDER)  # one nearer to the loss is finite
    assert alarm.layer == "b.2.norm"


def test_what_one_of_two_optimizers_holds_may_be_clipped_alone():
    facts = Facts([LayerFacts(owner=int(row > 3)) for row in range(7)])
    broken = {row: BROKEN[row] for row in range(4)}
    (alarm,) = after(watched(), 1, changed=broken, order=ORDER, facts=facts)
    assert alarm.layer == "" and "all 4 layers that one optimizer holds" in alarm.sentence
    (alarm,) = after(watched(), 1, changed=broken, order=ORDER)
    assert alarm.layer == "b.1.norm"


def test_an_infinite_norm_leaves_the_broken_layer_and_zeros():
    changed = {row: {"gradient": 0.0} for row in range(7)} | {MAP: BROKEN[MAP]}
    (alarm,) = after(watched(), 1, changed=changed, order=ORDER)
    assert alarm.layer == "b.1.map" and "a norm that is infinite" in alarm.sentence


def test_skipped_steps_of_clipped_gradients_name_no_layer_when_the_loss_breaks_too():
    watch, skipped = watched(), {row: {"gradient": math.nan} for row in range(7)}
    assert after(watch, thresholds.SKIPPED - 1, changed=skipped, order=ORDER) == []
    (alarm,) = watch.observe(reading(60, math.nan, skipped, order=ORDER))
    assert (alarm.alarm, alarm.layer) == ("nan", "")


class Rooted(nn.Module):
    """The root of what is positive: finite, with a gradient that is not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sqrt(x * (x > 0))


@pytest.mark.parametrize(("clip", "layer"), [("none", "0"), ("value", "0"), ("norm", "")])
def test_a_layer_is_named_in_a_training_unless_clipping_by_norm_has_broken_all(tmp_path, clip, layer):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), Rooted(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found: list[Alarm] = []
    with Monitor(model, tmp_path, optimizer=optimizer, on_alarm=found.append, every=1) as monitor:
        loss = nn.functional.cross_entropy(model(torch.randn(16, 6)), torch.randint(3, (16,)))
        loss.backward()
        if clip == "norm":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        elif clip == "value":
            nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        monitor.step(loss=loss)
    (alarm,) = found
    assert (alarm.alarm, alarm.layer) == ("nan", layer)
    assert ("output is finite" in alarm.sentence) == (clip == "norm")


def test_where_the_forward_pass_broke_is_said_as_it_was_seen_and_before_the_first_step_nothing_was_trained():
    first, follows = watched(), watched()
    (alarm,) = first.observe(
        reading(31, math.nan, {NORM: {"sigma_rms": math.nan}, MAP: {"frobenius": math.nan}}, pairs={})
    )
    assert f"normalizer to see it is {alarm.layer}" in alarm.sentence and "checkpoint" in alarm.advice
    assert alarm.sentence.endswith("The input is finite at step 31.")
    (alarm,) = follows.observe(reading(31, math.nan, {NORM: {"sigma_rms": math.nan}}))
    assert f"normalizer to see it follows {alarm.layer}" in alarm.sentence
    (alarm,) = AlarmWatch(PLACES).observe(reading(1, math.nan, {NORM: {"sigma_rms": math.nan}}))
    assert "checkpoint" not in alarm.advice and "mask with an empty row" in alarm.advice
    (alarm,) = AlarmWatch(PLACES).observe(reading(1, math.nan))
    assert "that place" not in alarm.advice and "in the network and in the loss" in alarm.advice  # none was seen


def test_a_loss_that_was_lost_beside_whole_weights_needs_no_checkpoint():
    (alarm,) = watched().observe(reading(31, math.nan))
    assert alarm.sentence == "the loss is nan at step 31. The input and all weights are finite at step 31."
    assert "checkpoint" not in alarm.advice and "targets are all ignored" in alarm.advice
    (alarm,) = watched().observe(reading(31, math.nan, {MAP: {"frobenius": math.nan}}, given=None))
    assert alarm.sentence == "the loss is nan at step 31." and "Go back to a checkpoint if" in alarm.advice


@pytest.mark.parametrize("skipped", [0, 3])
def test_an_overflow_is_put_down_to_activations_only_where_the_step_before_was_read(skipped):
    watch, broken = watched(), {row: {"frobenius": math.nan, "gradient": math.nan} for row in range(len(PLACES))}
    (alarm,) = watch.observe(reading(31 + skipped, math.nan, broken, half=True))
    assert (alarm.alarm, "activations overflowed (inferred)" in alarm.sentence) == ("half_overflow", not skipped)
    if skipped:
        assert "or gradients in a step before it" in alarm.sentence and "between 30 and 34" in alarm.sentence
        assert "every=1" in alarm.advice and "loss scale" in alarm.advice and "weights smaller" not in alarm.advice
