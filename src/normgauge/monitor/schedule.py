"""When to read: as often as the budget allows, or at every so many steps."""

from __future__ import annotations

import time
from dataclasses import dataclass

# Parts of the budget for readings and for proofs; the rest is room for what cannot be foreseen
READING, PROVING = 0.5, 0.05

# After so many steps, readings within a budget are at least so many steps apart: more would show nothing new
SPARSE, GAP = 20, 12


TURNS = 4  # how often directions turn at a reading that is not the step after the last one

# Seconds up to which a call without a reading is not booked as one: it would starve the readings of short steps
IDLE = 2e-4

LOOK = 5  # then the accounts are looked at only at every so many steps


@dataclass(slots=True)
class Account:
    """A share of the training time, saved up and spent.

    Attributes:
        share: of the time that passes; 0.03 is three seconds in a hundred.
        earned: seconds saved up so far.
        spent: seconds taken.
    """

    share: float
    earned: float = 0.0
    spent: float = 0.0

    def earn(self, seconds: float) -> None:
        """Time has passed."""
        self.earned += self.share * seconds

    def affords(self, seconds: float) -> bool:
        """Whether this much more keeps within the share."""
        return self.spent + seconds <= self.earned


class Schedule:
    """Books the time that measuring takes against the time that passes.

    Args:
        budget: share of the time that measuring may take.
        every: read at every so many steps instead.
        first: the step the training goes on from.

    Attributes:
        cost: seconds of the last reading, on the host or on the device, whichever was longer.
        proving: the account of proofs.
        turns: how often directions turn at the reading that is being taken.
    """

    def __init__(self, budget: float, every: int | None, first: int) -> None:
        self._every, self._first, self._last = every, first, first
        self._reading = Account(budget * READING)
        self.proving = Account(budget * PROVING)
        self.cost = 0.0
        self._spent = self._passed = self._proved = 0.0
        self._call: float | None = None
        self._read_now = False
        self.turns = 1

    @property
    def share(self) -> float:
        """Seconds spent measuring over seconds passed since the first step."""
        return self._spent / self._passed if self._passed else 0.0

    def reads(self, step: int) -> None:
        """A reading is being taken at this step."""
        self.turns = 1 if step - self._last <= 1 else TURNS
        self._read_now, self._last = True, step

    def rests(self, step: int) -> bool:
        """Whether neither a reading nor a proof is thought of at this step."""
        return self._every is None and step - self._first > SPARSE and step % LOOK != 0

    def due(self, step: int) -> bool:
        """Whether this coming step is to be read."""
        if self._every is not None:
            return step % self._every == 0
        soon = step - self._first > SPARSE and step - self._last < GAP
        return not soon and self._reading.affords(self.cost)

    def wish(self, step: int) -> tuple[float, float]:
        """Seconds that are missing for another reading, and seconds earned with each step."""
        done = step - self._first
        earned = self._reading.share * self._passed / done if done else 0.0
        return self._reading.spent + self.cost - self._reading.earned, earned

    def settle(self, began: float, hooks: float) -> None:
        """Book one call that began then, with what the hooks took; earn a share of what passed since the last."""
        now = time.perf_counter()
        mine = now - began + hooks
        passed = 0.0 if self._call is None else now - self._call
        self._call = now
        self._spent += mine
        self._passed += passed
        self._reading.earn(passed)
        self.proving.earn(passed)
        reading = mine - (self.proving.spent - self._proved)
        self._proved = self.proving.spent
        if self._read_now or reading > IDLE:
            self._reading.spent += reading
        if self._read_now:
            self._read_now, self.cost = False, reading
