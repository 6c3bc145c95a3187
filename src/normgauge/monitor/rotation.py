"""When every layer is proved anew, out of an account that proofs have of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PROOF_STEPS, AHEAD = 50, 1.5  # no proof is to get older, not even if the next reading comes half as late again
EARLY = 4  # steps before that a line is wanted for it

LOAN = 0.15  # of a proof of every layer, on which what is late is proved: rests need lines of their own from then on

WORTH = 10  # lines' worth of proofs that a line is taken for where the budget has not enough: most goes to proofs

REMEMBERED = 3  # readings of a kind, or proofs of a part, from which what the next one costs is taken


def middle(seconds: Iterable[float]) -> float:
    """The middle one of the last few costs, since any may have been interrupted: of two the lower, 0 of none."""
    known = sorted(seconds)
    return known[(len(known) - 1) // 2] if known else 0.0


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


@dataclass(slots=True)
class Rotation:
    """Proofs of every layer, one after the other or all at one reading, where the account affords that.

    Attributes:
        account: what proofs are paid from.
        proofs: for each, the step of the last one and seconds that it takes, 0 where that is not known.
        short: whether the budget has not enough for lines and proofs as often as wanted.
    """

    account: Account
    proofs: Sequence[tuple[int, float]] = ()
    short: bool = False
    _next: float = 0.0  # seconds of the proof that was asked for last, which is the next one where it was not taken
    _whole: bool = True  # whether the account had a proof of every layer when this reading began
    _worth: bool = True  # whether it had most of that, or as many lines' worth as a line is taken for

    @property
    def seconds(self) -> float:
        """Seconds that a proof of every layer takes; 0 where that is not known."""
        costs = [cost for _, cost in self.proofs]
        return sum(costs) if all(costs) else 0.0

    def due(self, step: int) -> float:
        """Seconds that proofs take which are due at a step, or a little later."""
        return sum(cost for at, cost in self.proofs if at + PROOF_STEPS <= step + 2 * EARLY)

    def reads(self, step: int, line: float) -> None:
        """Note that a reading begins, of which a light one takes so many seconds."""
        self._whole = self.account.affords(self.seconds)
        self._worth = self.account.affords((1 - LOAN) * min(self.due(step), WORTH * line))

    def takes(self, cost: float, age: int | None, apart: int) -> bool:
        """Whether a proof is taken at this reading.

        Args:
            cost: seconds it takes.
            age: of the proof it replaces, in steps; None where there is none.
            apart: steps until the next reading, about.
        """
        self._next = cost
        if age is None:
            return self.account.affords(cost)
        if age + AHEAD * apart <= PROOF_STEPS:
            return False  # the reading after this one is early enough
        if age + EARLY < PROOF_STEPS and not self._whole:
            return False  # some would be left behind, and need a line of their own soon
        late = age + apart > PROOF_STEPS
        return self._worth and self.account.affords(cost - LOAN * self.seconds * late)

    def renewed_at(self, step: int, line: float, unpaid: float, passed: float) -> int | None:
        """The step at which a line is worth taking for proofs: they are due, and the account affords both.

        Args:
            step: that comes next.
            line: seconds a line takes.
            unpaid: seconds of these that the account of proofs has to give.
            passed: seconds that pass in a step.

        Returns:
            None where no proof was taken yet, or nothing is earned.
        """
        if not self.proofs:
            return None
        due = max(step, min(at for at, _ in self.proofs) + PROOF_STEPS - EARLY)
        proofs = self.due(due)
        if self.short:
            proofs = max(self._next, min(proofs, WORTH * line))
        lacking = max(0.0, proofs + unpaid - self.account.left)
        earned = self.account.share * passed
        if lacking and not earned:
            return None
        return max(due, step + math.ceil(lacking / earned) if lacking else step)
