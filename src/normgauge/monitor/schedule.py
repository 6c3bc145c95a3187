"""When to read and when to prove: as often as the budget allows, or at every so many steps."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum

from normgauge.monitor.rotation import PROOF_STEPS, REMEMBERED, Account, Rotation, middle
from normgauge.monitor.turning import Turning

# Parts of the budget for readings and for proofs before it is known what they cost; the rest is a reserve
READING, PROVING = 0.45, 0.5

# What lines and proofs take that come often enough is set aside with some room; where both are too dear each keeps this
ROOM, LEAST = 1.2, 0.2

# In the first 50 steps every one may be read, on credit of so many seconds; later readings are at least 5 steps apart
DENSE_STEPS, CREDIT, GAP = 50, 0.02, 5

FIRST_READINGS = 3  # taken whatever they cost, so that this is known

# What alarms ask for is read whenever the steps have grown by this factor since it was last read, ten times in a
# thousand steps at most by this alone, and is paid for by readings that come later
GROWTH = 2

# A line is wanted at least so often, and takes what was saved for proofs if there is no other way
LONGEST_STEPS, LONGEST_SECONDS = 50, 10.0

RICH_STEPS = 10  # what moves slowly, or costs as much as all the rest, is read at most so often

LIGHT_PART = 2 / 3  # of what readings may take goes to light ones at most, so that whole ones come too

# Seconds up to which a call without a reading is not booked as one: it would starve the readings of short steps
IDLE = 2e-4

LOOK = 5  # after those first steps, the accounts are looked at once in this many steps at most


class Level(IntEnum):
    """How much a reading holds: σ, weights and gradients; updates and logits too; updates and norms too; everything."""

    LIGHT = 0
    ALERT = 1
    PLAIN = 2
    RICH = 3


def clock(*, on_host: bool) -> Callable[[], float]:
    """Seconds from some moment on: of the thread where it does the training, as a busy machine may stop it anywhere."""
    return time.thread_time if on_host else time.perf_counter


class Schedule:
    """Books the time that measuring takes against the time that passes.

    Args:
        budget: share of the time that measuring may take.
        every: read at every so many steps instead.
        first: the step the training goes on from.
        on_host: whether the main thread does the training: then its own time is booked, as a busy machine may stop it
            anywhere.

    Attributes:
        clock: seconds from some moment on, by which time is booked.
        level: how much the reading that is due holds.
        proving: the account of proofs.
        readings: taken so far.
        turning: how often directions turn at each.
        late: whether a line came later than wanted because nothing was left for it.
        uncovered: share of the time that measuring would have to take for lines and proofs to come as often as wanted;
            0 where the budget has it.
    """

    def __init__(self, budget: float, every: int | None, first: int, *, on_host: bool = False) -> None:
        self.clock = clock(on_host=on_host)
        self._last_read = time.perf_counter()
        self._every, self._first, self._last = every, first, first
        self._budget, self.uncovered = budget, 0.0
        self._reading = Account(budget * READING, CREDIT)
        self._light = Account(budget * READING * LIGHT_PART, CREDIT * LIGHT_PART)
        self.proving = Account(budget * PROVING)
        self.level = self._level_now = Level.RICH
        self._taken = {level: deque[float](maxlen=REMEMBERED) for level in Level}
        self._spent = self._passed = self._proved = 0.0
        self._call: float | None = None
        self._read_now = self.late = False
        self._rotation = Rotation(self.proving)
        self.turning = Turning(first, DENSE_STEPS)
        self.readings = self._look_at = self._apart = 0
        self._whole = self._rich = self._alert = first - DENSE_STEPS  # the last steps that were read so

    @property
    def share(self) -> float:
        """Seconds the training was kept from going on, over seconds passed since the first step."""
        return self._spent / self._passed if self._passed else 0.0

    @property
    def cost(self) -> float:
        """Seconds of a reading like the last one."""
        return self._cost_of(self._level_now)

    @property
    def dearest(self) -> float:
        """Seconds of a reading of the level that takes longest."""
        return max(map(self._cost_of, Level))

    def _cost_of(self, level: Level) -> float:
        """Seconds of a reading."""
        return middle(self._taken[level] or (self._taken[Level.PLAIN] if level is Level.RICH else ()))

    def reads(self, step: int) -> None:
        """Note that a reading is being taken at this step."""
        self._level_now = self.level
        if self.level >= Level.PLAIN:
            self.turning.reads(step)
            self._whole = step
        if self.level is Level.RICH:
            self._rich = step
        if self.level in (Level.ALERT, Level.RICH):
            self._alert = step
        self._apart = max(step - self._last, self._apart) if self.level is Level.ALERT else step - self._last
        self._read_now, self._last, self._last_read = True, step, time.perf_counter()
        self._rotation.reads(step, self._cost_of(Level.LIGHT))
        self.readings += 1

    def by_count(self, step: int) -> Level:
        """How much a reading holds that is due by counted steps."""
        early = self._every is not None and self._grown(step)
        return Level.RICH if early or step - self._rich >= RICH_STEPS else Level.PLAIN

    def rests(self, step: int) -> bool:
        """Whether this step is skipped without looking at the accounts."""
        skipped = self._every is None and step - self._first > DENSE_STEPS and step < self._look_at
        return skipped and not self._grown(step + 1)

    def _grown(self, step: int) -> bool:
        """Whether the steps have doubled since all signs were asked: what shows early must not wait for the budget."""
        return step - self._first >= GROWTH * (self._alert - self._first)

    def want(self, *, due: bool, everything: bool) -> None:
        """Let the coming reading, due or not, hold what a sign asked for: updates, and logits with ``everything``."""
        if not due or self.level <= Level.ALERT:
            self.level = Level.ALERT
        elif everything:
            self.level = Level.RICH

    def due(self, step: int) -> bool:
        """Whether a step that comes next is to be read."""
        self._pass(self.clock())  # steps that rested have earned something since the last call
        whole = self.by_count(step)
        if self._every is not None or self.readings < FIRST_READINGS:
            self.level = whole
            return self._every is None or step % self._every == 0
        if self._grown(step):
            self.level = Level.ALERT
            return True
        dense = step - self._first <= DENSE_STEPS
        if not dense and step - self._last < GAP:
            self._look_at = self._last + GAP
            return False
        for level in (whole, Level.PLAIN):
            if self._reading.affords(self._cost_of(level)):
                self.level = level
                return True
        overdue = step >= self._overdue_at(step) or time.perf_counter() - self._last_read >= LONGEST_SECONDS
        if not (dense or overdue):
            self._look_at = step + self._waiting(step)
            return False
        self.level = Level.LIGHT
        self._look_at = step + LOOK
        return self._light.affords(self._cost_of(Level.LIGHT)) or (overdue and self._saved())

    def _overdue_at(self, step: int) -> int:
        """The step at which a line is overdue, or a reading at which a proof is renewed that the account affords."""
        line = self._cost_of(Level.LIGHT)
        earned = self._passed / max(1, step - self._first)
        renewed = self._rotation.renewed_at(step, line, self._unpaid(line), earned)
        longest = self._last + LONGEST_STEPS
        return longest if renewed is None else min(longest, max(renewed, self._last + GAP))

    def _waiting(self, step: int) -> int:
        """Steps until a whole reading is earned or a line is overdue; looking at the accounts takes time as well."""
        earned = self.wish(step)[1]
        missing = self._cost_of(Level.PLAIN) - self._reading.left
        overdue = self._overdue_at(step) - step
        return max(LOOK, min(overdue, int(missing / earned) if earned > 0 else LOOK))

    def _saved(self) -> bool:
        """Whether a line that is overdue can take what was saved for proofs: what it costs, and no debts of others."""
        lacking = self._unpaid(self._cost_of(Level.LIGHT))
        enough = self.proving.left >= lacking
        self.late = self.late or not enough
        if enough:  # and proofs have it no more
            self._reading.earned += lacking
            self.proving.earned -= lacking
        return enough

    def _unpaid(self, line: float) -> float:
        """Seconds that a line takes from what was saved for proofs."""
        return min(max(0.0, line - self._reading.left), line)

    def proves(self, cost: float, age: int | None) -> bool:
        """Whether a proof that takes about ``cost`` seconds is taken at this reading.

        Args:
            cost: as the last one took; 0 where there was none.
            age: of the proof it replaces, in steps; None where there is none.
        """
        if self._every is not None:  # by counted steps alone, so that lines do not depend on the clock
            return age is None or age + self._every > PROOF_STEPS
        return self._rotation.takes(cost, age, max(self._apart, GAP))

    def share_out(self, step: int, proofs: Sequence[tuple[int, float]]) -> None:
        """Share the budget out between readings and proofs, so that both come as often as wanted where it has that.

        Args:
            step: of this reading.
            proofs: for each, the step of the last one and seconds that it takes.
        """
        self._rotation.proofs = proofs
        done, seconds = step - self._first, self._rotation.seconds
        if self._every is not None or not (seconds and done and self._passed):
            return
        passes = self._passed / done * PROOF_STEPS  # seconds until every layer is to be proved again
        wanted, line = ROOM * seconds / passes, ROOM * self._cost_of(Level.LIGHT) / passes
        both = self._budget * (READING + PROVING)
        self._rotation.short = wanted + line > ROOM * both
        if done > 2 * DENSE_STEPS:  # by then the costs are known
            self.uncovered = wanted + line if self._rotation.short else 0.0
        self.proving.share = min(wanted + min(line, wanted), max(both - line, LEAST * both))
        self._reading.share = both - self.proving.share
        self._light.share = LIGHT_PART * self._reading.share

    def wish(self, step: int) -> tuple[float, float]:
        """Seconds still to be earned before another reading, and seconds earned by each step."""
        done = step - self._first
        earned = self._reading.share * self._passed / done if done else 0.0
        return self._reading.spent + self.dearest - self._reading.earned, earned

    def book_device(self, seconds: float, level: Level) -> None:
        """Book what the device took for the last reading of this level, where that was longer than the host did."""
        taken = self._taken[level]
        if taken and seconds > taken[-1]:
            self._spend(seconds - taken[-1], level)
            self._spent += seconds - taken[-1]
            taken[-1] = seconds

    def book_proof(self, taken: float, seconds: float, *, hidden: bool) -> float:
        """What a proof costs that took a host and a device so long; the host's part was booked when it began."""
        cost = seconds if hidden else max(taken, seconds)
        self.proving.spent += cost - taken
        self._proved += cost - taken
        self._spent += seconds if hidden else cost - taken
        return cost

    def settle(self, began: float, hooks: float, *, hidden: bool = False) -> None:
        """Book one call of the monitor: what it and its hooks took, and the time since the call before.

        Args:
            began: when it did.
            hooks: seconds that these took.
            hidden: whether a device had not come as far as this call when it ended: what the host did meanwhile kept
                nobody waiting, and the device's own time is booked when it is known.
        """
        now = self.clock()
        mine = 0.0 if hidden else now - began + hooks
        self._pass(now)
        self._spent += mine
        reading = 0.0 if hidden else mine - (self.proving.spent - self._proved)
        self._proved = self.proving.spent
        first, read_now, self._read_now = self.readings == 1 and self._read_now, self._read_now, False
        if first:  # it loads what no later one has to: counted in the share, and no measure of what readings cost
            return
        if read_now or reading > IDLE:
            self._spend(reading, self._level_now)
        if read_now:
            self._taken[self._level_now].append(reading)

    def _pass(self, now: float) -> None:
        """Let all accounts earn what the time since the last call brings."""
        passed = 0.0 if self._call is None else now - self._call
        self._call = now
        self._passed += passed
        for account in (self._reading, self._light, self.proving):
            account.earn(passed)

    def _spend(self, seconds: float, level: Level) -> None:
        self._reading.spent += seconds
        if level is Level.LIGHT:
            self._light.spent += seconds
