"""Numbers that are not finite, and which of the possible reasons remains."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from normgauge.monitor.sheet import Column
from normgauge.monitor.signs.sign import Alarm, Place, Seen, Sign, Streak
from normgauge.monitor.thresholds import BARE_READINGS, HALF_LIMIT, HALF_ROOM, HUGE, SKIPPED
from normgauge.render.numbers import plural

BREAKABLE: tuple[Column, ...] = ("gradient", "bias_gradient", "frobenius")
LOSS_ADVICE = "Look for a root, a log or a division in the loss whose derivative has no limit, and at its targets."
MAPS = ("matrix", "conv", "embedding")  # what may be clipped without the vectors


class BrokenSample(Sign):
    """A sample that is not finite: in the input, in the target, or alone in the output."""

    rank = "setting"
    _gone = False  # once a weight is not finite, or all but, every sample is

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Name the sample, where the input or the target holds one, or where a few outputs are not finite alone."""
        if self._gone:
            return
        self._gone = any(not row.get("frobenius", 0.0) < HUGE for row in seen.rows)
        broken = seen.broken
        if broken is not None and broken.what in ("entered", "output", "slope") and seen.half:
            return  # there, a sample may be whole and its activations too large
        if not self._felt(seen):
            return  # a mask, or a mark of what is missing, that the model knows of
        if broken is None:
            if seen.given is not None and not math.isfinite(seen.given):
                yield self._say(seen, "the input holds numbers that are not finite")
        else:
            more = f" and {plural(broken.count - 1, 'other')}" if broken.count > 1 else ""
            which = f"sample {broken.at} of {broken.of}{more}"
            said = {
                "input": f"{which} of the batch holds numbers that are not finite",
                "target": f"the target of {which} is not finite",
                "entered": f"{which} reaches the first layer with numbers that are not finite, and its input is finite",
                "output": f"the output of {which} alone is not finite, although the input is finite",
                "slope": f"the gradient of the loss of {which} alone is not finite, although the output is finite",
            }
            yield self._say(seen, said[broken.what], broken.what)

    def _felt(self, seen: Seen) -> bool:
        """Whether the loss, a gradient or a weight broke with it."""
        numbers = [row.get(column, 0.0) for row in seen.rows for column in BREAKABLE]
        lost = seen.story.lost is not None or any(not math.isfinite(loss) for _, loss in seen.losses)
        return lost or not all(map(math.isfinite, numbers))

    def _say(self, seen: Seen, what: str, where: str = "input") -> Alarm:
        """The alarm; what was given broke by itself, what is made of a sample may be the fault of what makes it."""
        why = {"entered": "what lies before that layer", "output": "the network", "slope": "the loss"}.get(where)
        sentence = f"{what} at step {seen.step}: {f'{why} broke on it' if why else 'the batch is broken'}."
        look = (
            f"Look at that sample, and in {why} for a root, a logarithm, a division, an exponential or a softmax over "
            "nothing that it meets"
            if why
            else "Check the loader for NaN"
        )
        advice = f"{look} (samples are counted from 0); go back to a checkpoint if a weight is not finite since."
        return Alarm(seen.step, "nan_input", "", sentence, math.nan, math.inf, advice, seen.step)


class BrokenNumbers(Sign):
    """NaN and overflow: in half precision, or anywhere else."""

    _skipped = 0  # readings in a row
    _suspect = ""  # where the gradient broke first, while the loss was still a number
    _gone = False  # once the weights are not finite, nothing more can be said
    _read = 0  # the last step that was read

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._streak = Streak()

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Find the first thing that is not finite: activations from the input on, gradients from the loss back."""
        if self._gone:
            return
        read, self._read = self._read, seen.step
        lost = next(((at, loss) for at, loss in seen.losses if not math.isfinite(loss)), None)
        gradient = self._first(seen, "gradient", backward=True)
        weights = self._first(seen, "frobenius")
        if lost is None:
            known = gradient is not None and not self._levelled(seen, gradient)
            self._suspect = self._suspect or self._places[gradient].name if known and gradient is not None else ""
        if lost is not None:
            yield self._half_forward(seen, lost, read) if seen.half else self._somewhere(seen, lost)
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

    def _half_forward(self, seen: Seen, lost: tuple[int, float], read: int) -> Alarm:
        layer = self._feeding(seen, self._first(seen, "sigma_rms"))
        where = f"{'first ' * self._heard(seen)}seen at {layer}" if layer else "no normalizer saw it first"
        began = f"the loss is {lost[1]} at step {lost[0]} in float16, whose numbers end at 65504"
        if read < lost[0] - 1 and not self._whole(seen):  # a step that was not read may have broken the weights
            sentence = (
                f"{began}: activations overflowed in it, or gradients in a step before it, which broke the weights; "
                f"none between {read} and {lost[0]} was read, so which cannot be told.{self._finite(seen)}"
            )
            advice = (
                "Use bfloat16; lower the loss scale, or let a gradient scaler find it. every=1 reads all steps: a "
                "gradient that is not finite before the loss is tells the one, a finite one the other."
            )
            return Alarm(seen.step, "half_overflow", "", sentence, lost[1], HALF_LIMIT, advice, lost[0])
        sentence = f"{began}: activations overflowed (inferred), {where}.{self._finite(seen)}"
        advice = "Use bfloat16, or keep this layer in float32 or its weights smaller."
        return Alarm(seen.step, "half_overflow", layer, sentence, lost[1], HALF_LIMIT, advice, lost[0])

    def _somewhere(self, seen: Seen, lost: tuple[int, float]) -> Alarm:
        norm = self._first(seen, "sigma_rms")
        layer, which = self._feeding(seen, norm), "the first" if self._heard(seen) else "a"
        verb = "is" if norm is not None and layer == self._places[norm].name else "follows"
        where = f"; {which} normalizer to see it {verb} {layer}" if layer else ""
        if self._suspect:
            layer, where = self._suspect, f"; before it the gradient of {self._suspect} was not finite"
        sentence = f"the loss is {lost[1]} at step {lost[0]}{where}.{self._finite(seen)}"
        return Alarm(seen.step, "nan", layer, sentence, lost[1], math.inf, self._mending(seen, lost[0], layer), lost[0])

    def _finite(self, seen: Seen) -> str:
        """What was seen to be finite beside a loss that is not."""
        given = seen.given is not None and math.isfinite(seen.given)
        known = [*["the input"] * given, *["all weights"] * self._whole(seen)]
        kept = " and ".join(known)
        verb = "are" if self._whole(seen) else "is"
        return f" {kept[0].upper()}{kept[1:]} {verb} finite at step {seen.step}." if kept else ""

    def _whole(self, seen: Seen) -> bool:
        """Whether the norms of all weights were read, and are numbers."""
        sizes = [row["frobenius"] for row in seen.rows if "frobenius" in row]
        return bool(sizes) and len(sizes) == len(seen.rows) and all(map(math.isfinite, sizes))

    def _mending(self, seen: Seen, at: int, layer: str) -> str:
        """What to do about a loss that is not finite: before the first step nothing was trained that broke it."""
        nothing = "a softmax or a mean over nothing (a mask with an empty row, a batch whose targets are all ignored)"
        if at <= 1:
            front = f"in front of {layer}" if layer else "in the network and in the loss"
            return (
                f"No step was taken before it: look {front} for {nothing}, logs, roots and divisions, and at the "
                "initial weights."
            )
        back = "" if self._whole(seen) else "Go back to a checkpoint if a weight is not finite since. "
        return f"{back}Look for logs, roots and divisions in the loss, for {nothing}, and at the learning rate."

    def _gradient(self, seen: Seen, row: int) -> Alarm:
        row_of = f"at {plural(self._skipped, 'reading')}{' in a row' * (self._skipped > 1)}"
        what = row_of if self._skipped else "and the weights took it up"
        if seen.half:
            kind, layer, why = (
                "half_overflow",
                "",
                "The backward pass overflows float16, whose numbers end at 65504: the loss scale is too large "
                "(inferred).",
            )
            advice = "Lower the loss scale, or let a gradient scaler find it."
        elif levelled := self._levelled(seen, row):
            kind, (layer, why, advice) = "nan", self._anywhere(seen, levelled)
        else:
            kind, layer = "nan", self._places[row].name
            order = (
                "In the order of the backward pass it shows first at" if self._heard(seen) else "One of its layers is"
            )
            why = f"{order} {layer}{self._scaled_away(seen)}."
            advice = "Look for a root, a log or a division whose derivative has no limit."
        sentence = f"the gradient is not finite at step {seen.step} although the loss is, {what}. {why}"
        return Alarm(seen.step, kind, layer, sentence, seen.rows[row]["gradient"], math.inf, advice)

    def _levelled(self, seen: Seen, row: int) -> str:
        """Which gradients are all not finite, in words, where the order of the backward pass says nothing any more.

        A norm that is no number makes so all that are clipped by it: those of the network; those of one optimizer of
        several; or its matrices alone, which is told by gradients that are finite although the backward pass comes to
        them later.
        """
        known = self._graded(seen)
        broke = {k for k in known if not math.isfinite(seen.rows[k]["gradient"])}
        maps = [k for k in known if self._places[k].role in MAPS]
        owner = seen.facts.of(row).owner
        together = [k for k in known if owner is not None and seen.facts.of(k).owner == owner]
        if len(known) > 1 and len(broke) == len(known):
            return f"all {len(known)} layers"
        if len(together) > 1 and broke >= set(together):
            return f"all {len(together)} layers that one optimizer holds"
        if len(maps) > 1 and broke == set(maps) and self._heard(seen):
            later = seen.order[: list(seen.order).index(row)]
            return f"all {len(maps)} matrices" if any(k in known and k not in broke for k in later) else ""
        return ""

    def _anywhere(self, seen: Seen, levelled: str) -> tuple[str, str, str]:
        """Layer, reason and advice where all gradients are broken: what else was seen may tell where it began."""
        what = f"The gradients of {levelled} are not finite"
        advice = (
            "Repeat a step without the clip, or in torch.autograd.set_detect_anomaly(True), which names the operation: "
            "a root, a log or a division whose derivative has no limit."
        )
        layer = self._passed(seen)
        if layer:
            first = "first at" if self._heard(seen) else "at"
            return layer, f"{what}; in the forward pass numbers that are not finite were seen {first} {layer}.", advice
        slope = "that of the loss by the network's last output is"
        if seen.slope is False:
            return "", f"{what}, and {slope} not either: it begins behind that, in the loss.", LOSS_ADVICE
        clip = "as clipping by norm leaves all once one is: where it began cannot be told"
        return "", f"{what}, {clip}{f'; {slope} finite' if seen.slope else ''}.", advice

    def _passed(self, seen: Seen) -> str:
        """The layer at which the forward pass first showed numbers that are not finite; empty where none did."""
        given, sigma = self._first(seen, "entered"), self._first(seen, "sigma_rms")
        rows = [row for row in (given, sigma) if row is not None]
        if self._heard(seen):
            rows.sort(key=list(seen.order).index)
        return "" if not rows else self._feeding(seen, sigma) if rows[0] == sigma else self._places[rows[0]].name

    def _scaled_away(self, seen: Seen) -> str:
        """What is said where one clip by an infinite norm left 0 of every gradient that was finite."""
        rest = [slope for k in self._graded(seen) if math.isfinite(slope := seen.rows[k]["gradient"])]
        if len(rest) < 2 or any(rest):
            return ""
        return "; all gradients that are finite are 0, as clipping by a norm that is infinite leaves them"

    def _graded(self, seen: Seen) -> list[int]:
        """The layers that have a gradient."""
        pairs = zip(range(len(self._places)), seen.rows, strict=False)
        return [row for row, numbers in pairs if "gradient" in numbers]

    def _update(self, seen: Seen, row: int) -> Alarm:
        layer = self._places[row].name
        if not math.isfinite(self._places[row].size):
            sentence = f"a weight of {layer} is not finite, and was not before the first step."
            advice = "Look at what was loaded or initialized."
            return Alarm(seen.step, "nan", layer, sentence, seen.rows[row]["frobenius"], math.inf, advice, 1)
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
