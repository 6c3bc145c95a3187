"""Settings that are wrong by themselves: read off the optimizer and the modules, and never inferred."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from normgauge.monitor.signs.blame import MEAN_ADVICE
from normgauge.monitor.signs.sign import Alarm, Place, Seen, Sign, Streak
from normgauge.monitor.thresholds import (
    HALF_LEAST,
    LOSS_SUSPECT,
    MODE_STEPS,
    RATE_GONE,
    ROUNDED,
    ROUNDED_GUESS,
    START_READINGS,
    STATISTICS_MOMENTUM,
    UNEVEN,
)
from normgauge.render.numbers import shortened_names

SHOWN = 3  # most layers named in a sentence
LAST_PLACE = {torch.bfloat16: 2.0**-9, torch.float16: 2.0**-12}  # half a unit in the last place, relative


class Setting(Sign):
    """A sign that is read off."""

    rank = "setting"


class NotInOptimizer(Setting):
    """Weights that get gradients, are held by no optimizer and do not move."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._streak = Streak()

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Name the layers whose gradients nobody uses."""
        if not any("update" in row for row in seen.rows):
            return  # a light reading
        rows = [row for row, _ in enumerate(self._places) if self._left_out(seen, row)]
        count, began = self._streak.see(bool(rows), seen.step)
        if count >= START_READINGS:
            names = [self._places[row].name for row in rows]
            sentence = (
                f"{shortened_names(names, SHOWN)}: parameters are not in the optimizer. {len(rows)} of "
                f"{len(self._places)} layers get gradients, are held by no optimizer that was given, and do not move."
            )
            advice = "Make the optimizer from model.parameters() after all layers exist; freeze what is meant to stay."
            yield Alarm(seen.step, "not_in_optimizer", names[0], sentence, len(rows), 0.0, advice, began)

    def _left_out(self, seen: Seen, row: int) -> bool:
        facts, numbers = seen.facts.of(row), seen.rows[row]
        return (
            facts.trains
            and facts.held == 0
            and numbers.get("gradient", 0.0) > 0.0
            and numbers.get("update", 1.0) == 0.0
        )


class SteppedTwice(Setting):
    """Weights that the optimizers hold more than once."""

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Name the weights that are stepped more than once in each step."""
        names = [place.name for row, place in enumerate(self._places) if (seen.facts.of(row).held or 0) > 1]
        if names:
            sentence = (
                f"{shortened_names(names, SHOWN)}: the optimizers hold this weight twice, so that it is moved twice "
                "where both are stepped (tied weights listed under both names, or two optimizers)."
            )
            advice = "List each parameter once: model.parameters() does, also where weights are tied."
            yield Alarm(seen.step, "stepped_twice", names[0], sentence, 2.0, 1.0, advice, 1)


class EvalMode(Setting):
    """A model that is trained in eval mode."""

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Count the steps in a row whose pass ran in eval mode."""
        since = seen.story.eval_since
        if since is not None and seen.story.step - since >= MODE_STEPS - 1 and seen.facts.moody:
            count = seen.story.step - since + 1
            sentence = f"the model trains in eval mode since step {since} (eval() is on): {self._what(seen)}."
            advice = "Call model.train() after each evaluation, before the next step."
            yield Alarm(seen.step, "eval_mode", "", sentence, float(count), float(MODE_STEPS), advice, since)

    def _what(self, seen: Seen) -> str:
        """What that changes: a model that behaves otherwise and has no running statistics has dropout."""
        if not any("running" in row for row in seen.rows):
            return "dropout is off"
        return "normalizers use running statistics that do not follow, and dropout, where there is any, is off"


class StatisticsMomentum(Setting):
    """A momentum of running statistics that keeps all or nothing."""

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Read the momentum of every batch normalization that updates its statistics."""
        odd = {}
        for row, place in enumerate(self._places):
            momentum = seen.facts.of(row).momentum
            if momentum is not None and (momentum == 0.0 or momentum >= STATISTICS_MOMENTUM):
                odd[place.name] = momentum
        if odd:
            name, momentum = next(iter(odd.items()))
            how = "never move" if momentum == 0.0 else "are those of the last batch alone"
            sentence = (
                f"{shortened_names(list(odd), SHOWN)}: its momentum is {momentum:g}, so the running statistics {how}, "
                "and evaluation will use them."
            )
            advice = (
                "Set the momentum of batch normalization to about 0.1 (torch counts what is new, not what is kept)."
            )
            yield Alarm(seen.step, "batchnorm_momentum", name, sentence, momentum, STATISTICS_MOMENTUM, advice, 1)


class EpsLost(Setting):
    """An ε that float16 rounds to 0: of Adam, or of a normalizer that computes in it."""

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare ε with the smallest number of float16."""
        halves = [row for row in range(len(self._places)) if seen.facts.of(row).dtype == torch.float16]
        eps = seen.facts.eps
        if eps is not None and eps < HALF_LEAST and any(seen.facts.of(row).learns for row in halves):
            yield self._say(seen, "", "the optimizer", eps, "give Adam eps=1e-4, or keep float32 weights to step")
            return
        for row, place in self._rows("norm").items():
            eps = seen.rows[row].get("eps", 1.0)
            if eps < HALF_LEAST and seen.facts.of(row).foreign and (row in halves or (seen.half and halves)):
                yield self._say(seen, place.name, place.name, eps, "normalize in float32, or raise ε to 1e-5")
                return

    def _say(self, seen: Seen, layer: str, who: str, eps: float, advice: str) -> Alarm:
        sentence = (
            f"{who}: ε = {eps:.2g} is 0 in float16, whose smallest number is 6e-8: what it should keep from being "
            "divided by 0 is not kept."
        )
        advice = f"{advice[0].upper()}{advice[1:]}."
        return Alarm(seen.step, "eps_lost", layer, sentence, eps, HALF_LEAST, advice, 1)


class UpdateLost(Setting):
    """Steps that 8 or 11 bits of a half precision weight cannot take up."""

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare the step that rate and gradient make with half a unit in the last place of the weights."""
        share = self._middle(seen)
        going = seen.story.count == 0 or seen.story.mean > 0.3 * seen.story.start
        limit = ROUNDED if seen.facts.adaptive else ROUNDED_GUESS
        if share is None or share >= limit or seen.story.steady_for < 2 or not going:
            return
        dtype = next(str(f.dtype) for f in seen.facts.layers if f.dtype in LAST_PLACE).removeprefix("torch.")
        sentence = (
            f"updates are too small for {dtype}: the median weight's step is {share:.1%} of what its last digit can "
            "take up, so that most are rounded away."
        )
        advice = "Keep float32 weights for the optimizer (autocast instead of .to(bfloat16)), or raise the rate."
        yield Alarm(seen.step, "update_lost", "", sentence, share, limit, advice, 1)

    def _middle(self, seen: Seen) -> float | None:
        """The share of the layer with the middle one of all entries."""
        known = [
            (self._share(seen, row), math.prod(place.shape)) for row, place in self._rows("matrix", "conv").items()
        ]
        shares = sorted((share, count) for share, count in known if share is not None)
        left = sum(count for _, count in shares) / 2
        for share, count in shares:
            left -= count
            if left <= 0:
                return share
        return None

    def _share(self, seen: Seen, row: int) -> float | None:
        """Root mean square step over half a unit in the last place of the root mean square weight."""
        facts, numbers = seen.facts.of(row), seen.rows[row]
        unit, size = LAST_PLACE.get(facts.dtype), numbers.get("frobenius", 0.0)
        if unit is None or not facts.learns or not 0.0 < size < math.inf or seen.facts.adaptive is None:
            return None
        rate = max(seen.story.largest, numbers.get("rate", 0.0))
        if not rate or not numbers.get("gradient"):
            return None
        count = math.prod(self._places[row].shape)
        kept = 1.0 - min(numbers.get("momentum", 0.0), 0.9)
        step = rate * (math.sqrt(count) if seen.facts.adaptive else numbers["gradient"] / kept)
        return step / size / unit


class Squashed(Setting):
    """A loss that takes logits and is given what a softmax or a sigmoid has made."""

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Read it off the graph of the first loss."""
        if seen.facts.squashed is None:
            return
        end, made = seen.facts.squashed
        count = seen.facts.classes
        if end == "NllLoss":
            what = (
                f"the loss takes logarithms of probabilities and is given what a {made} makes, the numbers themselves"
            )
        else:
            what = f"the loss takes logits and is given what a {made} makes: it squashes them again, between 0 and 1"
        floor = math.log1p((count - 1) / math.e) if count > 1 else 0.0
        least = f", and its cross entropy over {count} classes cannot fall below {floor:.3g}"
        sentence = f"{what}. Its gradient is small{least if end == 'LogSoftmax' and count > 1 else ''}."
        advice = f"Give the loss the numbers in front of the {made}; the network may apply it where it is used."
        yield Alarm(seen.step, "squashed_logits", "", sentence, floor, 0.0, advice, 1)


class Summed(Setting):
    """A loss that was a mean and became a sum at the step at which it jumped."""

    each = True

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare the step at which its graph showed another reduction with that of the jump."""
        leap = seen.story.lately(seen.story.leap)
        if leap is None or leap.step != seen.story.summed:
            return
        sentence = (
            f"the loss is a sum from step {leap.step} on; up to then it was a mean. It went from {leap.before:.3g} at "
            f"step {leap.step - 1} to {leap.after:.3g}, and its gradient is that of the mean times the number of "
            "summands."
        )
        times = leap.after / leap.before if leap.before else math.inf
        yield Alarm(seen.step, "loss_reduction", "", sentence, times, LOSS_SUSPECT, MEAN_ADVICE, leap.step)


class RateFaded(Setting):
    """A learning rate that has come to nothing long before the end."""

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """See how long the rate has been next to nothing beside the largest."""
        story = seen.story
        if story.faded and story.rate is not None and story.low_since is not None:
            sentence = (
                f"the learning rate decayed to nothing: from {story.largest:.3g} to {story.rate:.2g}, below a "
                f"thousandth since step {story.low_since}, while the loss stands at {story.mean:.3g}."
            )
            advice = "Look at the schedule: one made for epochs may be stepped for each batch."
            share = story.rate / story.largest
            yield Alarm(seen.step, "rate_vanished", "", sentence, share, RATE_GONE, advice, story.low_since)


def remarks(seen: Seen, places: Sequence[Place]) -> Iterator[tuple[str, str]]:
    """What is worth a note and is no fault: a sentence, and its name, under which it is said once."""
    yield from _first_loss(seen)
    yield from _still_gains(seen, places)


def _first_loss(seen: Seen) -> Iterator[tuple[str, str]]:
    first, classes = seen.story.first, seen.facts.classes
    even = math.log(classes) if classes > 1 and seen.facts.entropy else math.inf
    if first > max(UNEVEN * even, even + UNEVEN):
        sentence = (
            f"the first loss, {first:.3g}, is {first / even:.3g} times what guessing evenly among {classes} classes "
            f"costs ({even:.3g}): its logits are large. Initialize the last layer smaller, or the embedding it shares "
            "its weight with, or what grows in front of it."
        )
        yield sentence, "first loss"


def _still_gains(seen: Seen, places: Sequence[Place]) -> Iterator[tuple[str, str]]:
    gains = [
        (place.name, numbers["update"], facts.dtype)
        for row, (place, numbers) in enumerate(zip(places, seen.rows, strict=False))
        if place.role == "norm" and (facts := seen.facts.of(row)).dtype in LAST_PLACE and facts.learns
        and numbers.get("gradient", 0.0) > 0.0 and "update" in numbers
    ]  # fmt: skip
    still = [name for name, update, _ in gains if update == 0.0]
    if 2 * len(still) > len(gains) and seen.story.rate and seen.story.steady_for >= START_READINGS:
        dtype = gains[0][2]
        sentence = (
            f"{shortened_names(still, SHOWN)}: at step {seen.step} γ did not move, in {len(still)} of {len(gains)} "
            f"normalizers. Their steps are rounded away: a γ of 1 in {str(dtype).removeprefix('torch.')} takes up none "
            f"below {LAST_PLACE[dtype]:.1g}. Keep float32 weights for the optimizer (autocast) if they are to learn."
        )
        yield sentence, "gains"
