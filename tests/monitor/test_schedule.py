"""Readings come as often as the budget allows, and no oftener."""

from itertools import pairwise

import pytest

from normgauge.monitor import schedule
from normgauge.monitor.rotation import PROOF_STEPS, Account
from normgauge.monitor.schedule import (
    CREDIT,
    DENSE_STEPS,
    FIRST_READINGS,
    GAP,
    LONGEST_STEPS,
    LOOK,
    PROVING,
    READING,
    Level,
    Schedule,
)


class Clock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(schedule, "time", made)
    return made


Costs = float | dict[Level, float]
Rotation = tuple[Schedule, dict[str, list[int]]]  # the steps at which each part was proved


def run(plan: Schedule, clock: Clock, steps: int, step_seconds: float, reading_seconds: Costs) -> list[int]:
    """Train with steps of one length and readings of another; the steps that were read."""
    read, armed = [], True
    for step in range(1, steps + 1):
        clock.now += step_seconds
        if plan.rests(step) and not armed:
            continue
        began = clock.now
        if armed:
            plan.reads(step)
            read.append(step)
            LEVELS[plan, step] = plan.level
            clock.now += reading_seconds[plan.level] if isinstance(reading_seconds, dict) else reading_seconds
        plan.settle(began, 0.0)
        armed = plan.due(step + 1)
    return read


LEVELS: dict[tuple[Schedule, int], Level] = {}


def read_levels(plan: Schedule, read: list[int]) -> list[tuple[int, Level]]:
    """How much each reading of a run held."""
    return [(step, LEVELS[plan, step]) for step in read]


def test_readings_keep_to_their_part_of_the_budget(clock: Clock) -> None:
    plan = Schedule(0.03, None, 0)
    read = run(plan, clock, 5000, 0.01, 0.02)
    spent = 0.02 * len(read) / clock.now
    assert 0.03 * READING < spent <= 0.03  # one in 50 steps takes from what was saved for proofs
    assert plan.share == pytest.approx(spent, rel=0.02)


def test_the_first_steps_are_read_densely_and_later_ones_no_oftener_than_useful(clock: Clock) -> None:
    read = run(Schedule(0.03, None, 0), clock, 1000, 1.0, 1e-3)
    assert read[:DENSE_STEPS] == [*range(1, DENSE_STEPS + 1)]
    gaps = [b - a for a, b in zip(read[DENSE_STEPS + 1 :], read[DENSE_STEPS + 2 :], strict=False)]
    assert gaps and min(gaps) >= GAP and max(gaps) < GAP + LOOK


def test_short_steps_get_lines_too(clock: Clock) -> None:
    read = run(Schedule(0.03, None, 0), clock, 8000, 0.001, 0.002)
    assert len(read) >= 50 and len([step for step in read if step <= DENSE_STEPS]) >= 10
    assert max(b - a for a, b in pairwise(read)) < 1000


def test_light_readings_fill_in_where_whole_ones_are_dear(clock: Clock) -> None:
    plan = Schedule(0.03, None, 0)
    read = run(plan, clock, 4000, 0.01, {Level.LIGHT: 0.004, Level.ALERT: 0.01, Level.PLAIN: 0.03, Level.RICH: 0.06})
    levels = dict(read_levels(plan, read))
    gaps = [b - a for a, b in pairwise(levels)]
    assert max(gaps[FIRST_READINGS + 1 :]) <= LONGEST_STEPS + LOOK and not plan.late
    late = [level for step, level in levels.items() if step > 500]
    assert {Level.LIGHT, Level.PLAIN} <= set(late)
    assert plan.share <= 0.03


def test_directions_turn_oftener_at_first_after_a_pause_and_while_norms_move(clock: Clock) -> None:
    plan = Schedule(0.03, 1, 0)
    turns = {}
    for step in [*range(1, 60), 70, 71, 72]:
        plan.turning.moving = step == 72
        plan.level = Level.PLAIN
        plan.reads(step)
        turns[step] = plan.turning.turns
    assert {turns[step] for step in range(1, 11)} == {8} and {turns[step] for step in range(11, 51)} == {2}
    assert {turns[step] for step in range(51, 60, 2)} == {1} and {turns[step] for step in range(52, 60, 2)} == {0}
    assert [turns[step] for step in (70, 71, 72)] == [4, 1, 4]


def test_everything_is_read_every_ten_steps_where_all_are_read(clock: Clock) -> None:
    plan = Schedule(0.03, 1, 0)
    levels = read_levels(plan, run(plan, clock, 25, 0.01, 0.001))  # and at each doubling, as the budget does
    assert [step for step, level in levels if level is Level.RICH] == [1, 2, 4, 8, 16]
    assert all(level is not Level.LIGHT for _, level in levels)


def test_a_line_that_is_overdue_takes_what_was_saved_for_proofs(clock: Clock) -> None:
    plan = Schedule(0.03, None, 0)
    read = run(plan, clock, 2000, 0.01, 0.009)  # needs 1.8 per cent for one in 50 steps
    gaps = [b - a for a, b in pairwise(read) if a > 500]  # what the first looks took is saved up again by then
    assert gaps and max(gaps) <= LONGEST_STEPS + LOOK
    costly = Schedule(0.03, None, 0)
    run(costly, clock, 2000, 0.01, 0.1)
    assert costly.late


def test_what_alarms_ask_for_is_read_whenever_the_steps_have_doubled(clock: Clock) -> None:
    plan = Schedule(0.03, None, 0)
    costs = {Level.LIGHT: 0.3, Level.ALERT: 0.5, Level.PLAIN: 2.0, Level.RICH: 4.0}
    levels = dict(read_levels(plan, run(plan, clock, 1100, 0.01, costs)))
    assert [step for step, level in levels.items() if level is Level.ALERT] == [2**k for k in range(2, 11)]
    assert not plan._reading.affords(0.0) and plan.proves(
        0.0, None
    )  # what they took is owed by readings, not by proofs


def test_a_reading_that_was_asked_for_holds_what_the_sign_needs() -> None:
    plan = Schedule(0.03, None, 0)
    for level, due, everything, got in (
        (Level.LIGHT, True, False, Level.ALERT),
        (Level.RICH, False, False, Level.ALERT),
        (Level.PLAIN, True, False, Level.PLAIN),
        (Level.PLAIN, True, True, Level.RICH),
    ):
        plan.level = level
        plan.want(due=due, everything=everything)
        assert plan.level is got


def test_proofs_keep_to_their_part_and_are_renewed_where_every_step_is_read(clock: Clock) -> None:
    plan = Schedule(0.03, None, 0)
    assert plan.proves(0.0, None) and not plan.proves(0.1, None)
    plan.proving.earn(1000.0)
    assert plan.proves(1000 * 0.03 * PROVING, 45) and not plan.proves(1000 * 0.03 * PROVING + 1, 45)
    assert not plan.proves(0.0, 3)  # young enough
    every = Schedule(0.03, 1, 0)
    assert every.proves(100.0, None) and every.proves(100.0, 50) and not every.proves(100.0, 49)
    seventh = Schedule(0.03, 7, 0)
    assert seventh.proves(100.0, 49) and not seventh.proves(100.0, 42)  # the one after would be of age 56


def proving_run(clock: Clock, steps: int, step: float, costs: dict[Level, float], parts: dict[str, float]) -> Rotation:
    """Train with proofs of several parts, the oldest first."""
    plan, proved = Schedule(0.03, None, 0), {name: [0] for name in parts}
    armed = True
    for number in range(1, steps + 1):
        clock.now += step
        if plan.rests(number) and not armed:
            continue
        began = clock.now
        if armed:
            plan.reads(number)
            clock.now += costs[plan.level]
            for name in sorted(proved, key=lambda name: proved[name][-1]):
                age = number - proved[name][-1]
                if not plan.proves(parts[name], age):
                    break
                clock.now += parts[name]
                plan.proving.spent += parts[name]
                proved[name].append(number)
            plan.share_out(number, [(steps[-1], parts[name]) for name, steps in proved.items()])
        plan.settle(began, 0.0)
        armed = plan.due(number + 1)
    return plan, proved


@pytest.mark.parametrize("part", [0.002, 0.004, 0.006])
def test_every_part_is_proved_each_fifty_steps_where_the_budget_has_it(clock: Clock, part: float) -> None:
    costs = {Level.LIGHT: 0.002, Level.ALERT: 0.003, Level.PLAIN: 0.004, Level.RICH: 0.006}
    plan, proved = proving_run(clock, 2000, 0.045, costs, dict.fromkeys("abcdef", part))  # up to 36 of 67 ms
    assert max(b - a for steps in proved.values() for a, b in pairwise(steps[1:])) <= PROOF_STEPS
    assert max(steps[1] for steps in proved.values()) <= 1.3 * PROOF_STEPS  # the first ones wait until they are earned
    assert not plan.uncovered and not plan.late and plan.share <= 0.03


@pytest.mark.parametrize("parts", [{"all": 0.024}, dict.fromkeys("abcdefghijk", 0.0024)])
def test_lines_that_are_taken_for_a_proof_leave_it_what_was_saved(clock: Clock, parts: dict[str, float]) -> None:
    # Before, a line that was overdue took the debts of the first steps too, and the proof it was taken for waited.
    costs = {Level.LIGHT: 0.0018, Level.ALERT: 0.002, Level.PLAIN: 0.003, Level.RICH: 0.0045}
    plan, proved = proving_run(clock, 1000, 0.0245, costs, parts)  # 26 to 29 of 37 ms
    assert max(b - a for steps in proved.values() for a, b in pairwise(steps)) <= PROOF_STEPS
    assert not plan.late and plan.share <= 0.0305  # the first steps are read on credit


@pytest.mark.parametrize(("dearer", "most"), [(1.1, 60), (1.2, 80)])
def test_proofs_get_little_older_where_the_budget_is_a_little_short(clock: Clock, dearer: float, most: int) -> None:
    # Before (98 and 102 steps), what one reading left behind waited for all of it to be saved up.
    costs = {Level.LIGHT: 0.0042, Level.ALERT: 0.005, Level.PLAIN: 0.0055, Level.RICH: 0.009}
    parts = {"a": 0.0095, "b": 0.0095, "c": 0.005, "d": 0.0002}
    costs, parts = {k: dearer * v for k, v in costs.items()}, {k: dearer * v for k, v in parts.items()}
    plan, proved = proving_run(clock, 1000, 0.0235, costs, parts)
    assert max(b - a for steps in proved.values() for a, b in pairwise(steps)) <= most
    assert plan.share <= 0.03


def test_steps_that_rested_have_earned_something_when_the_accounts_are_looked_at(clock: Clock) -> None:
    plan = Schedule(0.03, None, 0)
    read = run(plan, clock, 60, 0.02, 0.004)
    plan.settle(clock.now, 0.0)
    assert read and plan.proving.left > 0
    before = plan.proving.left
    clock.now += 10.0  # steps that rested, as most do, tell nobody
    plan.due(500)
    assert plan.proving.left == pytest.approx(before + 10.0 * plan.proving.share)
    plan.settle(clock.now, 0.0)
    assert plan.proving.left == pytest.approx(before + 10.0 * plan.proving.share)  # and once only


def test_proofs_and_lines_that_the_budget_cannot_have_are_told(clock: Clock) -> None:
    costs = {Level.LIGHT: 0.002, Level.ALERT: 0.003, Level.PLAIN: 0.004, Level.RICH: 0.006}
    plan, proved = proving_run(clock, 2000, 0.045, costs, dict.fromkeys("abcdef", 0.02))  # 120 of 67 ms
    assert plan.uncovered == pytest.approx(1.2 * 0.122 / (50 * 0.045), rel=0.1)
    assert 80 < max(b - a for steps in proved.values() for a, b in pairwise(steps[1:])) < 130
    assert plan.share <= 0.03


def test_proofs_that_cost_little_leave_their_part_to_readings(clock: Clock) -> None:
    costs = {Level.LIGHT: 0.02, Level.ALERT: 0.025, Level.PLAIN: 0.03, Level.RICH: 0.03}
    plain = len(run(Schedule(0.03, None, 0), clock, 2000, 0.045, costs))
    plan, _ = proving_run(clock, 2000, 0.045, costs, {"a": 0.001})
    assert plan.readings > 1.5 * plain


def test_every_is_kept_whatever_it_costs(clock: Clock) -> None:
    plan = Schedule(0.03, 7, 0)
    read = run(plan, clock, 50, 0.01, 1.0)
    assert read == [1, 7, 14, 21, 28, 35, 42, 49]
    assert plan.share > 0.9


def test_idle_calls_do_not_starve_readings(clock: Clock) -> None:
    plan = Schedule(0.03, None, 0)
    for _ in range(1000):
        clock.now += 0.001
        began = clock.now
        clock.now += 5e-5
        plan.settle(began, 0.0)
    assert plan.due(2000) and plan.share == pytest.approx(5e-5 / 1.05e-3, rel=0.01)


def test_the_wish_says_what_is_missing(clock: Clock) -> None:
    plan = Schedule(0.1, None, 0)
    run(plan, clock, 2, 0.5, 0.2)  # of which the first is not counted
    missing, earned = plan.wish(2)
    per_second = 0.1 * READING
    assert missing == pytest.approx(0.4 - CREDIT - 0.7 * per_second)
    assert earned == pytest.approx(0.7 * per_second / 2)
    clock.now += 1.0
    plan.settle(clock.now, 0.0)
    assert plan.wish(3)[0] == pytest.approx(missing - per_second) and plan.share == pytest.approx(0.4 / 1.7)


def test_an_account_never_goes_over_its_share() -> None:
    account = Account(0.1)
    account.earn(10.0)
    assert account.affords(1.0) and not account.affords(1.001)
    account.spent += 0.6
    assert not account.affords(0.5)
    account.earn(1.0)
    assert account.affords(0.5)


def test_directions_turn_as_often_as_that_finds_something(clock):
    plan, gains = Schedule(0.03, 1, 0), {60: 1.01, 61: 1.0}
    turned = []
    plan.turning.turned(0, 1.0)  # as the warm-up told: they are six
    for step in range(1, 81):
        plan.reads(step)
        if plan.turning.turns:
            turned.append(step)
            plan.turning.turned(step, gains.get(step, 1.0))
    assert turned[:50] == list(range(1, 51))
    assert turned[50:] == [54, 58, 62, 66, 70, 74, 78]  # nothing was found, so every fourth step
    plan.turning.turned(78, 1.01)
    later = []
    for step in range(81, 100):
        plan.reads(step)
        if plan.turning.turns:
            later.append(step)
            plan.turning.turned(step, 1.01 if step < 90 else 1.001)
    assert later == list(range(81, 100))  # a turn at every step while it finds one per cent, or enough to go on
    plan.turning.turned(99, None)  # nothing turned: nothing is known
    plan.reads(100)
    assert plan.turning.turns == 1


def test_what_a_device_hides_is_booked_by_its_own_time(clock: Clock) -> None:
    """The host's 20 ms a reading keep nobody waiting while the device has not come as far; its 2 ms do."""
    plan, read, armed = Schedule(0.03, None, 0), 0, True
    for step in range(1, 3001):
        clock.now += 0.03
        if plan.rests(step) and not armed:
            continue
        began = clock.now
        if armed:
            plan.reads(step)
            read += 1
        plan.settle(began, 0.02 if armed else 0.0, hidden=True)
        if armed:
            plan.book_device(0.002, plan.level)
        armed = plan.due(step + 1)
    assert read > 3000 * 0.03 * READING * 0.03 / 0.02 * 2  # far more than the host's time would allow
    assert plan.share == pytest.approx(0.002 * read / clock.now, rel=0.05)
    assert plan.share <= 0.03


@pytest.mark.parametrize(
    ("hidden", "device", "cost"), [(True, 0.004, 0.004), (False, 0.004, 0.01), (False, 0.02, 0.02)]
)
def test_what_a_proof_costs(clock: Clock, hidden: bool, device: float, cost: float) -> None:
    plan = Schedule(0.03, None, 0)
    plan.reads(1)
    began = clock.now
    clock.now += 0.01
    plan.proving.spent += 0.01  # the host began a proof
    plan.settle(began, 0.0, hidden=hidden)
    assert plan.book_proof(0.01, device, hidden=hidden) == pytest.approx(cost)
    assert plan.proving.spent == pytest.approx(cost)
    clock.now += 1.0
    plan.settle(clock.now, 0.0)
    assert plan.share == pytest.approx(cost / 1.0)
    assert plan._reading.spent == pytest.approx(0.0)  # what a proof takes is no part of what readings take
