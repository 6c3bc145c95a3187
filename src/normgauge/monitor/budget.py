"""How much time measuring may take, and how much it took."""

from __future__ import annotations

from dataclasses import dataclass


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

    def spend(self, seconds: float) -> None:
        """Time was taken."""
        self.spent += seconds

    def affords(self, seconds: float) -> bool:
        """Whether this much more keeps within the share."""
        return self.spent + seconds <= self.earned
