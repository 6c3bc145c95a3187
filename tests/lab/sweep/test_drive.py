"""Which trial runs when, retries and what the folder remembers; with an engine that only pretends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from normgauge.lab.sweep.attempt import Ended
from normgauge.lab.sweep.drive import Folder, Tally, drive
from normgauge.lab.sweep.files import (
    CHECKPOINT,
    RECORD,
    RESULT,
    Result,
    file_digest,
    read_record,
    write_imports,
    write_record,
    write_result,
)
from normgauge.lab.sweep.space import SweepTrial, expand_trials
from tests.lab.sweep.made import config

GRID = '[grid]\n"training.lr" = [1, 2, 3]'


class Pretend:
    """Ends attempts at once, last begun first; those it is told to fail, fail so often."""

    def __init__(self, workers: int = 2, failing: dict[str, int] | None = None) -> None:
        self.workers, self.failing = workers, dict(failing or {})
        self.begun: list[str] = []
        self._running: list[Path] = []

    @property
    def free(self) -> int:
        return self.workers - len(self._running)

    def start(self, place: Path) -> None:
        assert self.free > 0
        self.begun.append(place.name)
        self._running.append(place)
        (place / CHECKPOINT).touch()

    def ended(self) -> list[Ended]:
        place = self._running.pop()
        if self.failing.get(place.name, 0) > 0:
            self.failing[place.name] -= 1
            return [Ended(place, 1.0, "first line\nwhy it failed")]
        write_result(place, Result({"test_accuracy": 0.5, "alarms": None}, ("a note",), (2.0, float("nan"))))
        return [Ended(place, 2.0)]

    def __enter__(self) -> Pretend:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def sweep(tmp_path) -> tuple[list[SweepTrial], Folder]:
    read = config(tmp_path, GRID)
    return expand_trials(read), Folder(tmp_path / "out", read.folder, {})


def statuses(sweep: tuple[list[SweepTrial], Folder]) -> list[str]:
    return [sweep[1].outcome(trial).status for trial in sweep[0]]


def test_every_trial_runs_once(sweep):
    trials, folder = sweep
    engine, told = Pretend(), []
    drive(trials, folder, engine, report=told.append)
    assert sorted(engine.begun) == sorted(trial.id for trial in trials)
    assert statuses(sweep) == ["done"] * 3
    outcome = folder.outcome(trials[0])
    assert (outcome.values, outcome.attempts, outcome.seconds) == ({"test_accuracy": 0.5}, 1, 2.0)
    assert outcome.notes == ("a note",) and outcome.error == ""
    assert told[-1] == Tally(3, 3, 0, 0.0) and told[0] == Tally(3, 0, 0, None)
    assert not list((folder.out / "trials").glob(f"*/{CHECKPOINT}"))


def test_what_is_done_is_not_run_again(sweep):
    trials, folder = sweep
    drive(trials[:2], folder, Pretend())
    engine, told = Pretend(), []
    drive(trials, folder, engine, keep=True, report=told.append)
    assert engine.begun == [trials[2].id] and told[-1].done == 3
    assert [path.parent.name for path in folder.out.glob(f"trials/*/{CHECKPOINT}")] == [trials[2].id]


def test_a_failed_trial_is_tried_again_and_then_given_up(sweep):
    trials, folder = sweep
    engine, told = Pretend(1, {trials[0].id: 1, trials[1].id: 9}), []
    drive(trials, folder, engine, retries=2, report=told.append)
    assert [engine.begun.count(trial.id) for trial in trials] == [2, 3, 1]
    assert statuses(sweep) == ["done", "failed", "done"]
    failed = folder.outcome(trials[1])
    assert failed.attempts == 3 and failed.seconds == 3.0 and failed.error == "first line\nwhy it failed"
    assert folder.outcome(trials[0]).error == ""
    assert told[-1] == Tally(3, 2, 1, 0.0) and told[-1].fraction == 1.0
    drive(trials, folder, Pretend(), retries=0)
    assert statuses(sweep) == ["done"] * 3 and folder.outcome(trials[1]).attempts == 4


def test_a_trial_whose_sweep_was_killed_runs_again_unless_its_result_is_there(sweep):
    trials, folder = sweep
    places = [folder.begin(trial) for trial in trials[:2]]
    write_result(places[1], Result({"gap": 0.1}))
    assert statuses(sweep) == ["running", "done", "new"]
    engine = Pretend()
    drive(trials, folder, engine)
    assert sorted(engine.begun) == sorted([trials[0].id, trials[2].id])
    assert folder.outcome(trials[0]).attempts == 2


@pytest.mark.parametrize(
    ("before", "took", "seconds"),
    [({}, 2.5, 2.5), ({"seconds": 1.5, "attempts": 2}, 2.5, 4.0), ({}, None, None), ({"seconds": None}, 2.5, None)],
    ids=["first attempt", "second attempt", "time not written down", "never written down"],
)
def test_a_result_that_nobody_was_left_to_note_is_adopted(sweep, before, took, seconds):
    """Its time is that of its own clock or none, and nothing is left of a trial that runs."""
    trials, folder = sweep
    place = folder.begin(trials[0])
    running = read_record(place)
    assert running is not None
    write_record(place, replace(running, **before))
    (place / CHECKPOINT).touch()
    write_result(place, Result({"gap": 0.1}, seconds=took))
    assert folder.outcome(trials[0]).status == "done" and folder.outcome(trials[0]).seconds == seconds
    folder.adopt(trials[0], keep=False)
    record = read_record(place)
    assert record is not None and (record.status, record.seconds) == ("done", seconds)
    assert record.attempts == before.get("attempts", 1) and not (place / CHECKPOINT).exists()
    folder.adopt(trials[1], keep=False)
    assert statuses(sweep) == ["done", "new", "new"] and not folder.place(trials[1]).exists()


def test_a_result_beside_another_record(sweep):
    """A record that says failed has counted its time; one that cannot be read has not; one that says done is left."""
    trials, folder = sweep
    places = [folder.begin(trial) for trial in trials]
    for place in places:
        write_result(place, Result({"gap": 0.1}, seconds=2.0))
        (place / CHECKPOINT).touch()
    folder.settle(trials[0], Ended(places[0], 3.0, "killed at the end"), keep=False)
    (places[1] / RECORD).write_text("{")
    folder.settle(trials[2], Ended(places[2], 3.0), keep=True)
    for trial in trials:
        folder.adopt(trial, keep=False)
    outcomes = [folder.outcome(trial) for trial in trials]
    assert [(o.status, o.seconds, o.error) for o in outcomes] == [("done", s, "") for s in (3.0, 2.0, 3.0)]
    assert [(place / CHECKPOINT).exists() for place in places] == [False, False, True]


def test_a_kill_between_two_files_leaves_what_the_next_run_mends(sweep, monkeypatch):
    trials, folder = sweep
    place = folder.begin(trials[0])
    write_result(place, Result({"gap": 0.1}, seconds=2.0))
    (place / CHECKPOINT).touch()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("normgauge.lab.sweep.drive.write_record", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.settle(trials[0], Ended(place, 2.0), keep=False)
    folder.adopt(trials[0], keep=False)
    assert statuses(sweep)[0] == "done" and not (place / CHECKPOINT).exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 9}', '{"schema": 1, "status": "done", "color": 1}'])
def test_files_that_cannot_be_read_are_as_if_they_were_not_there(sweep, content):
    trials, folder = sweep
    place = folder.begin(trials[0])
    (place / RECORD).write_text(content)
    (place / RESULT).write_text(content if "status" not in content else "")
    assert read_record(place) is None and statuses(sweep)[0] == "new"
    drive(trials, folder, Pretend())
    assert statuses(sweep) == ["done"] * 3


def test_a_record_that_says_done_without_a_result_is_not_believed(sweep):
    trials, folder = sweep
    drive(trials, folder, Pretend())
    (folder.place(trials[0]) / RESULT).unlink()
    assert statuses(sweep) == ["new", "done", "done"]


def test_trials_of_another_config_are_counted(sweep):
    trials, folder = sweep
    assert folder.others(trials) == 0
    drive(trials, folder, Pretend())
    assert folder.others(trials[1:]) == 1 and folder.others([]) == 3


def test_a_file_that_changed_is_noticed(tmp_path):
    read = config(tmp_path, GRID, head='[network]\nbuild = "nets.py:build"')
    trials, code = expand_trials(read), {"nets.py:build": tmp_path / "nets.py"}
    folder = Folder(tmp_path / "out", read.folder, code)
    drive(trials[:1], folder, Pretend())
    (folder.begin(trials[1]) / CHECKPOINT).touch()
    assert not any(folder.outcome(trial).outdated for trial in trials)
    (tmp_path / "nets.py").write_text("# another\n")
    changed = Folder(tmp_path / "out", read.folder, code)
    assert [changed.outcome(trial).outdated for trial in trials] == [True, False, False]
    assert not (changed.begin(trials[1]) / CHECKPOINT).exists()


def test_an_import_that_changed_is_noticed(tmp_path):
    read = config(tmp_path, GRID, head='[network]\nbuild = "nets.py:build"')
    trials, folder = expand_trials(read), Folder(tmp_path / "out", read.folder, {})
    (tmp_path / "helper.py").write_text("width = 32\n")
    drive(trials[:2], folder, Pretend(), keep=True)
    write_imports(folder.place(trials[0]), {"helper.py": file_digest(tmp_path / "helper.py")})
    assert not folder.outcome(trials[0]).outdated
    (tmp_path / "helper.py").write_text("width = 512\n")
    assert [folder.outcome(trial).outdated for trial in trials] == [True, False, False]
    folder.forget(trials[0])
    assert folder.outcome(trials[0]).status == "new" and not (folder.place(trials[0]) / CHECKPOINT).exists()
    assert not folder.outcome(trials[0]).outdated


def tallied(left: float | None) -> str:
    return Tally(10, 3, 0, left).words


def test_progress_in_words():
    assert Tally(10, 3, 1, None).words == "3 of 10 trials done, 1 failed"
    assert [tallied(left).rpartition("about ")[2] for left in (30, 600, 7200)] == [
        "30 s left",
        "10 min left",
        "2.0 h left",
    ]
    assert Tally(0, 0, 0, None).fraction == 1.0


def test_time_left_is_guessed_from_this_run(sweep):
    trials, folder = sweep
    told: list[Tally] = []
    ticks = iter(range(0, 100, 10))
    drive(trials, folder, Pretend(1), report=told.append, clock=lambda: next(ticks))
    assert [tally.left_s for tally in told] == [None, 20.0, 10.0, 0.0]


def test_nothing_asked_for_is_nothing_done(tmp_path):
    none: Sequence[SweepTrial] = []
    drive(none, Folder(tmp_path, tmp_path, {}), Pretend())
    assert list(tmp_path.iterdir()) == []
