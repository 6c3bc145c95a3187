"""Attention logits and the residual stream."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from normgauge.monitor.facts import Facts
from normgauge.monitor.signs.sign import Place
from normgauge.monitor.signs.story import Story
from normgauge.monitor.signs.transformers import Attention, Stream
from normgauge.monitor.watch import AlarmWatch
from tests.monitor.readings import reading, said

PLACES = [Place(f"blocks.{k}.norm", "norm", (16,), 4.0) for k in range(7)]


def shown(kind, column: str, values) -> list[tuple[str, str]]:
    """What a sign says of readings whose rows have these numbers in one column."""
    sign, found = kind(PLACES), []
    for step, numbers in enumerate(values, 1):
        changed = {row: {column: value} for row, value in enumerate(numbers)}
        found += [(alarm.alarm, alarm.layer) for alarm in sign.look(reading(step, changed=changed))]
    return found


def test_logits_that_saturate_a_softmax_are_named_where_they_are_largest():
    assert shown(Attention, "logit_max", [[3.0, 200.0, 90.0]] * 2) == [("attention_saturated", "blocks.1.norm")]
    assert shown(Attention, "logit_max", [[3.0, 20.0, 9.0]] * 50) == []
    assert shown(Attention, "logit_max", [[3.0, 200.0, 9.0], *[[3.0, 8.0, 9.0]] * 9]) == []  # one batch is none


def test_logits_that_grew_are_named_before_they_saturate():
    grown = [[2.0 * 1.2**k] for k in range(19)]
    assert shown(Attention, "logit_max", grown)[:1] == [("attention_growth", "blocks.0.norm")]


def test_growth_is_dated_by_the_layer_that_is_named():
    sign, found = Attention(PLACES), []
    lines = [[2.0, 2.0], [90.0, 2.0], [90.0, 95.0], [2.0, 95.0]]  # one layer crosses at step 2, another at step 3
    for step, logits in enumerate(lines, 1):
        changed = {row: {"logit_max": logit} for row, logit in enumerate(logits)}
        found += sign.look(reading(step, changed=changed))
    assert [(alarm.layer, alarm.began) for alarm in found] == [("blocks.0.norm", 2), ("blocks.1.norm", 3)]


@pytest.mark.parametrize(("factor", "named"), [(3.0, 1), (1.3, 0)])
def test_a_stream_that_grows_with_depth_is_named(factor, named):
    sizes = [0.02, *(factor**k for k in range(6))]
    assert shown(Stream, "input_rms", [sizes] * 2) == [("residual_growth", "blocks.6.norm")] * named


@pytest.mark.parametrize(("losses", "named"), [([2.0] * 30 + [9.0] * 30, 1), ([2.0 * 0.95**k for k in range(60)], 0)])
def test_a_stream_that_grows_with_time_is_named_where_the_loss_suffers(losses, named):
    watch, found = AlarmWatch([*PLACES, Place("head", "matrix", (4, 16), 1.0)]), []
    for step, loss in enumerate(losses, 1):
        size = 1.0 if step < 40 else 50.0
        seen = reading(step, loss, {row: {"input_rms": size} for row, _ in enumerate(PLACES)}, pairs={})
        found += watch.observe(replace(seen, rows=[*seen.rows, {}]))
    assert [alarm.layer for alarm in found if alarm.alarm == "residual_growth"] == ["blocks.6.norm"] * named


@pytest.mark.parametrize(("sums", "factor", "named"), [(10, 2.0, 1), (10, 1.2, 0), (0, 2.0, 0)])
def test_a_stream_without_normalizers_is_seen_at_what_the_layers_are_given(sums, factor, named):
    places = [Place(f"convs.{k}", "conv", (16, 16, 3), 4.0) for k in range(10)]
    facts = Facts(nodes={"AddBackward0": sums})
    sign, found = Stream(places), []
    for step in (1, 2):
        rows = [{"entered": factor**k} for k in range(10)]
        found += sign.look(replace(reading(step, facts=facts, pairs={}), rows=rows))
    assert [(alarm.alarm, alarm.layer) for alarm in found] == [("residual_growth", "convs.9")] * named
    said = "what layers along a residual stream are given grows"  # that may be inside a branch
    assert all(alarm.sentence.startswith(f"without normalizers, {said}") for alarm in found)
    batch = Stream([*places, Place("bn", "norm", (16,), 4.0)])  # of another kind than is read for its input
    rows = [*({"entered": factor**k} for k in range(10)), {}]
    found = [x for step in (1, 2) for x in batch.look(replace(reading(step, facts=facts, pairs={}), rows=rows))]
    assert all(alarm.sentence.startswith(said) for alarm in found)


@pytest.mark.parametrize(("scaled", "named"), [({}, "if nothing does yet"), ({0: 1.0}, ""), ({0: 8.0}, "8 times that")])
def test_of_logits_only_what_was_measured_is_said_and_a_scale_is_advised_where_there_is_none(scaled, named):
    sign, found = Attention(PLACES), []
    for step in range(1, 30):
        found += sign.look(reading(step, changed={0: {"logit_max": 1.8 * 1.2**step}}, scaled=scaled))
    alarm = found[0]
    assert "grew from 2.16 at step 1 to" in alarm.sentence and alarm.value > alarm.threshold
    assert f"at step {alarm.step} (" in alarm.sentence
    assert not any(word in alarm.sentence for word in ("saturated", "one key", "no gradient"))
    assert named in alarm.advice and ("√d" in alarm.advice) == bool(named)


def test_a_setting_follows_from_nothing_and_stands_beside_as_a_suspect():
    places = [replace(place, role="matrix") for place in PLACES]
    watch, found = AlarmWatch(places), []
    facts = Facts(adaptive=True, nodes={"SoftmaxBackward0": 2})
    for step in range(1, 40):
        loss = 2.0 * 0.99**step if step < 12 else 2.0 * 1.5 ** (step - 11)
        rows = {row: {"logit_max": 1.8 if step < 5 else 70.0, "update": 0.3} for row in range(len(PLACES))}
        found += watch.observe(reading(step, loss, rows, facts=facts, pairs={}))
    beside = next(said for said in found if said.alarm == "no_warmup")
    assert found[0].alarm == "attention_growth" and beside.set_at == 1


@pytest.mark.parametrize("normed", [True, False])
def test_what_is_quoted_of_a_stream_is_of_the_step_since_which_it_grows_and_of_the_layer_where_it_does(normed):
    column, places = ("input_rms", PLACES) if normed else ("entered", [replace(p, role="matrix") for p in PLACES])
    sign, found = Stream(places), []
    facts = Facts(nodes={"AddBackward0": 10})
    for step in (1, 2):
        sizes = [0.5, *(3.0**k for k in range(6))] if step == 1 else [0.5, 1e3, 1e7, 1e12, 1e18, 1e24, math.nan]
        rows = [{column: size, "frobenius": 2.0, "update": 1.9} for size in sizes]
        found += sign.look(replace(reading(step, facts=facts, pairs={}), rows=rows))
    (alarm,) = found
    assert (alarm.began, alarm.layer, alarm.value) == (1, "blocks.6.norm", 243.0)
    assert "from 1 at blocks.1.norm to 243 at blocks.6.norm, at step 1 (root mean square" in alarm.sentence
    assert ("of the first sample" in alarm.sentence) == (not normed)  # what layers are given is read of one sample
    assert alarm.advice.startswith("Lower the learning rate, to a tenth at first: the step at 1 moved") == (not normed)


def test_a_rate_is_to_be_lowered_first_where_one_of_the_last_steps_was_gross():
    """It need not be the step that is read when the stream is first seen to grow."""
    places = [replace(place, role="matrix") for place in PLACES]

    def advised(moved: float) -> str:
        sign, found = Stream(places), []
        facts = Facts(nodes={"AddBackward0": 10})
        for step in range(1, 8):
            growth = 1.0 if step < 5 else 3.0
            rows = [{"entered": 0.5 * growth**k, "frobenius": 2.0, "update": 0.1} for k in range(len(places))]
            if step == 3:
                rows = [{**row, "update": moved} for row in rows]
            found += sign.look(replace(reading(step, facts=facts, pairs={}), rows=rows))
        return found[0].advice

    assert "the step at 3 moved the median layer by 45%" in advised(0.9)
    assert advised(0.4).startswith("Scale the branches")


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (
            [0.5, 0.02, 0.05, 0.08, 1.86, 2.1, 2.9],
            " Most of it lies between blocks.3.norm (0.08) and blocks.4.norm (1.86).",
        ),
        ([0.5, *(3.0**k for k in range(6))], ""),
    ],
)
def test_where_most_of_the_growth_lies_is_said_where_it_was_measured(sizes, said):
    sign, found = Stream(PLACES), []
    for step in (1, 2):
        found += sign.look(replace(reading(step, pairs={}), rows=[{"input_rms": size} for size in sizes]))
    assert found[0].sentence.endswith(f"(root mean square).{said}")


def test_a_stream_that_is_not_finite_in_the_end_is_told_as_far_as_it_is():
    sign, found = Stream(PLACES), []
    for step in (1, 2):
        rows = [{"input_rms": size} for size in [0.5, 1.0, 1e7, 1e12, 1e18, math.inf, math.nan]]
        found += sign.look(replace(reading(step, pairs={}), rows=rows))
    assert "to 1e+18 at blocks.4.norm, the last place where it is finite, at step 1" in found[0].sentence


@pytest.mark.parametrize(
    ("rates", "adaptive", "first"),
    [
        ([0.1] * 40, True, "Let the learning rate rise"),
        ([0.1 * k for k in range(1, 41)], True, "Lower the learning rate"),
        ([0.1] * 40, False, "Lower the learning rate"),
    ],
)
def test_a_warm_up_comes_first_where_there_is_none(rates, adaptive, first):
    watch, found = AlarmWatch([replace(place, role="matrix") for place in PLACES]), []
    facts = Facts(adaptive=adaptive, nodes={"SoftmaxBackward0": 2})
    for step, rate in enumerate(rates, 1):
        seen = reading(step, 2.0, {0: {"logit_max": 1.8 * 1.2**step}}, facts=facts, pairs={}, rate=rate)
        found += watch.observe(seen)
    assert found[0].alarm == "attention_growth" and found[0].advice.startswith(first)
    assert ("The learning rate was still rising, from 0.1 at first to" in found[0].sentence) == (rates[-1] > 0.1)


def test_a_layer_of_another_group_is_told_its_own_rate():
    watch, found = AlarmWatch([replace(place, role="matrix") for place in PLACES]), []
    for step in range(1, 41):
        rates = {row: {"rate": 0.1 * step} for row in range(1, len(PLACES))}
        changed = {**rates, 0: {"logit_max": 1.8 * 1.2**step, "rate": 30.0 * step}}
        found += watch.observe(reading(step, 2.0, changed, pairs={}, rate=0.1 * step))
    (alarm,) = [alarm for alarm in found if alarm.alarm == "attention_growth"]
    assert f"Its learning rate is {30.0 * alarm.step:.3g}; that of the first group was still rising" in alarm.sentence


@pytest.mark.parametrize(("fall", "waits"), [(0.95, True), (1.0, False)])
def test_while_the_loss_falls_the_advice_is_to_watch_it(fall, waits):
    watch, found = AlarmWatch([replace(place, role="matrix") for place in PLACES]), []
    for step in range(1, 30):
        seen = reading(step, 2.0 * fall**step, {0: {"logit_max": 1.8 * 1.2**step}}, pairs={})
        found += watch.observe(seen)
    assert found[0].alarm == "attention_growth" and "ower the learning rate" in found[0].advice
    assert found[0].advice.startswith(f"At step {found[0].step} the loss still fell") == waits


@pytest.mark.parametrize(("before", "named"), [(0, 1), (100, 0)])
def test_a_block_added_to_what_has_learnt_may_lengthen_the_stream(before, named):
    story = Story()
    for step in range(1, before + 1):
        story.note(step, 0.1)
        story.hear(step, 4.0 * 0.99**step)
    watch, found = AlarmWatch(PLACES, story), []
    for step in range(before + 1, before + 4):
        changed = {row: {"input_rms": size} for row, size in zip(range(7), (0.1, 1, 1, 3, 3, 12, 12), strict=True)}
        found += watch.observe(reading(step, 4.0 * 0.99**step, changed))
    assert said(found) == [("residual_growth", "blocks.6.norm")] * named
    if named:
        assert found[0].advice.startswith("Initialize the layers smaller, or scale")


@pytest.mark.parametrize(("unread", "back"), [(True, False), (False, False), (True, True)])
def test_after_a_loss_that_jumped_unread_the_advice_asserts_no_design(unread, back):
    watch, found = AlarmWatch(PLACES), []
    for step in range(1, 120):
        high = step >= 70 and not (back and step > 75)
        watch.story.note(step, 0.1)
        watch.story.hear(step, 4.0 if high else 2.5)
        if unread and 60 < step <= 70:
            continue
        logits = {row: {"logit_max": 70.0 if step > 100 else 5.0} for row in (0, 2, 4)}
        found += watch.observe(reading(step, 4.0 if high else 2.5, logits))
    (alarm,) = found
    assert alarm.alarm == "attention_growth"
    hedged = "First look at what changed by step 70 (batch, targets, loss and its scale)"
    assert alarm.advice.startswith(hedged) == (unread and not back)
    if unread and not back:
        assert "from 2.5 to 4 there, in one step, and none was read between 60 and it; every=1" in alarm.advice
