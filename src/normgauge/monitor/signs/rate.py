"""The optimizer: learning rate, momentum, how far a step turns the weights, and weights that stand still."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence

from normgauge.monitor.signs.sign import Alarm, Level, Place, Seen, Sign, median, relative_updates
from normgauge.monitor.thresholds import (
    EFFECTIVE_RATE,
    MOMENTUM,
    MOMENTUM_INFERRED,
    RATE_JUMP,
    STILL_READINGS,
    TURN,
    TURN_JUMP,
    TURN_PATH,
)


class LearningRate(Sign):
    """Steps that replace a large part of every weight, from the start or when the learning rate jumps."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._level = Level()
        self._largest = 0.0
        self._turns: deque[float] = deque(maxlen=3)

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare the median ‖Δw‖/‖w‖ of the layers, which does not depend on the gauge of scale-free ones."""
        turn = median(relative_updates(seen, self._places))
        if turn is None:
            return
        rate = seen.rate or 0.0
        jumped = self._largest > 0.0 and rate > RATE_JUMP * self._largest
        if jumped and self._level.factor(turn) > TURN_JUMP:
            sentence = (
                f"the learning rate went from {self._largest:.3g} to {rate:.3g} and the middle layer's step from "
                f"{self._level.value:.2g} to {turn:.2g} of its weights. The learning rate is too high: check the "
                "schedule."
            )
            yield Alarm(seen.step, "learning_rate", "", sentence, rate / self._largest, RATE_JUMP)
            return
        if not jumped:
            self._largest = max(self._largest, rate)
        self._level.see(turn)
        self._turns.append(turn)
        if turn > TURN or sum(self._turns) > TURN_PATH:
            sentence = (
                f"the step at {seen.step} moved the middle layer by {turn:.0%} of its norm (the last three read: "
                f"{sum(self._turns):.0%}); what was learnt is overwritten as fast as it comes. The learning rate is "
                "too high: try a tenth of it."
            )
            yield Alarm(seen.step, "learning_rate", "", sentence, turn, TURN)


class Momentum(Sign):
    """A momentum that averages over more steps than a run can wait for.

    It is read from the optimizer. Where that is not known but the learning rate is, ‖Δw‖ = η‖∇‖ at the first step tells
    plain SGD from others, and a ratio that later stays far above 1 tells its momentum.
    """

    _plain: bool | None = None

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Read the largest momentum of any layer, or infer it."""
        known = [row["momentum"] for row in seen.rows if "momentum" in row]
        if known and max(known) >= MOMENTUM:
            momentum = max(known)
            span = math.inf if momentum >= 1.0 else 1 / (1 - momentum)
            yield self._say(seen, f"is {momentum:g}", span, momentum, MOMENTUM)
        ratio = None if known else median(self._ratios(seen))
        if ratio is None:
            return
        if self._plain is None:
            self._plain = seen.step == 1 and abs(ratio - 1) < 0.05
        level = self._levels[0]
        level.see(ratio)
        usual = level.value
        if self._plain and level.settled and usual > MOMENTUM_INFERRED:
            yield self._say(seen, "looks too high (inferred from its steps)", usual, usual, MOMENTUM_INFERRED)

    def _ratios(self, seen: Seen) -> list[float]:
        pairs = zip(self._places, seen.rows, strict=False)
        rows = [row for place, row in pairs if place.role in ("matrix", "conv") and row.get("gradient")]
        return [row["update"] / (seen.rate * row["gradient"]) for row in rows if "update" in row and seen.rate]

    def _say(self, seen: Seen, how: str, span: float, value: float, threshold: float) -> Alarm:
        sentence = (
            f"the optimizer's momentum (first beta) {how}: a step sums the gradients of about {span:.0f} steps, so the "
            f"weights overshoot for as long, and those of plain SGD are up to {span:.0f} times longer. Usual is 0.9."
        )
        return Alarm(seen.step, "momentum", "", sentence, value, threshold)


class EffectiveRate(Sign):
    """η/‖w‖² of scale-free weights that drifts away while η stays: weights that shrink or grow without end."""

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare 1/‖w‖² of every scale-free layer with its start."""
        for row in seen.pairs:
            size = seen.rows[row].get("frobenius")
            if not size or not math.isfinite(size) or row >= len(self._places):
                continue
            start = self._levels[row]
            if not start.settled:
                start.see(size)
                continue
            factor = (start.value / size) ** 2
            if 1 / EFFECTIVE_RATE < factor < EFFECTIVE_RATE:
                continue
            name = self._places[row].name
            way = "larger: the layer becomes unstable" if factor > 1 else "smaller: the layer stands still"
            do = "less weight decay on it" if factor > 1 else "weight decay on it, or a smaller learning rate"
            sentence = (
                f"{name}: its weights went from norm {start.value:.3g} to {size:.3g}. They are scale-free, so only the "
                f"effective learning rate η/‖w‖² changed, {factor:.1e} times {way}. Try {do}."
            )
            threshold = EFFECTIVE_RATE if factor > 1 else 1 / EFFECTIVE_RATE
            yield Alarm(seen.step, "effective_rate", name, sentence, factor, threshold)


class StandsStill(Sign):
    """Weights that do not move in several readings, although they have gradients and the rate is not known to be 0."""

    _still = 0

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Count the readings in which every weight with a gradient stayed where it was."""
        moving = [row for row in seen.rows[: len(self._places)] if row.get("gradient", 0.0) > 0.0 and "update" in row]
        still = bool(moving) and seen.rate != 0.0 and all(row["update"] == 0.0 for row in moving)
        self._still = self._still + 1 if still else 0
        if self._still >= STILL_READINGS:
            sentence = (
                f"no weight moved in the last {self._still} readings although there are gradients: is optimizer.step() "
                "called before monitor.step(), and does the optimizer hold these parameters?"
            )
            yield Alarm(seen.step, "no_update", "", sentence, float(self._still), float(STILL_READINGS))
