"""Several runs in one process: their steps on streams of their own, so that small kernels share the device."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from experiments.than2025.run import Run, Work
from experiments.than2025.steps import Stepper

CHUNK = 16  # steps between two looks at whether they are done
QUEUED = 3  # chunks a stream may have waiting

Finish = Callable[[Run, bool], None]
Fail = Callable[[Run, Exception], None]


@dataclass(slots=True, eq=False)
class Seat:
    """A run and the stream its steps are on."""

    run: Run
    work: Work
    stepper: Stepper | None = None
    left: int = 0
    stream: torch.cuda.Stream | None = None
    marks: deque[torch.cuda.Event] = field(default_factory=deque)

    def resume(self) -> None:
        """Let the run measure and begin its next epoch."""
        self.stepper = next(self.work)
        self.left = self.stepper.steps
        if self.stepper.device.type == "cuda":
            self.stream = self.stream or torch.cuda.Stream()
            self.stream.wait_stream(torch.cuda.current_stream())

    def pump(self) -> bool:
        """Give the device more steps where it has few; True when the epoch is done."""
        assert self.stepper is not None
        if self.stream is None:
            self.stepper.advance(self.left)
            self.left = 0
            return True
        while self.marks and self.marks[0].query():
            self.marks.popleft()
        while self.left and len(self.marks) < QUEUED:
            count = min(CHUNK, self.left)
            with torch.cuda.stream(self.stream):
                self.stepper.advance(count)
                self.marks.append(self.stream.record_event())
            self.left -= count
        return not self.left and not self.marks


def drive(runs: Iterator[Run], seats: int, finish: Finish, fail: Fail) -> None:
    """Keep so many runs going until there are no more.

    Args:
        runs: taken one by one as seats become free.
        seats: runs at a time.
        finish: called with a run that ended, and whether it is finished.
        fail: called with a run and what it raised.
    """
    taken: list[Seat] = []
    more = True
    while more or taken:
        while more and len(taken) < seats:
            run = next(runs, None)
            more = run is not None
            if run is not None:
                _resumed(Seat(run, run.work()), taken, finish, fail)
        done = [seat for seat in taken if seat.pump()]
        for seat in done:
            taken.remove(seat)
            _resumed(seat, taken, finish, fail)
        if not done:
            time.sleep(1e-4)  # the device is behind; leave the core to others


def _resumed(seat: Seat, taken: list[Seat], finish: Finish, fail: Fail) -> None:
    """Resume a run; it takes its seat again unless it ended."""
    try:
        seat.resume()
        taken.append(seat)
    except StopIteration as stop:
        finish(seat.run, bool(stop.value))
    except Exception as error:  # one run's failure must not end the others
        fail(seat.run, error)
