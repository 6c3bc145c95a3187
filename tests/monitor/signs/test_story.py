"""What the losses of every step tell: divergence, no progress, a spike that recovers, and when to look closer."""

from __future__ import annotations

import math

import pytest

from normgauge.monitor.signs.story import Story
from normgauge.monitor.thresholds import LOSS_WINDOW, STUCK_STEPS


def told(losses, first: int = 1) -> Story:
    story = Story()
    for step, loss in enumerate(losses, first):
        story.note(step, 0.1)
        story.hear(step, loss)
    return story


def falling(count: int) -> list[float]:
    return [2.0 * 0.98**step for step in range(count)]


def test_a_loss_that_rises_in_the_first_steps_is_taken_at_its_word():
    assert told([4.0, 5.0, 9.0, 12.0, 20.0]).risen
    assert told([4.0, 5.0, 9.0, 12.0, 20.0]).urgent
    assert not told([4.0, 5.0, 9.0, 12.0, 3.0]).risen


def test_a_spike_that_recovers_is_none_and_a_plateau_above_the_start_is():
    before = falling(100)
    for length in range(1, LOSS_WINDOW):
        assert not any(told([*before, *[9.0] * k, *[0.3] * 20]).risen for k in range(1, length))
    assert not told([*before, 9.0, 8.0, 6.0, 5.0, 4.5, 4.3, 4.2, 4.1, 4.05]).risen  # on its way back
    assert told([*before, *[9.0] * LOSS_WINDOW]).risen


def test_a_loss_that_relapses_is_risen_although_it_is_below_its_start():
    assert told([*falling(150), *[1.5] * LOSS_WINDOW]).risen


@pytest.mark.parametrize(("losses", "stuck"), [([2.3, 2.31, 2.29] * 40, True), (falling(120), False)])
def test_no_progress_from_the_start(losses, stuck):
    assert told(losses).stuck is stuck
    assert not told(losses[: STUCK_STEPS - 1]).stuck


def test_a_loss_that_is_no_number_is_urgent_once_and_each_step_counts_once():
    story = told([2.0, 1.9, math.nan])
    assert story.urgent and story.lost == (3, pytest.approx(math.nan, nan_ok=True))
    story.urgent = False
    story.hear(3, 1.0)
    story.hear(4, math.inf)
    assert not story.urgent and story.count == 2


def test_a_jump_of_the_rate_is_noted_and_a_warm_up_and_a_restart_are_not():
    rates = [0.01] * 30 + [1.0]
    story = Story()
    for step, rate in enumerate(rates, 1):
        story.note(step, rate)
    assert story.jump == (31, 0.01, 1.0) and story.wanted
    for calm in ([1e-6 * 2**k for k in range(20)] + [1.0] * 9, [0.1, 0.05, 1e-5, 0.1] * 9):
        story = Story()
        for step, rate in enumerate(calm, 1):
            story.note(step, rate)
        assert story.jump is None
    assert story.warmed is False


def test_a_reading_that_was_asked_for_comes_at_its_step():
    story = told(falling(5))
    story.ask(8)
    story.note(6, 0.1)
    assert not story.wanted
    story.note(7, 0.1)
    assert story.wanted


def test_a_loss_falls_where_it_does_so_beyond_its_noise():
    for losses, falls in (
        ([4.34, 3.8, 4.04, 3.6, 3.55, 3.35, 3.23, 3.4, 3.51, 3.21, 3.29, 3.41, 3.44], False),  # it stays near 3.4
        ([4.34, 3.64, 3.79, 3.4, 3.13, 3.13, 2.98, 3.11, 3.16, 2.87, 2.92, 2.92, 2.91], True),
        ([4.0 * 0.9**k for k in range(5)], False),  # too few to say
        ([4.0 - 0.02 * k + 0.3 * (-1) ** k for k in range(100)], True),  # in the noise of eight
        ([4.0 - 0.5 * (k > 5) + 0.3 * (-1) ** k for k in range(100)], False),
        ([*(4.0 * 0.9**k for k in range(12)), float("nan")], False),
    ):
        story = Story()
        for step, loss in enumerate(losses, 1):
            story.hear(step, loss)
        assert story.falls == falls


def jumped(rates, losses) -> Story:
    story = Story()
    for step, (rate, loss) in enumerate(zip(rates, losses, strict=True), 1):
        story.note(step, rate)
        story.hear(step, loss)
    return story


ONE_STEP = [1e-3] * 150 + [0.1] + [1e-3] * 9


@pytest.mark.parametrize(
    ("after", "jolted"),
    [
        ([2.6, 4.5, 4.4, 4.3, 4.2, 4.1, 4.0, 3.9, 3.8, 3.8], True),
        ([2.6, 9.0, 2.7, 2.6, 2.6, 2.6, 2.6, 2.6, 2.6, 2.6], False),  # a spike that recovers
        ([2.6] * 10, False),
    ],
)
def test_a_jump_of_the_rate_is_felt_by_the_losses_after_it(after, jolted):
    losses = [4.17 * 0.997**k for k in range(150)] + after
    story = jumped(ONE_STEP, losses)
    assert (story.jolt is not None) == jolted
    assert jumped([1e-3] * 160, losses).jolt is None  # the rate did not jump
    assert jumped(ONE_STEP[:152], losses[:152]).jolt is None  # one loss says little
    if jolted:
        assert story.jolt == (pytest.approx(2.83, abs=0.01), 3.8)


def test_losses_before_a_jump_of_the_rate_do_not_tell_that_the_loss_still_falls():
    losses = [4.0 * 0.99**k for k in range(160)]
    assert jumped([1e-3] * 160, losses).falls and jumped(ONE_STEP, losses).falls
    assert not jumped(ONE_STEP[:152], losses[:152]).falls


def test_a_rate_that_jumped_once_is_not_on_its_way_up():
    warm = [1e-3 * min(1.0, k / 20) for k in range(1, 151)]
    assert jumped(warm[:12], [1.0] * 12).rising
    assert not jumped([*warm, 0.1], [1.0] * 151).rising and not jumped([1e-3] * 9 + [0.1], [1.0] * 10).rising
