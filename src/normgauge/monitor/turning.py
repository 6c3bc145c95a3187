"""How often directions turn at a reading, so that they follow weights that move."""

from __future__ import annotations

# At a reading where norms have just moved or some steps were not read; and in a training that has just begun, up to so
# many steps or at such a reading: Adam's first steps can double a norm along a new direction
TURNS, FIRST_TURNS, FIRST_STEPS = 4, 8, 10
EARLY_TURNS = 2  # from then on, until the first steps are over

# The same on a CPU, which keeps more directions: after steps that were not read, at the start, and later
BLOCK_TURNS, FIRST_BLOCK_TURNS = 2, 4

# Where every step is read it turns them every so many steps: more often while a turn finds more than the first of these
# parts of a norm, and less while it finds less than the second
FOUND, FOUND_LITTLE, LONGEST_PACE = 2e-3, 5e-4, 4


class Turning:
    """Turns for each reading, from what the last ones found.

    Args:
        first: the step the training goes on from.
        dense: how many steps from there on are the first ones, that are read densely.

    Attributes:
        turns: how often directions turn at the reading that is being taken.
        moving: whether the last reading that has come found norms that rise fast.
    """

    def __init__(self, first: int, dense: int) -> None:
        self._first, self._dense = first, dense
        self._read = first - dense  # the last step at which they may have turned
        self._pace: int | None = None  # steps between turns, where what they find is told
        self._turned_at = first
        self.turns, self.moving = 1, False

    def reads(self, step: int) -> None:
        """Note that a reading at which they may turn is being taken at this step."""
        self.turns = self._wanted(step)
        self._read = step

    def _wanted(self, step: int) -> int:
        done, left_out, block = step - self._first, step - self._read > 1, self._pace is not None
        early = done <= self._dense
        if done <= FIRST_STEPS or (left_out and early):
            return FIRST_BLOCK_TURNS if block else FIRST_TURNS
        if left_out or self.moving:
            return BLOCK_TURNS if block else TURNS
        if self._pace is not None:
            return int(early or step - self._turned_at >= self._pace)
        return EARLY_TURNS if early else step % 2  # where every step is read a turn at each second one follows as well

    def turned(self, step: int, gained: float | None) -> None:
        """Take in by which factor the turn at this step raised a norm; None where none was made, or on a device."""
        if gained is None:
            return
        self._turned_at, pace = step, self._pace or 2
        if gained > 1 + FOUND:
            pace = 1
        elif gained < 1 + FOUND_LITTLE:
            pace += 1
        self._pace = min(max(pace, 1), LONGEST_PACE)
