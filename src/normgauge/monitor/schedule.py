"""When to read and when to prove: as often as the budget allows, or at every so many steps."""

from __future__ import annotations

import time
from dataclasses import dataclass

# Parts of the budget for readings and for proofs; the rest is a reserve
READING, PROVING = 0.45, 0.5

# In the first 50 steps every one may be read, on credit of so many seconds; later readings are at least 5 steps apart
DENSE_STEPS, CREDIT, GAP = 50, 0.02, 5

FIRST_READINGS = 3  # taken whatever they cost: the first of all is slower than any later one

# A line is wanted at least so often, and takes what was saved for proofs if there is no other way
LONGEST_STEPS, LONGEST_SECONDS = 50, 10.0

RICH_STEPS = 10  # what moves slowly, or costs as much as all the rest, is read at most so often

PROOF_STEPS = 50  # a proof older than this is renewed where every so many steps are read

RARE_STEPS = 200  # before this age a proof is not renewed where lines come late: they need the time more

TURNS = 2  # how often directions turn at a reading that is not the step after the last one

# Seconds up to which a call without a reading is not booked as one: it would starve the readings of short steps
IDLE = 2e-4

LOOK = 5  # after those first steps, the accounts are looked at once in this many steps


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

    @property
    def left(self) -> float:
        """Seconds that may be spent."""
        return self.earned - self.spent

    def earn(self, seconds: float) -> None:
        """Save up the share of ``seconds`` that have passed."""
        self.earned += self.share * seconds

    def affords(self, seconds: float) -> bool:
        """Whether spending ``seconds`` more stays within what was earned."""
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
        late: whether a line came later than wanted because nothing was left for it.
    """

    def __init__(self, budget: float, every: int | None, first: int) -> None:
        self._every, self._first, self._last = every, first, first
        self._reading = Account(budget * READING, CREDIT)
        self.proving = Account(budget * PROVING)
        self.cost = 0.0
        self._spent = self._passed = self._proved = self._last_passed = 0.0
        self._call: float | None = None
        self._read_now = self.late = False
        self._readings = 0
        self._rich: int | None = None
        self.turns = 1

    @property
    def share(self) -> float:
        """Seconds spent measuring over seconds passed since the first step."""
        return self._spent / self._passed if self._passed else 0.0

    def reads(self, step: int) -> None:
        """Note that a reading is being taken at this step."""
        self.turns = 1 if step - self._last <= 1 else TURNS
        self._read_now, self._last, self._last_passed = True, step, self._passed
        self._readings += 1

    def rich(self, step: int) -> bool:
        """Whether the reading of a step is to have everything."""
        if self._rich is None or step - self._rich >= RICH_STEPS:
            self._rich = step
            return True
        return False

    def rests(self, step: int) -> bool:
        """Whether this step is skipped without looking at the accounts."""
        return self._every is None and step - self._first > DENSE_STEPS and step % LOOK != 0

    def due(self, step: int) -> bool:
        """Whether a step that comes next is to be read."""
        if self._every is not None:
            return step % self._every == 0
        if step - self._first > DENSE_STEPS and step - self._last < GAP:
            return False
        if self._reading.affords(self.cost) or self._readings < FIRST_READINGS:
            return True
        wanted = step - self._last >= LONGEST_STEPS or self._passed - self._last_passed >= LONGEST_SECONDS
        if not wanted:
            return False
        enough = self._reading.left + self.proving.left >= self.cost
        self.late = self.late or not enough
        return enough

    def proves(self, cost: float, age: int | None) -> bool:
        """Whether a proof that takes about ``cost`` seconds is taken at this reading.

        Args:
            cost: as the last one took; 0 where there was none.
            age: of the proof it replaces, in steps; None where there is none.
        """
        if self._every is not None:  # by counted steps alone, so that lines do not depend on the clock
            return age is None or age >= PROOF_STEPS
        if self.late and age is not None and age < RARE_STEPS:
            return False
        return self.proving.affords(cost)

    def wish(self, step: int) -> tuple[float, float]:
        """Seconds still to be earned before another reading, and seconds earned by each step."""
        done = step - self._first
        earned = self._reading.share * self._passed / done if done else 0.0
        return self._reading.spent + self.cost - self._reading.earned, earned

    def book_device(self, seconds: float) -> None:
        """Book what the device took for the last reading, where that was longer than the host did."""
        if seconds > self.cost:
            self._reading.spent += seconds - self.cost
            self.cost = seconds

    def settle(self, began: float, hooks: float) -> None:
        """Book one call of the monitor: what it and its hooks took, and the time since the call before."""
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
