"""Which trial next, what to do with one that failed, and what the folder of a sweep says about each."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from normgauge.lab.sweep.attempt import Ended
from normgauge.lab.sweep.engine import Engine
from normgauge.lab.sweep.files import (
    CHECKPOINT,
    RECORD,
    RESULT,
    Record,
    Result,
    file_digest,
    read_imports,
    read_record,
    read_result,
    write_record,
)
from normgauge.lab.sweep.space import SweepTrial
from normgauge.render.sweep import TrialOutcome

TRIALS = "trials"


@dataclass(frozen=True, slots=True)
class Tally:
    """How far a sweep has come.

    Attributes:
        total: trials asked for.
        done: those with a result.
        failed: those given up.
        left_s: seconds to go, guessed from the trials of this run; None before the first has ended.
    """

    total: int
    done: int
    failed: int
    left_s: float | None

    @property
    def words(self) -> str:
        """The progress in one line, for people."""
        failed = f", {self.failed} failed" if self.failed else ""
        left = "" if self.left_s is None else f", about {_duration(self.left_s)} left"
        return f"{self.done} of {self.total} trials done{failed}{left}"

    @property
    def fraction(self) -> float:
        """Share of the trials that are over."""
        return (self.done + self.failed) / self.total if self.total else 1.0


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Folder:
    """The folder of a sweep: one folder a trial, by id."""

    def __init__(self, out: Path, config_folder: Path, code: dict[str, Path | None]) -> None:
        self.out, self.config_folder = out, config_folder
        self._digests = {key: file_digest(file) for key, file in code.items() if file is not None}

    def place(self, trial: SweepTrial) -> Path:
        """The folder of a trial."""
        return self.out / TRIALS / trial.id

    def outcome(self, trial: SweepTrial) -> TrialOutcome:
        """What is known of a trial; one with a result is done, even if the sweep was killed before it noted that."""
        result = read_result(self.place(trial))
        record = self._record(trial, result)
        status = record.status if result is not None or record.status != "done" else "new"
        return TrialOutcome(
            id=trial.id,
            point=trial.point,
            seed=trial.seed,
            status=status,
            values={} if result is None else {name: v for name, v in result.values.items() if v is not None},
            attempts=record.attempts,
            seconds=record.seconds,
            error=record.error if status == "failed" else "",
            notes=() if result is None else result.notes,
            known={} if result is None else result.known,
            outdated=result is not None and self._changed(trial, record),
        )

    def adopt(self, trial: SweepTrial, keep: bool) -> None:
        """Note that a trial is done which came to its result while nobody was left to write that down."""
        place = self.place(trial)
        record = read_record(place)
        if (record is None or record.status != "done") and (result := read_result(place)) is not None:
            self._close(trial, self._record(trial, result), keep)

    def others(self, trials: Sequence[SweepTrial]) -> int:
        """How many trials lie here that this config does not ask for."""
        own = {trial.id for trial in trials}
        place = self.out / TRIALS
        return sum(found.is_dir() and found.name not in own for found in place.iterdir()) if place.is_dir() else 0

    def _changed(self, trial: SweepTrial, record: Record) -> bool:
        """Whether the user's file, or one that it had imported from beside it, is another now."""
        imported = read_imports(self.place(trial)).items()
        return record.code != self._digest_of(trial) or any(
            file_digest(self.config_folder / path) != digest for path, digest in imported
        )

    def forget(self, trial: SweepTrial) -> None:
        """Take a trial's result away, what it would resume from, and its count of attempts: it is to run again."""
        for name in (RESULT, CHECKPOINT, RECORD):
            (self.place(trial) / name).unlink(missing_ok=True)

    def begin(self, trial: SweepTrial) -> Path:
        """Write down that an attempt begins."""
        place = self.place(trial)
        place.mkdir(parents=True, exist_ok=True)
        before, now = read_record(place) or self._fresh(trial), self._fresh(trial)
        if self._changed(trial, before):
            (place / CHECKPOINT).unlink(missing_ok=True)  # of another network, perhaps
        (place / RESULT).unlink(missing_ok=True)
        write_record(
            place,
            replace(now, status="running", attempts=before.attempts + 1, seconds=before.seconds, error=before.error),
        )
        return place

    def settle(self, trial: SweepTrial, ended: Ended, keep: bool) -> None:
        """Write down how an attempt ended."""
        record = read_record(self.place(trial)) or self._fresh(trial)
        status = "failed" if ended.error else "done"
        seconds = _sum(record.seconds, ended.seconds)
        self._close(trial, replace(record, status=status, seconds=seconds, error=ended.error), keep)

    def _close(self, trial: SweepTrial, record: Record, keep: bool) -> None:
        """Write down the end of a trial; the record is the last that changes, so that a kill leaves all to be done."""
        if record.status == "done" and not keep:
            (self.place(trial) / CHECKPOINT).unlink(missing_ok=True)
        write_record(self.place(trial), record)

    def _record(self, trial: SweepTrial, result: Result | None) -> Record:
        """The record of a trial; with a result it is done, whatever was written down last."""
        record = read_record(self.place(trial))
        if result is None or (record is not None and record.status == "done"):
            return record or self._fresh(trial)
        if record is None:
            return replace(self._fresh(trial), status="done", attempts=1, seconds=result.seconds)
        seconds = record.seconds if record.status == "failed" else _sum(record.seconds, result.seconds)
        return replace(record, status="done", seconds=seconds, error="")

    def _fresh(self, trial: SweepTrial) -> Record:
        return Record(trial.id, trial.settings, str(self.config_folder), code=self._digest_of(trial))

    def _digest_of(self, trial: SweepTrial) -> str:
        return self._digests.get(str(trial.settings["network.build"]), "")


def _sum(before: float | None, now: float | None) -> float | None:
    """Seconds of all attempts; None where those of one are not known."""
    return None if before is None or now is None else round(before + now, 3)


def drive(
    trials: Sequence[SweepTrial],
    folder: Folder,
    engine: Engine,
    *,
    retries: int = 1,
    keep: bool = False,
    report: Callable[[Tally], None] = lambda tally: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run every trial that is not done, those that failed before included.

    Args:
        trials: what is asked for.
        folder: of the sweep.
        engine: what runs them.
        retries: further attempts for a trial that fails.
        keep: keep the checkpoints of finished trials.
        report: told after each change.
        clock: seconds.
    """
    waiting = deque(trial for trial in trials if folder.outcome(trial).status != "done")
    tries = {trial.id: 0 for trial in waiting}
    by_place: dict[Path, SweepTrial] = {}
    before, done, failed, begun = len(trials) - len(waiting), 0, 0, clock()
    while waiting or by_place:
        over = done + failed
        left = (clock() - begun) / over * (len(tries) - over) if over else None
        report(Tally(len(trials), before + done, failed, left))
        while waiting and engine.free > 0:
            trial = waiting.popleft()
            tries[trial.id] += 1
            place = folder.begin(trial).resolve()
            by_place[place] = trial
            engine.start(place)
        for ended in engine.ended():
            trial = by_place.pop(ended.place.resolve())
            folder.settle(trial, ended, keep)
            if not ended.error:
                done += 1
            elif tries[trial.id] <= retries:
                waiting.append(trial)
            else:
                failed += 1
    report(Tally(len(trials), before + done, failed, 0.0 if tries else None))
