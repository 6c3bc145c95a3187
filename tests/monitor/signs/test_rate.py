"""Learning rate, momentum and the effective rate of scale-free weights."""

from __future__ import annotations

import pytest
import torch

from normgauge.monitor.facts import Facts
from normgauge.monitor.watch import AlarmWatch
from tests.monitor.readings import MAP, PLACES, named, reading, said, watched

CAUSES = {
    "momentum": ("momentum", "", {"changed": {MAP: {"momentum": 0.999}}}, 1),
    "rate jump": (
        "learning_rate", "", {"rate": 10.0, "changed": {row: {"update": 0.5} for row in (0, 2, 4, 6)}}, 1,
    ),
    "rate from the start": ("learning_rate", "", {"changed": {row: {"update": 2.0} for row in (0, 2, 4, 6)}}, 1),
    "three long steps": ("learning_rate", "", {"changed": {row: {"update": 1.1} for row in (0, 2, 4, 6)}}, 3),
}  # fmt: skip


@pytest.mark.parametrize("case", CAUSES)
def test_a_cause_is_named(case):
    named(*CAUSES[case])


def test_steps_at_a_rate_of_0_are_not_blamed_on_the_rate():
    moved = {row: {"update": 2.0} for row in (0, 2, 4, 6)}
    assert said(watched().observe(reading(31, 9.0, moved, rate=0.1))) == [("learning_rate", "")]
    assert said(watched().observe(reading(31, 9.0, moved, rate=0.0))) == []


@pytest.mark.parametrize(
    ("turn", "fall", "logit", "named"),
    [(0.2, 0.9, 1.0, 1), (0.15, 1.0, 1.0, 1), (0.15, 0.9, 1.0, 0), (0.15, 0.9, 30.0, 1), (0.05, 1.0, 1.0, 0)],
)
def test_a_warm_up_is_missed_where_long_first_steps_of_a_transformer_do_harm(turn, fall, logit, named):
    facts = Facts(adaptive=True, nodes={"SoftmaxBackward0": 2})
    watch, found = AlarmWatch(PLACES), []
    for step in range(1, 30):
        changed = {row: {"update": 2.4 * turn if step < 4 else 0.01, "logit_max": logit} for row in (0, 2, 4)}
        changed[6] = {"update": 1.2 * turn if step < 4 else 0.01, "frobenius": 1.2}
        found += watch.observe(reading(step, 2.0 * fall**step, changed, facts=facts))
    assert [alarm.alarm for alarm in found if alarm.alarm == "no_warmup"] == ["no_warmup"] * named


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
        found += watch.observe(reading(step, loss=0.9, changed=changed))
    assert said(found) == [("effective_rate", "b.0.map")]  # one incident, whatever the number of layers
    assert word in found[0].sentence


@pytest.mark.parametrize("turns", [[0.5, 0.5, 0.5], [0.25] * 3])
def test_long_steps_are_told_against_the_norm_that_divides_them_and_their_sum_is_no_distance(turns):
    watch, found = AlarmWatch(PLACES), []
    facts = Facts(adaptive=True, nodes={"SoftmaxBackward0": 2})
    for step, turn in enumerate(turns, 1):
        changed = {row: {"frobenius": 2.4, "update": 2.4 * turn} for row in (0, 2, 4, 6)}
        found += watch.observe(reading(step, 2.0 + step, changed, facts=facts))
    (alarm,) = found
    assert "3 steps read moved the median layer by" in alarm.sentence
    assert f"of the norm it had after each; these add up to {sum(turns):.0%}." in alarm.sentence
    assert "of its norm" not in alarm.sentence and "together" not in alarm.sentence


def slow(turn: float, steps: int, loss=lambda step: 4.17, rate=lambda step: 1e-7) -> list:
    watch, found = AlarmWatch(PLACES), []
    for step in range(1, steps + 1):
        changed = {row: {"update": 2.4 * turn} for row in (0, 2, 4)} | {6: {"update": 1.2 * turn}}
        found += watch.observe(reading(step, loss(step), changed, rate=rate(step)))
    return found


@pytest.mark.parametrize(
    ("turn", "loss", "rate", "named"),
    [
        (5e-6, 4.17, lambda step: 1e-7, 1),
        (5e-5, 4.17, lambda step: 1e-6, 0),  # some way to go, and some way gone
        (5e-6, 4.17, lambda step: 1e-9 * step, 0),  # on its way up
        (5e-6, 0.0, lambda step: 1e-7, 0),
    ],
)
def test_a_rate_with_which_all_steps_together_come_to_nothing_is_named(turn, loss, rate, named):
    found = slow(turn, 62, lambda step: loss or 4.0 * 0.99**step, rate)
    assert said(found) == [("rate_small", "")] * named
    if named:
        assert "in 60 steps" in found[0].sentence and "5e-06 of its norm, and so many of these come to 0.0003" in (
            found[0].sentence
        )


@pytest.mark.parametrize(
    ("betas", "named"),
    [
        ((0.9, 0.1), 1),
        ((0.9, 0.8), 1),
        ((0.9, 0.95), 0),
        ((0.9, 0.999), 0),
        ((0.5, 0.9), 0),
        ((0.0, 0.0), 0),
        (None, 0),
    ],
)
def test_a_second_beta_that_bounds_no_step_is_named(betas, named):
    found = AlarmWatch(PLACES).observe(reading(1, facts=Facts(adaptive=True, betas=betas)))
    assert said(found) == [("second_beta", "")] * named


def test_steps_of_adam_are_many_times_the_rate_where_its_second_beta_is_said_to_bound_none():
    for betas, bounded in (((0.9, 0.1), False), ((0.9, 0.999), True)):
        weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer = torch.optim.Adam([weight], lr=1.0, betas=betas, eps=1e-30)
        first, second = betas
        longest = 0.0
        for k in range(12):  # where Cauchy's inequality is one: gradients that fade by β₂/β₁
            weight.grad = torch.full_like(weight, (second / first) ** k)
            before = weight.detach().clone()
            optimizer.step()
            longest = max(longest, (weight.detach() - before).abs().item())
        assert (longest < 10.0) == bounded
