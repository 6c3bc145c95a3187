"""The data: the size of the input, and labels blamed for a loss that jumps while nothing in the network moved."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from normgauge.monitor.signs.sign import Alarm, Level, Place, Seen, Sign, median, relative_updates
from normgauge.monitor.thresholds import (
    DATA_APART,
    DATA_JUMP,
    DATA_LARGE,
    DATA_SMALL,
    GRADIENT_SURGED,
    LOSS_APART,
    LOSS_BIG,
    LOSS_HIGH,
    LOSS_HIGH_SPREAD,
    LOSS_JUMP,
    LOSS_MATERIAL,
    LOSS_READINGS,
    LOSS_SPREAD,
    LOSS_STEADY,
    MEMORY,
    SCALE_KEPT,
    SETTLED,
)
from normgauge.render.numbers import plural


class DataScale(Sign):
    """Data far from the size networks are initialized for, as the first layers take them, or of another than before."""

    rank, each = "setting", True
    _step = 0  # of the reading before

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare the root mean square of the input with its level and with fixed limits."""
        size, story = seen.given, seen.story
        if story.stuck and story.start > LOSS_BIG and seen.facts.reduction != "sum" and not seen.facts.classes:
            sentence = (
                "the data are not normalized, or what the network makes of them is far too large (inferred): the loss "
                f"began at {story.start:.3g} and makes no progress in {story.count} steps."
            )
            advice = (
                "Scale the targets (subtract their mean, divide by their standard deviation); look at the first "
                "outputs."
            )
            yield Alarm(seen.step, "data_scale", "", sentence, story.start, LOSS_BIG, advice, 1)
        if size is None or not math.isfinite(size):
            return
        level = self._levels[0]
        factor = level.factor(size)
        near, self._step = seen.step - self._step <= DATA_APART, seen.step
        if (factor > DATA_JUMP or factor < 1 / DATA_JUMP) and (near or seen.story.worse):  # else it may have drifted
            sentence = (
                f"the data changed scale: the input's root mean square is {size:.3g} at step {seen.step}; it was "
                f"{level.value:.3g} before, and is not normalized as then."
            )
            advice = "Look at how this batch is loaded and normalized (a missing division by 255?)."
            yield Alarm(seen.step, "data_scale", "", sentence, factor, DATA_JUMP, advice)
            return
        level.see(size)
        if size > DATA_LARGE or 0.0 < size < DATA_SMALL:
            sentence = (
                f"the data are not normalized: the first layer takes an input of root mean square {size:.3g}, and "
                "networks are initialized for 1."
            )
            advice = "Scale the data (divide images by 255, or subtract the mean and divide by the standard deviation)."
            limit = DATA_LARGE if size > 1 else DATA_SMALL
            yield Alarm(seen.step, "data_scale", "", sentence, size, limit, advice, 1)


Key = tuple[str, int]  # what is compared, and of which layer
NAMED = {"input": "the input's size", "sigma": "every σ", "weight": "the weights' norms"}
TURN: Key = ("turn", 0)
GRADIENT: Key = ("gradient", 0)
SPREADS = {"sigma": "σ", "smallest": "the smallest σ"}  # what of a normalizer tells that its input changed


class LabelNoise(Sign):
    """Losses far above their level while weights and steps are as usual: labels, or the data where a σ moved as well.

    Only a cross entropy is judged: the targets of other losses may change on purpose, as those of agents do.
    """

    each = True

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._count, self._mean, self._spread, self._start = 0, 0.0, 0.0, 0.0
        self._high: list[tuple[int, float]] = []
        self._usual: dict[Key, Level] = defaultdict(Level)
        self._last: dict[Key, deque[float]] = defaultdict(partial(deque, maxlen=MEMORY))  # of what has a range
        self._left: dict[Key, str] = {}  # what was out of its range at the first high loss, in words
        self._steady = self._was_steady = True
        self._step = 0

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Go through every loss since the last reading; at the first high one, look whether the network moved."""
        calm, jump = not self._high, None
        near, self._step = seen.step - self._step <= LOSS_APART, seen.step
        for at, loss in seen.losses:
            self._see(at, loss)
            jump = self._jump() or jump
        numbers = self._numbers_of(seen)
        if calm and (self._high or jump):
            steady = (self._near(key, value) for key, value in numbers.items() if key != TURN and key[0] != "sigma")
            self._steady = self._was_steady and all(steady)
            ranged = self._ranged(seen)
            self._left = {key: said for key, value in ranged.items() if (said := self._out(key, value, seen.step))}
        if not self._high:
            self._was_steady = self._near(TURN, numbers[TURN])  # this step shows in the loss of the next
            for key, value in numbers.items():
                self._usual[key].see(value)
            for key, value in self._ranged(seen).items():
                self._last[key].append(value)
        if jump is None or not self._steady or not near or not seen.facts.classes:
            return
        at, before, loss = jump
        kind, rest, advice = self._read_off(numbers, loss)
        sentence = f"the loss went from {before:.3g} to {loss:.3g} from step {at} on{rest}"
        yield Alarm(seen.step, kind, "", sentence, loss / before, LOSS_JUMP, advice, at)

    def _read_off(self, numbers: Mapping[Key, float | None], loss: float) -> tuple[str, str, str]:
        """What it is called by what left its range with it, the rest of the sentence, and what to do."""
        slope = self._left.get(GRADIENT, "")
        if slope and loss > GRADIENT_SURGED * max(self._start, self._mean):
            advice = (
                "Look at what multiplies the loss from that step on (a sum in place of a mean, the weight of a term); "
                "then at these batches."
            )
            return "gradient_jump", f": {slope}.", advice
        moved = [self._left[key] for key in self._left if key != GRADIENT]
        also = f" Besides, {slope}." if slope else ""
        if moved:
            more = f"; {plural(len(moved) - 1, 'other number')} of σ moved as well" if len(moved) > 1 else ""
            rest = f", where the data changed, or data and labels: {moved[0]}{more}.{also}"
            return "batch_change", rest, "Look at these batches: at their input first, then at their labels."
        rest = f", while {_listed(numbers)} were as usual. Activations and logits are not compared for this.{also}"
        return "label_noise", rest, "Look at the labels of these batches."

    def _ranged(self, seen: Seen) -> dict[Key, float]:
        """What is compared with the range of its last readings: σ of every normalizer, and the gradient."""
        found = {("sigma", k): row["sigma_rms"] for k, row in enumerate(seen.rows) if "sigma_rms" in row}
        found |= {("smallest", k): row["sigma_min"] for k, row in enumerate(seen.rows) if "sigma_min" in row}
        slope = seen.totals.get("gradient")
        return found if slope is None else {**found, GRADIENT: slope}

    def _out(self, key: Key, value: float, step: int) -> str:
        """What left the range of its last readings by more than its width, in words; empty where it did not."""
        last = self._last[key]
        if len(last) < MEMORY // 2:
            return ""
        low, high = min(last), max(last)
        if 2 * low - high <= value <= 2 * high - low:
            return ""
        what = "the norm of all gradients" if key == GRADIENT else f"{SPREADS[key[0]]} of {self._places[key[1]].name}"
        return f"{what} was {value:.3g} at step {step}, and {low:.3g} to {high:.3g} in the {len(last)} readings before"

    def _jump(self) -> tuple[int, float, float] | None:
        """First step, level before and mean of a row of high losses; None where it is too short or not high enough."""
        if len(self._high) < LOSS_READINGS:
            return None
        loss = sum(loss for _, loss in self._high) / len(self._high)
        rise = loss - self._mean
        high = loss >= LOSS_JUMP * self._mean and rise >= max(LOSS_SPREAD * self._spread, LOSS_MATERIAL * self._start)
        return (self._high[0][0], self._mean, loss) if high else None

    def _see(self, at: int, loss: float) -> None:
        if not math.isfinite(loss):
            return
        away = loss - self._mean
        high = loss > LOSS_HIGH * self._mean and away > LOSS_HIGH_SPREAD * self._spread
        if self._count >= MEMORY and high:
            self._high.append((at, loss))
            if len(self._high) <= MEMORY:
                return
        self._high = []
        self._count += 1
        share = 1 / min(self._count, MEMORY)
        self._mean += share * away
        if self._count <= SETTLED:
            self._start = self._mean
        self._spread += share * (abs(away) - self._spread)

    def _numbers_of(self, seen: Seen) -> dict[Key, float | None]:
        """Input, learning rate, median relative step, every σ and every weight's norm."""
        numbers: dict[Key, float | None] = {}
        for row, line in enumerate(seen.rows):
            if "sigma_rms" in line:
                numbers["sigma", row] = line["sigma_rms"]
            if "frobenius" in line:
                numbers["weight", row] = line["frobenius"]
        turn = median(relative_updates(seen, self._places))
        return {**numbers, ("input", 0): seen.given, ("rate", 0): seen.rate, TURN: turn}

    def _near(self, key: Key, value: float | None) -> bool:
        """Whether a number stays near its level; rates and steps may fall, and noisy labels make steps longer."""
        factor = self._usual[key].factor(value)
        within = {"weight": SCALE_KEPT, "turn": LOSS_STEADY**2}.get(key[0], LOSS_STEADY)
        return factor < within and (factor > 1 / within or key[0] in ("rate", "turn"))


def _listed(numbers: Mapping[Key, float | None]) -> str:
    """What there was to compare, in words."""
    known = {kind for (kind, _), value in numbers.items() if value is not None}
    return ", ".join([*(words for kind, words in NAMED.items() if kind in known)]) + " and the steps before"
