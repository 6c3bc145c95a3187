"""Numbers that are not finite, and which of the possible reasons remains."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from normgauge.monitor.sheet import Column
from normgauge.monitor.signs.sign import Alarm, Place, Seen, Sign, Streak
from normgauge.monitor.thresholds import BARE_READINGS, HALF_LIMIT, HALF_ROOM, SKIPPED
from normgauge.render.numbers import plural

BREAKABLE: tuple[Column, ...] = ("gradient", "bias_gradient", "frobenius")


class BrokenSample(Sign):
    """A sample that is not finite: in the input, in the target, or alone in the output."""

    rank = "setting"
    _gone = False  # once the weights are not finite, every sample is

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Name the sample, where the input or the target holds one, or where a few outputs are not finite alone."""
        if self._gone:
            return
        self._gone = any(not math.isfinite(row.get("frobenius", 0.0)) for row in seen.rows)
        broken = seen.broken
        if broken is not None and broken.what in ("entered", "output", "slope") and seen.half:
            return  # there, a sample may be whole and its activations too large
        if not self._felt(seen):
            return  # a mask, or a mark of what is missing, that the model knows of
        if broken is None:
            if seen.given is not None and not math.isfinite(seen.given):
                yield self._say(seen, "the input holds numbers that are not finite")
        else:
            more = f" and {broken.count - 1} others" if broken.count > 1 else ""
            which = f"sample {broken.at} of {broken.of}{more}"
            said = {
                "input": f"{which} of the batch holds numbers that are not finite",
                "target": f"the target of {which} is not finite",
                "entered": f"{which} reaches the first layer with numbers that are not finite, and its input is finite",
                "output": f"{which} alone has an output that is not finite, although its input is finite",
                "slope": f"the loss of {which} alone has a gradient that is not finite, although its output is finite",
            }
            yield self._say(seen, said[broken.what])

    def _felt(self, seen: Seen) -> bool:
        """Whether the loss, a gradient or a weight broke with it."""
        numbers = [row.get(column, 0.0) for row in seen.rows for column in BREAKABLE]
        lost = seen.story.lost is not None or any(not math.isfinite(loss) for _, loss in seen.losses)
        return lost or not all(map(math.isfinite, numbers))

    def _say(self, seen: Seen, what: str) -> Alarm:
        sentence = f"{what} at step {seen.step}: the batch is broken, not the network."
        advice = (
            "Check the loader for NaN, and what is divided by or logged (samples are counted from 0); go back to a "
            "checkpoint if a step was taken with it."
        )
        return Alarm(seen.step, "nan_input", "", sentence, math.nan, math.inf, advice, seen.step)


class BrokenNumbers(Sign):
    """NaN and overflow: in half precision, or anywhere else."""

    _skipped = 0  # readings in a row
    _suspect = ""  # where the gradient broke first, while the loss was still a number
    _gone = False  # once the weights are not finite, nothing more can be said

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._streak = Streak()

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Find the first thing that is not finite: activations from the input on, gradients from the loss back."""
        if self._gone:
            return
        lost = next(((at, loss) for at, loss in seen.losses if not math.isfinite(loss)), None)
        gradient = self._first(seen, "gradient", backward=True)
        weights = self._first(seen, "frobenius")
        if lost is None:
            self._suspect = "" if gradient is None else self._suspect or self._places[gradient].name
        if lost is not None:
            yield self._half_forward(seen, lost) if seen.half else self._somewhere(seen, lost)
        elif gradient is not None and weights is not None:
            yield self._gradient(seen, gradient)
        elif gradient is not None:
            self._skipped, began = self._streak.see(True, seen.step)
            if self._skipped >= BARE_READINGS and seen.step - began + 1 >= SKIPPED:
                yield self._gradient(seen, gradient)
            elif self._skipped == BARE_READINGS - 1:
                seen.story.ask(began + SKIPPED - 1)
        elif weights is not None:
            yield self._update(seen, weights)
        else:
            self._skipped, _ = self._streak.see(False, seen.step)
            yield from self._near(seen)
        self._gone = weights is not None

    def _half_forward(self, seen: Seen, lost: tuple[int, float]) -> Alarm:
        layer = self._feeding(seen, self._first(seen, "sigma_rms"))
        where = f"{'first ' * self._heard(seen)}seen at {layer}" if layer else "no normalizer saw it first"
        sentence = (
            f"the loss is {lost[1]} at step {lost[0]} in float16, whose numbers end at 65504, while the input is "
            f"finite: activations overflowed, {where}."
        )
        advice = "Use bfloat16, or keep this layer in float32 or its weights smaller."
        return Alarm(seen.step, "half_overflow", layer, sentence, lost[1], HALF_LIMIT, advice, lost[0])

    def _somewhere(self, seen: Seen, lost: tuple[int, float]) -> Alarm:
        layer = self._feeding(seen, self._first(seen, "sigma_rms"))
        which = "the first" if self._heard(seen) else "a"
        where = f"; {which} normalizer to see it follows {layer}" if layer else ""
        if self._suspect:
            layer, where = self._suspect, f"; before it the gradient of {self._suspect} was not finite"
        sentence = f"the loss is {lost[1]} at step {lost[0]}{where}. The input is finite where it was seen."
        advice = "Go back to a checkpoint; look for logs, roots and divisions in the loss, and at the learning rate."
        return Alarm(seen.step, "nan", layer, sentence, lost[1], math.inf, advice, lost[0])

    def _gradient(self, seen: Seen, row: int) -> Alarm:
        row_of = f"at {plural(self._skipped, 'reading')}{' in a row' * (self._skipped > 1)}"
        what = row_of if self._skipped else "and the weights took it up"
        if seen.half:
            kind, layer, why = (
                "half_overflow",
                "",
                "The backward pass overflows float16, whose numbers end at 65504: the loss scale is too large.",
            )
            advice = "Lower the loss scale, or let a gradient scaler find it."
        else:
            kind, layer = "nan", self._places[row].name
            order = (
                "In the order of the backward pass it shows first at" if self._heard(seen) else "One of its layers is"
            )
            why = f"{order} {layer}."
            advice = "Look for a root, a log or a division whose derivative has no limit."
        sentence = f"the gradient is not finite at step {seen.step} although the loss is, {what}. {why}"
        return Alarm(seen.step, kind, layer, sentence, seen.rows[row]["gradient"], math.inf, advice)

    def _update(self, seen: Seen, row: int) -> Alarm:
        layer = self._places[row].name
        sentence = (
            f"a weight of {layer} is not finite at step {seen.step} although the loss and all gradients are: the "
            "optimizer's step broke it, or something else wrote to it."
        )
        advice = "Look at the learning rate, at the optimizer's state, and at what writes to weights between steps."
        return Alarm(seen.step, "nan", layer, sentence, seen.rows[row]["frobenius"], math.inf, advice)

    def _near(self, seen: Seen) -> Iterator[Alarm]:
        limit = HALF_LIMIT / HALF_ROOM
        for row, numbers in enumerate(seen.rows):
            sigma = numbers.get("sigma_max", 0.0)
            if numbers.get("half") and sigma > limit:
                layer = self._feeding(seen, row)
                sentence = (
                    f"activations behind {layer} have σ = {sigma:.3g} in float16, whose numbers end at 65504: a few σ "
                    "out they overflow."
                )
                advice = "The layer is scale-free if a normalizer follows: shrink its weights, or use bfloat16."
                yield Alarm(seen.step, "half_overflow", layer, sentence, sigma, limit, advice)
                return

    def _first(self, seen: Seen, column: Column, *, backward: bool = False) -> int | None:
        """The first row with a number that is not finite, in the order of a pass where that was heard."""
        rows: Sequence[int] = range(min(len(self._places), len(seen.rows)))
        if self._heard(seen):
            rows = [row for row in (reversed(seen.order) if backward else seen.order) if row in rows]
        return next((row for row in rows if not math.isfinite(seen.rows[row].get(column, 0.0))), None)

    def _heard(self, seen: Seen) -> bool:
        """Whether the order of a pass was heard: else what comes first is not known."""
        return len(seen.order) >= min(len(self._places), len(seen.rows))

    def _feeding(self, seen: Seen, row: int | None) -> str:
        """The layer whose output goes into a normalizer, or the normalizer itself."""
        if row is None:
            return ""
        feeding = next((layer for layer, norm in seen.pairs.items() if norm == row), row)
        return self._places[feeding].name
