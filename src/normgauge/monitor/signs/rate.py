"""The optimizer: learning rate, momentum, and how far a step turns the weights."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence

from normgauge.monitor.signs.blame import Case, Why, blame
from normgauge.monitor.signs.decay import share_of_maps
from normgauge.monitor.signs.sign import Alarm, Level, Place, Seen, Sign, Streak, is_cold, median, relative_updates
from normgauge.monitor.thresholds import (
    COLD_STEPS,
    DECAY_GROSS,
    EFFECTIVE_RATE,
    GROWN,
    LOGIT_HIGH,
    LOSS_JOLTED,
    MEMORY,
    MOMENTUM,
    MOMENTUM_INFERRED,
    TURN,
    TURN_COLD,
    TURN_EARLY,
    TURN_FELT,
    TURN_FROZEN,
    TURN_GROSS,
    TURN_JUMP,
    TURN_LOST,
    TURN_NOTHING,
    TURN_PATH,
    TURN_STUCK,
    WARM_STEPS,
)


class LearningRate(Sign):
    """Steps too long for the weights: by their length, by a loss that rises with them, or by one that goes nowhere."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._level = Level()
        self._turns: deque[float] = deque(maxlen=3)
        self._long = Streak()
        self._early: list[float] = []

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare the median ‖Δw‖/‖w‖ of the layers, which does not depend on the gauge of scale-free ones."""
        turn = median(relative_updates(seen, self._places))
        if share_of_maps(seen, self._places) > DECAY_GROSS:
            turn = None  # what decay takes of the weights is no doing of the rate
        if turn is not None:
            self._long.see(turn > TURN_FELT, seen.step)
            self._turns.append(turn)
            self._early += [turn] if len(self._early) < 3 and seen.step <= WARM_STEPS else []
        why = None if seen.rate == 0.0 else self._why(seen, turn)  # no steps of an optimizer moved the weights
        if why is not None:
            early = max(self._early, default=0.0)
            count, since = self._long.now()
            began = since if count else None
            if (seen.story.stuck and not seen.story.risen) or (early > TURN_GROSS and seen.step <= WARM_STEPS):
                began = 1
            yield blame(Case(seen, self._places, early, why, began, self._level.value if self._level.count else 0.0))
        elif turn is not None:
            self._level.see(turn)

    def _why(self, seen: Seen, turn: float | None) -> Why | None:
        """What shows that the steps are too long; None where nothing does."""
        story, path = seen.story, sum(self._turns)
        if turn is not None and turn > TURN and story.harmed:
            said = f"the step at {seen.step} moved the median layer by {turn:.0%} of the norm it has now"
            return Why(said, turn, TURN)
        if turn is not None and path > TURN_PATH and story.harmed:
            return Why(f"the last {_moves(self._turns)}; these add up to {path:.0%}", path, TURN_PATH)
        jumped = story.jump is not None and seen.step - story.jump[0] <= MEMORY
        if jumped and turn is not None and turn > TURN_FELT and self._level.factor(turn) > TURN_JUMP:
            said = (
                f"the median layer's step went from {self._level.value:.2g} to {turn:.2g} of the norm it had after it"
            )
            return Why(said, self._level.factor(turn), TURN_JUMP)
        if (jolt := story.jolt) is not None:
            before, after = jolt
            said = f"the median of the three losses up to step {story.latest[0]} is {after:.3g}"
            return Why(f"{said}, and the mean before it was {before:.3g}", after / before, 1.0 + LOSS_JOLTED)
        broke = story.lost is not None and (story.rose or jumped or story.lately(story.surge) is not None)
        if broke or (story.risen and (jumped or self._moved(seen))):
            at, now = story.latest
            said = f"the loss went from {story.first:.3g} at first to {now:.3g} at step {at}"
            return Why(said, *(story.rise or (now, math.inf)))
        path = sum(self._early)
        cold = is_cold(seen) and len(self._early) == 3
        strained = any(row.get("logit_max", 0.0) > LOGIT_HIGH for row in seen.rows)
        missed = COLD_STEPS <= story.count <= WARM_STEPS and (strained or not story.gains)
        if cold and (path > TURN_FROZEN or (path > TURN_COLD and missed)):
            said = f"the first {_moves(self._early)}; these add up to {path:.0%}"
            return Why(said, path, TURN_FROZEN if path > TURN_FROZEN else TURN_COLD)
        summed = seen.facts.reduction == "sum" and seen.facts.adaptive is False
        limit = TURN_STUCK if cold or summed else TURN_EARLY
        if story.stuck and path > limit:
            said = f"the loss makes no progress ({story.mean:.3g} after {story.count} steps) since the first"
            return Why(f"{said} {_moves(self._early)}", path, limit)
        return None

    def _moved(self, seen: Seen) -> bool:
        """Whether the steps seen last, or all since the start, are long enough to blame."""
        sizes = [
            seen.rows[row].get("frobenius", 0.0) / place.size
            for row, place in self._rows("matrix", "conv").items()
            if place.size > 0.0 and seen.facts.of(row).learns
        ]
        return max(self._turns, default=0.0) > TURN_FELT or (median(sizes) or 0.0) > GROWN


def _moves(turns: Sequence[float]) -> str:
    """Relative steps one by one, in percent; their sum is no distance, since steps turn back and norms change.

    >>> _moves([0.5, 0.31, 0.22])
    '3 steps read moved the median layer by 50%, 31% and 22% of the norm it had after each'
    >>> _moves([0.5])
    'step read moved the median layer by 50% of the norm it had after it'
    """
    *others, last = (f"{turn:.0%}" for turn in turns)
    steps, shares = (f"{len(turns)} steps", f"{', '.join(others)} and {last}") if others else ("step", last)
    return f"{steps} read moved the median layer by {shares} of the norm it had after {'each' if others else 'it'}"


class TooSmall(Sign):
    """A loss that goes nowhere with steps that are nothing beside the weights, each or all of them together."""

    _longest = 0.0

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Look at the steps of a run that makes no progress."""
        turn = median([turn for turn in relative_updates(seen, self._places) if turn > 0.0])
        story = seen.story
        steady = story.low_since is None and (seen.rate or 0.0) > 0.0
        self._longest = max(self._longest, turn or 0.0)
        path = self._longest * story.count
        if turn is None or not story.stuck or not steady:
            return
        if turn < TURN_LOST or (path < TURN_NOTHING and not story.rising):
            sentence = (
                f"the loss makes no progress in {story.count} steps; the longest that was read moved the median layer "
                f"by {self._longest:.1g} of its norm, and so many of these come to {path:.1g} of it at most."
            )
            advice = "Raise the learning rate; look at what else divides the loss or the gradient."
            value, limit = (turn, TURN_LOST) if turn < TURN_LOST else (path, TURN_NOTHING)
            yield Alarm(seen.step, "rate_small", "", sentence, value, limit, advice, 1)


class Momentum(Sign):
    """A momentum that averages over more steps than a run can wait for.

    It is read from the optimizer. Where that is not known but the learning rate is, ‖Δw‖ = η‖∇‖ at the first step tells
    plain SGD from others, and a ratio that later stays far above 1 tells its momentum.
    """

    rank = "setting"
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
            f"the optimizer's momentum (first beta) {how}: a step is made of the gradients of about {span:.0f} steps; "
            f"those of plain SGD are up to {span:.0f} times longer than without it."
        )
        return Alarm(seen.step, "momentum", "", sentence, value, threshold, "Usual is 0.9.", 1)


class SecondBeta(Sign):
    """A second beta of Adam so low that its steps have no bound by the learning rate.

    Of m = (1−β₁) Σ β₁ᵏ g and v = (1−β₂) Σ β₂ᵏ g², Cauchy and Schwarz give |m|/√v ≤ (1−β₁)/√(1−β₂) √Σ (β₁²/β₂)ᵏ, which
    some gradients attain: it is finite, however many there are, where β₁² < β₂ alone.
    """

    rank = "setting"

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare the betas."""
        if seen.facts.betas is None:
            return
        first, second = seen.facts.betas
        if first > 0.0 and first**2 >= second:
            sentence = (
                f"the optimizer's second beta is {second:g} and its first {first:g}: as {first:g}² is not below "
                f"{second:g}, the size of earlier gradients is forgotten before their direction, and a step may be "
                "many times the learning rate."
            )
            advice = "Usual is 0.999, or 0.95 for large transformers."
            yield Alarm(seen.step, "second_beta", "", sentence, second, first**2, advice, 1)


class EffectiveRate(Sign):
    """η/‖w‖² of scale-free weights that drifts away while η stays: weights that shrink or grow without end."""

    rank = "symptom"

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
            times, way = (factor, "larger") if factor > 1 else (1 / factor, "smaller")
            do = "less weight decay on it" if factor > 1 else "weight decay on it, or a smaller learning rate"
            sentence = (
                f"{name}: its weights went from norm {start.value:.3g} to {size:.3g}. They are scale-free, so only the "
                f"effective learning rate η/‖w‖² changed: at the same η it is {times:.1e} times {way}."
            )
            threshold = EFFECTIVE_RATE if factor > 1 else 1 / EFFECTIVE_RATE
            yield Alarm(seen.step, "effective_rate", name, sentence, factor, threshold, f"Try {do}.")
