"""Transformers: attention that looks at one place only, and a residual stream that grows with depth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from normgauge.monitor.sheet import Column
from normgauge.monitor.signs.sign import Alarm, Place, Seen, Sign, Streak, median
from normgauge.monitor.thresholds import (
    LOGIT_GREW,
    LOGIT_HIGH,
    LOGIT_SATURATED,
    START_READINGS,
    STREAM_DEEP,
    STREAM_FACTOR,
    STREAM_GREW,
    SUMS,
)

SCALED = 1.01  # factor of the logits over 1/√d above which they are not scaled by it


class Attention(Sign):
    """Attention logits so large that a softmax may put everything on one key, from the start or by growing."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._starts: dict[int, float] = {}
        self._streak = Streak()

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare the largest logits of every attention with its start, and with what a softmax resolves."""
        logits = {row: numbers["logit_max"] for row, numbers in enumerate(seen.rows) if "logit_max" in numbers}
        logits = {row: abs(logit) for row, logit in logits.items() if math.isfinite(logit)}
        for row, logit in logits.items():
            self._starts.setdefault(row, logit)
        if not logits:
            return
        if any(logit > 3 * self._starts[row] and logit > LOGIT_HIGH / 5 for row, logit in logits.items()):
            seen.story.ask(seen.step + max(1, seen.step // 4), everything=True)  # growing: it takes many steps, or few
        row = max(logits, key=lambda row: logits[row])
        logit, start = logits[row], self._starts[row]
        grew = logit > LOGIT_HIGH and logit > LOGIT_GREW * start
        count, began = self._streak.see(logit > LOGIT_SATURATED or grew, seen.step)
        if count >= START_READINGS:
            yield self._say(seen, row, logit, start, grew, began)
        elif count:
            seen.story.ask(seen.step + 1, everything=True)

    def _say(self, seen: Seen, row: int, logit: float, start: float, grew: bool, began: int) -> Alarm:
        name = self._places[row].name
        how = f"grew from {start:.3g} to {logit:.3g}" if grew else f"are as large as {logit:.3g}"
        kind = "attention_growth" if grew else "attention_saturated"
        sentence = f"{name}: its attention logits {how} (the largest of the first sample)."
        limit = LOGIT_HIGH if grew else LOGIT_SATURATED
        return Alarm(seen.step, kind, name, sentence, logit, limit, self._advice(seen, row, grew), began)

    def _advice(self, seen: Seen, row: int, grew: bool) -> str:
        """What to do: the scale of the logits is named only where it is not 1/√d already."""
        scaled = seen.scaled.get(row)
        first = "Lower the learning rate" if grew else "Initialize the weights of queries and keys smaller"
        if scaled is None:
            return f"{first}, normalize queries and keys, or scale the logits by 1/√d if nothing does yet."
        if scaled > SCALED:
            return f"Scale the logits by 1/√d (their factor is {scaled:.3g} times that), or normalize queries and keys."
        return f"{first}, or normalize queries and keys."


class Stream(Sign):
    """A residual stream that grows from block to block, or from step to step."""

    _normed = True  # whether it is seen at normalizers; without them at every layer, inside the branches too

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._readings = 0
        self._starts: dict[int, float] = {}
        self._streak = Streak()

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare what the last normalizers are given with the first ones, and with their start."""
        sizes = self._sizes(seen)
        for row, size in sizes.items():
            self._starts.setdefault(row, size)
        rows = list(sizes)
        if len(rows) < 4:
            return
        near, far = rows[1], rows[-1]  # the first is given an embedding, of any size
        deep, long = sizes[far] / sizes[near], sizes[far] / self._starts[far]
        # sums of branches grow like the root of the depth, a fault by a factor at each block
        blocks = median([sizes[b] / sizes[a] for a, b in zip(rows[1:], rows[3:], strict=False)]) or 0.0
        self._readings += 1
        limit = STREAM_DEEP if self._readings <= START_READINGS else STREAM_GREW  # what is learnt may grow it, too
        multiplied = blocks > STREAM_FACTOR and deep > limit
        grows = max(deep if multiplied else 0.0, long if seen.story.worse else 0.0)
        count, began = self._streak.see(multiplied or grows > STREAM_GREW, seen.step)
        if count >= START_READINGS:
            name = self._places[far].name
            how = (
                f"from {sizes[near]:.3g} at {self._places[near].name} to {sizes[far]:.3g} at {name}"
                if multiplied
                else f"from {self._starts[far]:.3g} at first to {sizes[far]:.3g} at {name}"
            )
            seen_at = "" if self._normed else ", seen without normalizers at what each layer is given,"
            sentence = f"the residual stream{seen_at} grows {how} (root mean square)."
            advice = "Scale the branches (1/√(2·depth) at their last layer), normalize them, or lower their rate."
            value, crossed = (deep, limit) if multiplied else (long, STREAM_GREW)
            yield Alarm(seen.step, "residual_growth", name, sentence, value, crossed, advice, began)
        elif count:
            seen.story.ask(seen.step + 1, everything=True)

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
