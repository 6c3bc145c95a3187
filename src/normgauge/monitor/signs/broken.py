"""Numbers that are not finite, and which of the possible reasons remains."""

from __future__ import annotations

import math
from collections.abc import Iterator

from normgauge.monitor.sheet import Column
from normgauge.monitor.signs.sign import Alarm, Seen, Sign
from normgauge.monitor.thresholds import (
    HALF_LIMIT,
    HALF_ROOM,
    SKIPPED,
)


class BrokenNumbers(Sign):
    """NaN and overflow: in the input, in half precision, or anywhere else."""

    _skipped = 0
    _suspect = ""  # where the gradient broke first, while the loss was still a number
    _gone = False  # once the weights are not finite, nothing more can be said

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Find the first thing that is not finite, from the input on."""
        if self._gone:
            return
        lost = next(((at, loss) for at, loss in seen.losses if not math.isfinite(loss)), None)
        gradient = self._first(seen, "gradient")
        weights = self._first(seen, "frobenius")
        if lost is None:
            self._suspect = "" if gradient is None else self._suspect or self._places[gradient].name
        if seen.given is not None and not math.isfinite(seen.given):
            yield self._input(seen)
        elif lost is not None:
            yield self._half_forward(seen, lost) if seen.half else self._somewhere(seen, lost)
        elif gradient is not None and weights is not None:
            yield self._gradient(seen, gradient)
        elif gradient is not None:
            self._skipped += 1
            if self._skipped >= SKIPPED:
                yield self._gradient(seen, gradient)
        else:
            self._skipped = 0
            if seen.half:
                yield from self._near(seen)
        self._gone = weights is not None

    def _input(self, seen: Seen) -> Alarm:
        sentence = (
            f"the input of step {seen.step} holds numbers that are not finite. The batch is broken, not the network: "
            "check the loader for NaN and division by zero, and go back to a checkpoint if a step was taken with it."
        )
        return Alarm(seen.step, "nan_input", "", sentence, math.nan, math.inf)

    def _half_forward(self, seen: Seen, lost: tuple[int, float]) -> Alarm:
        layer = self._feeding(seen, self._first(seen, "sigma_rms"))
        where = f"first seen at {layer}" if layer else "no normalizer saw it first"
        sentence = (
            f"the loss is {lost[1]} at step {lost[0]} in float16, whose numbers end at 65504, while the input is "
            f"finite: activations overflowed, {where}. Use bfloat16, or keep this layer in float32 or its weights "
            "smaller."
        )
        return Alarm(lost[0], "half_overflow", layer, sentence, lost[1], HALF_LIMIT)

    def _somewhere(self, seen: Seen, lost: tuple[int, float]) -> Alarm:
        layer = self._feeding(seen, self._first(seen, "sigma_rms"))
        where = f"; the first normalizer to see it follows {layer}" if layer else ""
        if self._suspect:
            layer, where = self._suspect, f"; before it the gradient of {self._suspect} was not finite"
        sentence = (
            f"the loss is {lost[1]} at step {lost[0]}{where}. The input is finite where it was seen. Go back to a "
            "checkpoint; look at the alarms before this one, the learning rate, and logs or divisions in the loss."
        )
        return Alarm(lost[0], "nan", layer, sentence, lost[1], math.inf)

    def _gradient(self, seen: Seen, row: int) -> Alarm:
        what = f"for {self._skipped} steps in a row" if self._skipped else "and the weights took it up"
        if seen.half:
            kind, layer = "half_overflow", ""
            why = "The backward pass left the range of float16: lower the loss scale, or let a gradient scaler find it."
        else:
            kind, layer = "nan", self._places[row].name
            why = f"It is seen first at {layer}: look for a root, a log or a division whose derivative has no limit."
        sentence = f"the gradient is not finite at step {seen.step} although the loss is, {what}. {why}"
        return Alarm(seen.step, kind, layer, sentence, seen.rows[row]["gradient"], math.inf)

    def _near(self, seen: Seen) -> Iterator[Alarm]:
        limit = HALF_LIMIT / HALF_ROOM
        for row, numbers in enumerate(seen.rows):
            sigma = numbers.get("sigma_max", 0.0)
            if sigma > limit:
                layer = self._feeding(seen, row)
                sentence = (
                    f"activations behind {layer} have σ = {sigma:.3g} in float16, whose numbers end at 65504: a few σ "
                    "out they overflow. The layer is scale-free if a normalizer follows: shrink its weights, or use "
                    "bfloat16."
                )
                yield Alarm(seen.step, "half_overflow", layer, sentence, sigma, limit)

    def _first(self, seen: Seen, column: Column) -> int | None:
        pairs = enumerate(seen.rows[: len(self._places)])
        return next((i for i, row in pairs if not math.isfinite(row.get(column, 0.0))), None)

    def _feeding(self, seen: Seen, row: int | None) -> str:
        """The layer whose output goes into a normalizer, or the normalizer itself."""
        if row is None:
            return ""
        feeding = next((layer for layer, norm in seen.pairs.items() if norm == row), row)
        return self._places[feeding].name
