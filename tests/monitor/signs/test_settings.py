"""Settings that are wrong by themselves: each is named at once, and what is usual is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from normgauge.monitor.facts import Facts, LayerFacts
from normgauge.monitor.signs.story import Story
from normgauge.monitor.thresholds import MODE_STEPS, RATE_GONE_STEPS
from normgauge.monitor.watch import AlarmWatch
from tests.monitor.readings import MAP, NORM, PLACES, reading, said

HELD = LayerFacts(held=1)


def facts(changed: dict[int, LayerFacts] | None = None, **others) -> Facts:
    """Layers that one optimizer holds, some of them changed."""
    return Facts([(changed or {}).get(row, HELD) for row in range(len(PLACES))], **others)


def looked(known: Facts, count: int = 3, **changes) -> list[tuple[str, str]]:
    """What the first readings of a run say."""
    watch = AlarmWatch(PLACES)
    return said([x for step in range(1, count + 1) for x in watch.observe(reading(step, facts=known, **changes))])


def test_a_weight_with_a_gradient_that_no_optimizer_holds_is_named():
    left_out = facts({MAP: replace(HELD, held=0)})
    assert looked(left_out, changed={MAP: {"update": 0.0}}) == [("not_in_optimizer", "b.1.map")]
    assert looked(left_out) == []  # it moves: another optimizer, which was not given, steps it
    frozen = facts({MAP: LayerFacts(trains=False, held=0)})
    assert looked(frozen, changed={MAP: {"update": 0.0}}) == []


def test_a_weight_left_out_is_not_said_to_be_as_it_was_initialized():
    left_out, still = facts({MAP: replace(HELD, held=0)}), {MAP: {"update": 0.0}}
    watch = AlarmWatch(PLACES)
    (alarm,) = [x for step in (1, 2) for x in watch.observe(reading(step, facts=left_out, changed=still))]
    assert "initialized" not in alarm.sentence and "do not move" in alarm.sentence  # it may have been trained before


def test_a_weight_that_is_held_twice_is_named():
    assert looked(facts({MAP: replace(HELD, held=2)})) == [("stepped_twice", "b.1.map")]


@pytest.mark.parametrize(("momentum", "named"), [(0.0, 1), (1.0, 1), (0.99, 1), (0.1, 0), (0.01, 0), (None, 0)])
def test_a_momentum_that_keeps_all_or_nothing_is_named(momentum, named):
    known = facts({NORM: replace(HELD, momentum=momentum)})
    assert looked(known) == [("batchnorm_momentum", "b.1.norm")] * named


def test_an_epsilon_that_float16_rounds_away_is_named():
    half = {row: replace(HELD, dtype=torch.float16) for row in range(len(PLACES))}
    assert looked(facts(half, adaptive=True, eps=1e-8)) == [("eps_lost", "")]
    assert looked(facts(half, adaptive=True, eps=1e-4)) == []
    assert looked(facts(adaptive=True, eps=1e-8)) == []
    own = half | {NORM: replace(half[NORM], foreign=True)}
    assert looked(facts(own), changed={NORM: {"eps": 1e-8}}) == [("eps_lost", "b.1.norm")]
    assert looked(facts(half), changed={NORM: {"eps": 1e-12}}) == []  # torch computes its own in float32


@pytest.mark.parametrize(("rate", "dtype", "named"), [(1e-5, 1, 1), (1e-3, 1, 0), (1e-5, 0, 0)])
def test_steps_that_bfloat16_rounds_away_are_named(rate, dtype, named):
    kind = torch.bfloat16 if dtype else torch.float32
    known = facts({row: replace(HELD, dtype=kind) for row in range(len(PLACES))}, adaptive=True)
    assert looked(known, rate=rate) == [("update_lost", "")] * named


def test_a_rate_on_its_way_up_is_not_too_small_for_bfloat16():
    known = facts({row: replace(HELD, dtype=torch.bfloat16) for row in range(len(PLACES))}, adaptive=True)
    watch = AlarmWatch(PLACES)
    assert [x for step in range(1, 60) for x in watch.observe(reading(step, facts=known, rate=1e-5 * step))] == []


def told(steps: int, rate=lambda step: 0.1, mode=lambda step: True) -> Story:
    """The settings of so many steps, and a loss that falls slowly."""
    story = Story()
    for step in range(1, steps + 1):
        story.note(step, rate(step), mode(step))
        story.hear(step, 2.0 - 0.001 * step)
    return story


def test_eval_mode_is_named_after_a_few_steps_where_it_matters():
    story = told(40 + MODE_STEPS, mode=lambda step: step <= 40)
    assert story.wanted
    (alarm,) = AlarmWatch(PLACES, story).observe(reading(40 + MODE_STEPS, facts=facts(moody=True)))
    assert (alarm.alarm, alarm.began) == ("eval_mode", 41)
    assert "normalizers use running statistics" in alarm.sentence
    assert AlarmWatch(PLACES, story).observe(reading(43, facts=facts())) == []
    once = told(40, mode=lambda step: step != 40)
    assert AlarmWatch(PLACES, once).observe(reading(40, facts=facts(moody=True))) == []


def test_eval_mode_speaks_of_running_statistics_only_where_there_are_some():
    story = told(40 + MODE_STEPS, mode=lambda step: step <= 40)
    seen = reading(40 + MODE_STEPS, facts=facts(moody=True))
    bare = [{name: value for name, value in row.items() if name != "running"} for row in seen.rows]
    (alarm,) = AlarmWatch(PLACES, story).observe(replace(seen, rows=bare))
    assert alarm.sentence.endswith("(eval() is on): dropout is off.")


def test_a_rate_that_came_to_nothing_is_named_and_the_end_of_a_schedule_is_not():
    steps = 40 + RATE_GONE_STEPS
    story = told(steps, lambda step: 0.1 * 0.8**step)
    (alarm,) = AlarmWatch(PLACES, story).observe(reading(steps, facts=facts()))
    assert (alarm.alarm, alarm.began) == ("rate_vanished", 33)
    linear = told(1000, lambda step: 0.1 * (1 - step / 1000))
    assert AlarmWatch(PLACES, linear).observe(reading(1000, facts=facts(), rate=0.0)) == []


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (("LogSoftmax", "softmax"), "cannot fall below 3.2."),
        (("NllLoss", "softmax"), "the numbers themselves. Its gradient is small."),
        (("BinaryCrossEntropyWithLogits", "sigmoid"), "what a sigmoid makes: it squashes them again"),
    ],
)
def test_a_loss_of_logits_that_is_given_none_is_named(end, said):
    (alarm, *others) = AlarmWatch(PLACES).observe(reading(1, facts=facts(squashed=end, classes=65)))
    assert alarm.alarm == "squashed_logits" and said in alarm.sentence and not others


@pytest.mark.parametrize(
    ("first", "classes", "entropy", "said"),
    [(44.1, 65, True, 1), (4.5, 65, True, 0), (44.1, 65, False, 0), (44.1, 0, True, 0), (3.0, 2, True, 0)],
)
def test_a_first_loss_far_above_guessing_is_worth_a_note(first, classes, entropy, said):
    watch = AlarmWatch(PLACES)
    seen = reading(1, first, facts=facts(classes=classes, entropy=entropy))
    watch.observe(seen)
    assert ["10.6 times what guessing evenly among 65 classes" in s for s, _ in watch.remarks(seen)] == [True] * said


@pytest.mark.parametrize(
    ("dtype", "update", "rate", "said"),
    [
        (torch.bfloat16, 0.0, 0.1, 1),
        (torch.bfloat16, 0.01, 0.1, 0),
        (torch.float32, 0.0, 0.1, 0),
        (torch.bfloat16, 0.0, 0.0, 0),
    ],
)
def test_gains_that_half_precision_cannot_step_are_worth_a_note(dtype, update, rate, said):
    watch, known = AlarmWatch(PLACES), facts({row: replace(HELD, dtype=dtype) for row in range(len(PLACES))})
    told = []
    for step in range(1, 5):
        seen = reading(step, changed={row: {"update": update} for row in (1, 3, 5)}, facts=known, rate=rate)
        watch.observe(seen)
        told += watch.remarks(seen)
    assert len({key for _, key in told}) == said and all("in 3 of 3 normalizers" in sentence for sentence, _ in told)


def test_a_first_loss_of_any_size_is_told_in_three_digits():
    seen, watch = reading(1, 3.4e8, facts=facts(classes=65, entropy=True)), AlarmWatch(PLACES)
    watch.observe(seen)
    ((sentence, _),) = watch.remarks(seen)
    assert "is 8.14e+07 times what guessing" in sentence
