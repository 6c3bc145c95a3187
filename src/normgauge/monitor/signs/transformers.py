"""Transformers: attention that looks at one place only, and a residual stream that grows with depth."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

from normgauge.monitor.sheet import Column
from normgauge.monitor.signs.sign import Alarm, Place, Seen, Sign, Streak, is_cold, median, relative_updates
from normgauge.monitor.thresholds import (
    LOGIT_GREW,
    LOGIT_HIGH,
    LOGIT_SATURATED,
    LOSS_EARLY,
    START_READINGS,
    STREAM_DEEP,
    STREAM_FACTOR,
    STREAM_GREW,
    SUMS,
    TURN_GROSS,
    WARM_STEPS,
)

LAST_STEPS = 5  # readings among which the longest step is looked for
SCALED = 1.01  # factor of the logits over 1/√d above which they are not scaled by it


class Attention(Sign):
    """Attention logits so large that a softmax may put everything on one key, from the start or by growing."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._starts: dict[int, tuple[int, float]] = {}
        self._streak = Streak()

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare the largest logits of every attention with its start, and with what a softmax resolves."""
        logits = {row: numbers["logit_max"] for row, numbers in enumerate(seen.rows) if "logit_max" in numbers}
        logits = {row: abs(logit) for row, logit in logits.items() if math.isfinite(logit)}
        for row, logit in logits.items():
            self._starts.setdefault(row, (seen.step, logit))
        if not logits:
            return
        if any(logit > 3 * self._starts[row][1] and logit > LOGIT_HIGH / 5 for row, logit in logits.items()):
            seen.story.ask(seen.step + max(1, seen.step // 4), everything=True)  # growing: it takes many steps, or few
        since = {row: self._streak.see(self._large(row, logit), seen.step, row) for row, logit in logits.items()}
        lasting = [row for row, (count, _) in since.items() if count >= START_READINGS]
        if lasting:
            row = max(lasting, key=lambda row: logits[row])
            yield self._say(seen, row, logits[row], self._grew(row, logits[row]), since[row][1])
        elif any(count for count, _ in since.values()):
            seen.story.ask(seen.step + 1, everything=True)

    def _large(self, row: int, logit: float) -> bool:
        return logit > LOGIT_SATURATED or self._grew(row, logit)

    def _grew(self, row: int, logit: float) -> bool:
        return logit > LOGIT_HIGH and logit > LOGIT_GREW * self._starts[row][1]

    def _say(self, seen: Seen, row: int, logit: float, grew: bool, began: int) -> Alarm:
        name, (first, start) = self._places[row].name, self._starts[row]
        now = f"{logit:.3g} at step {seen.step}"
        how = f"grew from {start:.3g} at step {first} to {now}" if grew else f"are as large as {now}"
        kind = "attention_growth" if grew else "attention_saturated"
        sentence = f"{name}: its attention logits {how} (the largest of the first sample)."
        limit = LOGIT_HIGH if grew else LOGIT_SATURATED
        return Alarm(seen.step, kind, name, sentence, logit, limit, self._advice(seen, row, grew, began), began)

    def _advice(self, seen: Seen, row: int, grew: bool, began: int) -> str:
        """What to do: the scale of the logits is named only where it is not 1/√d already."""
        scaled, cold = seen.scaled.get(row), is_cold(seen) and began <= WARM_STEPS
        warm = "Let the learning rate rise over the first hundreds of steps (there is no warm-up), lower it"
        first = warm if cold else "Lower the learning rate"
        first = first if grew else "Initialize the weights of queries and keys smaller"
        if scaled is None:
            return f"{first}, normalize queries and keys, or scale the logits by 1/√d if nothing does yet."
        if scaled > SCALED:
            return f"Scale the logits by 1/√d (their factor is {scaled:.3g} times that), or normalize queries and keys."
        return f"{first}, or normalize queries and keys."


@dataclass(frozen=True, slots=True)
class Growth:
    """How a residual stream grew at one reading, with depth or since an earlier one.

    Attributes:
        step: of the reading.
        layer: where it was largest of what was compared.
        said: from where to where, in words.
        value: the factor.
        crossed: what it was not to exceed.
        turn: step and median ‖Δw‖/‖w‖ of the longest of the last steps that were read, where one was measured.
        jump: between which two layers most of the growth with depth lies, in words; empty where it is spread.
    """

    step: int
    layer: str
    said: str
    value: float
    crossed: float
    turn: tuple[int, float] | None
    jump: str = ""


class Stream(Sign):
    """A residual stream that grows from block to block, or from step to step."""

    _normed = True  # whether it is seen at normalizers; without them at every layer, inside the branches too
    _first: Growth | None = None  # of the readings in a row that show it: what is said is said of this one

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._readings = 0
        self._starts: dict[int, tuple[int, float]] = {}
        self._streak = Streak()
        self._turns: deque[tuple[int, float]] = deque(maxlen=LAST_STEPS)

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare what the last normalizers are given with the first ones, and with their start."""
        turn = median(relative_updates(seen, self._places))
        if turn is not None:
            self._turns.append((seen.step, turn))
        sizes = self._sizes(seen)
        for row, size in sizes.items():
            self._starts.setdefault(row, (seen.step, size))
        if len(sizes) < 4:
            return
        grows = self._growth(seen, sizes)
        count, began = self._streak.see(grows is not None, seen.step)
        self._first = grows if count == 1 else self._first
        if count >= START_READINGS and self._first is not None:
            yield self._say(seen, self._first, began)
        elif count:
            seen.story.ask(seen.step + 1, everything=True)

    def _growth(self, seen: Seen, sizes: dict[int, float]) -> Growth | None:
        """How it grows at this reading; None where it does not."""
        rows = list(sizes)
        near, far = rows[1], rows[-1]  # the first is given an embedding, of any size
        first, start = self._starts[far]
        deep, long = sizes[far] / sizes[near], sizes[far] / start
        # sums of branches grow like the root of the depth, a fault by a factor at each block
        blocks = median([sizes[b] / sizes[a] for a, b in zip(rows[1:], rows[3:], strict=False)]) or 0.0
        self._readings += 1
        # what is learnt may grow it, too; layers may be added to what has learnt
        early = self._readings <= START_READINGS and seen.story.count <= LOSS_EARLY
        multiplied = blocks > STREAM_FACTOR and deep > (limit := STREAM_DEEP if early else STREAM_GREW)
        learnt = not early and seen.story.falls  # it did not begin so, and does no harm yet
        if learnt or not (multiplied or (long > STREAM_GREW and seen.story.worse)):
            return None
        name, turn = self._places[far].name, max(self._turns, key=itemgetter(1), default=None)
        if multiplied:
            said = f"from {sizes[near]:.3g} at {self._places[near].name} to {sizes[far]:.3g} at {name}"
            jump = self._jump(sizes, deep)
            return Growth(
                seen.step, name, f"{said}{self._lost(seen, far)}, at step {seen.step}", deep, limit, turn, jump
            )
        said = f"from {start:.3g} at step {first} to {sizes[far]:.3g} at step {seen.step}, at {name}"
        return Growth(seen.step, name, f"{said}{self._lost(seen, far)}", long, STREAM_GREW, turn)

    def _say(self, seen: Seen, grown: Growth, began: int) -> Alarm:
        bare = "" if self._rows("norm") else "without normalizers, "  # of other kinds there may be some
        what = "the residual stream" if self._normed else f"{bare}what layers along a residual stream are given"
        of = "" if self._normed else " of the first sample"
        sentence = f"{what} grows {grown.said} (root mean square{of}).{grown.jump}"
        branches = "cale the branches (1/√(2·depth) at their last layer), normalize them, or lower their rate."
        smaller = seen.story.count <= LOSS_EARLY and began <= START_READINGS  # nothing was learnt that grew it
        advice = f"Initialize the layers smaller, or s{branches}" if smaller else f"S{branches}"
        if grown.turn is not None and grown.turn[1] > TURN_GROSS:
            at, turn = grown.turn
            advice = (
                f"Lower the learning rate, to a tenth at first: the step at {at} moved the median layer by {turn:.0%} "
                f"of the norm it had after it. And s{branches}"
            )
        return Alarm(seen.step, "residual_growth", grown.layer, sentence, grown.value, grown.crossed, advice, began)

    def _jump(self, sizes: dict[int, float], deep: float) -> str:
        """What is said where more than half of the decades lie between two neighbours."""
        rows = list(sizes)[1:]
        a, b = max(pairwise(rows), key=lambda pair: sizes[pair[1]] / sizes[pair[0]])
        if sizes[b] / sizes[a] < math.sqrt(deep) or len(rows) < 3:
            return ""
        ends = " and ".join(f"{self._places[row].name} ({sizes[row]:.3g})" for row in (a, b))
        return f" Most of it lies between {ends}."

    def _lost(self, seen: Seen, far: int) -> str:
        """What is said where layers behind the last one compared are given numbers that are not finite."""
        column: Column = "input_rms" if self._normed else "entered"
        behind = (row.get(column, 0.0) for row in seen.rows[far + 1 :])
        return ", the last place where it is finite" if not all(map(math.isfinite, behind)) else ""

    def _sizes(self, seen: Seen) -> dict[int, float]:
        """What normalizers are given; without them, what the layers of a network with many sums are given."""
        sizes = self._column(seen, "input_rms")
        self._normed = len(sizes) >= 4 or seen.facts.met("AddBackward") < SUMS
        if self._normed:
            return sizes
        layers = self._column(seen, "entered")
        return layers if len(layers) >= SUMS else {}

    def _column(self, seen: Seen, name: Column) -> dict[int, float]:
        known = {row: numbers[name] for row, numbers in enumerate(seen.rows) if name in numbers}
        return {row: size for row, size in known.items() if 0.0 < size < math.inf}
