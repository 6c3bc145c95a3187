"""Weight decay that takes more than the loss gives: within the gradient of Adam, or beside it, of all weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from normgauge.monitor.signs.sign import Alarm, Place, Seen, Sign, Streak, median, relative_updates
from normgauge.monitor.thresholds import (
    COUPLED,
    COUPLED_LEFT,
    DECAY_GROSS,
    GAMMA_DECAY,
    GAMMA_TOUCHED,
    LOSS_LEFT,
    MEMORY,
    START_READINGS,
)

MAINLY = 0.5  # share of a step, or of what a weight has lost, that decay must have taken to be the reason


def share_decayed(seen: Seen, row: int) -> float:
    """The share of a weight that its decay takes in one step: rate times weight_decay."""
    return seen.rows[row].get("rate", 0.0) * seen.rows[row].get("weight_decay", 0.0)


def share_of_maps(seen: Seen, places: Sequence[Place]) -> float:
    """The same of the median matrix or convolution that learns; 0 where decay goes through Adam's gradient."""
    if seen.facts.coupled:
        return 0.0
    rows = [k for k, x in enumerate(places) if x.role in ("matrix", "conv") and seen.facts.of(k).learns]
    return median([share_decayed(seen, row) for row in rows]) or 0.0


def mainly_decayed(share: float, steps: int, left: float) -> bool:
    """Whether so many steps of decay explain most of what a weight has lost."""
    return share * steps >= -MAINLY * math.log(left or 1.0)


class CoupledDecay(Sign):
    """Weight decay within the gradient that Adam divides by its size, which takes the weights away."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._streak = Streak()

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare decay and gradient of the loss in every matrix and convolution, and what is left of the weights."""
        rows = [row for row in self._rows("matrix", "conv") if seen.facts.of(row).learns and self._places[row].size > 0]
        known = [(self._over(seen, row), seen.rows[row].get("frobenius", 0.0) / self._places[row].size) for row in rows]
        times, left = (median([pair[k] for pair in known]) or 0.0 for k in (0, 1))
        story = seen.story
        idle = story.count >= MEMORY and not story.falls and story.mean > LOSS_LEFT * story.start
        shown = seen.facts.coupled and times > COUPLED and 0.0 < left < COUPLED_LEFT and idle
        count, began = self._streak.see(shown, seen.step)
        if count >= START_READINGS:
            sentence = (
                f"weight decay takes the weights away: Adam adds it to the gradient and divides both by their size. In "
                f"the median layer it is {times:.2g} times the loss's gradient at step {seen.step}, always in one "
                f"direction, and the norm is down to {left:.0%} of its start."
            )
            advice = "Use AdamW, whose decay is apart from the gradient; or a far smaller weight_decay."
            yield Alarm(seen.step, "coupled_decay", "", sentence, times, COUPLED, advice, began)

    def _over(self, seen: Seen, row: int) -> float:
        numbers = seen.rows[row]
        decay, slope = numbers.get("weight_decay", 0.0) * numbers.get("frobenius", 0.0), numbers.get("gradient", 0.0)
        return decay / slope if slope > 0.0 else 0.0


class WeightDecay(Sign):
    """Weight decay of all weights that takes them away faster than they learn."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._read: dict[float, tuple[int, int]] = {}  # the last reading with less, and the first one after it

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare the share that a step takes, and what is left of the median matrix, while the loss does not fall.

        A share of which nothing is left after some steps is told at once, where it is the main part of the step.
        """
        rows = [k for k, place in self._rows("matrix", "conv").items() if seen.facts.of(k).learns and place.size > 0.0]
        share = share_of_maps(seen, self._places)
        for limit in (GAMMA_DECAY, DECAY_GROSS):
            below, first = self._read.get(limit, (0, 0))
            self._read[limit] = (below, first or seen.step) if share > limit else (seen.step, 0)
        turn = median(relative_updates(seen, self._places))
        advice = "Use a far smaller weight_decay, for all weights: usual is 0.01 to 0.1 with AdamW."
        if share > DECAY_GROSS and turn is not None and share > MAINLY * turn:
            sentence = (
                f"weight decay takes {share:.2%} of the median matrix at each step (learning rate times weight_decay): "
                f"the whole step at {seen.step} moved the median layer by {turn:.0%} of the norm it has now."
            )
            yield Alarm(
                seen.step, "weight_decay", "", sentence, share, DECAY_GROSS, advice, self._since(seen, DECAY_GROSS)
            )
            return
        left = median([seen.rows[k].get("frobenius", 0.0) / self._places[k].size for k in rows]) or 0.0
        story = seen.story
        idle = story.count >= MEMORY and not story.falls and story.mean > LOSS_LEFT * story.start
        if share > GAMMA_DECAY and 0.0 < left < GAMMA_TOUCHED and idle and mainly_decayed(share, seen.step, left):
            sentence = (
                f"weight decay takes {share:.2%} of the median matrix at each step (learning rate times weight_decay); "
                f"its norm is down to {left:.0%} of its start at step {seen.step}, and the loss does not fall."
            )
            yield Alarm(
                seen.step, "weight_decay", "", sentence, share, GAMMA_DECAY, advice, self._since(seen, GAMMA_DECAY)
            )

    def _since(self, seen: Seen, limit: float) -> int:
        """The first step at which decay took so much: by the settings of every step, else by the readings."""
        below, first = self._read[limit]
        noted = seen.story.decayed_since(limit) or first
        return noted if below < noted <= first else first  # else it is that of another group
