"""What reaches a layer: gradients that are missing, dead units, gradients and activations that change with depth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from normgauge.monitor.sheet import Row
from normgauge.monitor.signs.settings import LAST_PLACE
from normgauge.monitor.signs.sign import Alarm, Place, Seen, Sign, Streak
from normgauge.monitor.thresholds import (
    BARE_ASKS,
    BARE_ROW,
    BARE_STEPS,
    DEEP,
    FADED,
    GATED,
    SQUASHED,
    START_READINGS,
    STILL_READINGS,
    THAW_STEPS,
    VANISHED,
)
from normgauge.render.numbers import shortened_names

SHOWN = 3  # most layers named in a sentence
LAST_FLOAT32 = 2.0**-25  # half a unit in the last place of float32, relative, just below a power of two
SQUASHING = ("Sigmoid", "Tanh")  # operations whose slope falls to 0 on both sides


class DeadUnits(Sign):
    """A layer of which nothing comes out: the weight behind it has no gradient, only its bias has."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._streak = Streak()

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Find a layer whose input is 0, and name the one in front."""
        rows = list(self._rows("matrix", "conv"))
        starved = next((k for k, row in enumerate(rows) if k and _starved(seen.rows[row])), None)
        fed = starved is not None and seen.facts.of(rows[starved]).trains
        count, began = self._streak.see(fed, seen.step)
        if starved is not None and count >= START_READINGS and seen.step > START_READINGS:
            name, behind = (self._places[rows[k]].name for k in (starved - 1, starved))
            sentence = (
                f"{name}: the units behind it are dead. The weight of {behind}, the next layer, gets a gradient of "
                f"exactly 0 and its bias does not: what {behind} is given is 0 for the whole batch."
            )
            advice = (
                "Lower the learning rate, or initialize the biases at 0 and the weights for ReLU; or use leaky ones."
            )
            yield Alarm(seen.step, "dead_relu", name, sentence, 0.0, 0.0, advice, began)


class NoGradient(Sign):
    """A layer that an optimizer holds and that gets no gradient, or one that has a gradient and does not move."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._bare, self._still, self._all = Streak(), Streak(), Streak()
        self._asks = self._asked = 0

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare every layer that should learn with the others."""
        measured = [row for row in range(len(self._places)) if "frobenius" in seen.rows[row]]  # a tied one is elsewhere
        rows = [row for row in measured if seen.facts.of(row).held and seen.facts.of(row).trains]
        slopes = {row: self._slope(seen, row) for row in rows}
        moving = any(seen.rows[row].get("update", 0.0) > 0.0 for row in rows)
        known = any("update" in seen.rows[row] for row in rows)
        some = max(slopes.values(), default=0.0) > 0.0
        for row in rows:
            if (
                some or known
            ):  # where none has a gradient and yet they move, gradients were cleared before they were read
                self._bare.see(slopes[row] == 0.0 and (some or not moving), seen.step, row)
            if known:
                still = slopes[row] > 0.0 and seen.rows[row].get("update", 1.0) == 0.0
                self._still.see(still and moving and self._should(seen, row), seen.step, row)
        for row in rows:
            if began := self._lasts(self._bare, seen, row, BARE_STEPS):
                yield self._without(seen, row, began)
                break
            if began := self._lasts(self._still, seen, row, self._patience(seen, row)):
                yield self._unmoved(seen, row, began)
                break
        if any("update" in row for row in seen.rows):
            yield from self._nothing(seen)

    def _lasts(self, streak: Streak, seen: Seen, row: int, steps: int, least: int = BARE_ROW) -> int | None:
        """The step since which a layer shows it, where that is for long and at steps one after the other.

        What is trained at every second or fifth step only has no gradient at others; so some in a row are asked for.
        """
        count, began = streak.now(row)
        if count < START_READINGS:
            return None
        if streak.longest(row) < least:
            if self._asks < BARE_ASKS:
                self._asks += seen.step > self._asked
                self._asked = seen.step
                seen.story.ask(seen.step + 1)
        elif seen.step - began >= steps:
            return began
        else:
            seen.story.ask(began + steps)
        return None

    def _should(self, seen: Seen, row: int) -> bool:
        """Whether a layer should move: not where the rate has faded, nor a gain that half precision cannot step."""
        half = seen.facts.of(row).dtype in LAST_PLACE
        return seen.story.low_since is None and not (half and self._places[row].role in ("norm", "vector"))

    def _patience(self, seen: Seen, row: int) -> int:
        """Steps to wait: a rate of 0 may be the start of a schedule that thaws layers one by one."""
        return THAW_STEPS if seen.rows[row].get("rate") == 0.0 else BARE_STEPS

    def _slope(self, seen: Seen, row: int) -> float:
        numbers = seen.rows[row]
        known = numbers.get("gradient", 0.0) + numbers.get("bias_gradient", 0.0)
        return known if math.isfinite(known) else 1.0

    def _without(self, seen: Seen, row: int, began: int) -> Alarm:
        name = self._places[row].name
        how = "it is exactly 0" if seen.facts.of(row).slope else "there is none"
        sentence = (
            f"{name}: it gets no gradient since step {began} ({how}), while other layers do, and the optimizer holds "
            "it."
        )
        advice = (
            "Look for detach(), no_grad(), .data or .item() on the way to the loss, and for a branch that is not used."
        )
        return Alarm(seen.step, "no_gradient", name, sentence, 0.0, 0.0, advice, began)

    def _unmoved(self, seen: Seen, row: int, began: int) -> Alarm:
        name, rate, dtype = self._named(seen, row), seen.rows[row].get("rate"), seen.facts.of(row).dtype
        place = self._places[row].name
        if dtype in LAST_PLACE and rate != 0.0:
            kind = str(dtype).removeprefix("torch.")
            sentence = (
                f"{name}: updates are too small for {kind}. Its weight has a gradient and has not moved since step "
                f"{began}: its steps are rounded away."
            )
            advice = "Keep float32 weights for the optimizer (autocast instead of converting them), or raise the rate."
            return Alarm(seen.step, "update_lost", place, sentence, 0.0, 0.0, advice, began)
        least = self._least_step(seen, row)
        if rate and rate < least:
            sentence = (
                f"{name}: the learning rate is too small for float32. It is {rate:.2g}, and so is a step of Adam; a "
                f"weight of this size takes up none below {least:.1g}, and has not moved since step {began}."
            )
            advice = "Raise the learning rate."
            return Alarm(seen.step, "rate_small", place, sentence, rate, least, advice, began)
        why = "" if rate is None else f" (its learning rate is {rate:.2g})"
        sentence = (
            f"{name}: it gets no update. Its weight has a gradient{why} and has not moved since step {began}, while "
            "others have."
        )
        advice = "Is the parameter the optimizer holds still the one of the layer, and can its precision take the step?"
        if rate == 0.0:
            advice = "Raise the learning rate of its parameter group, or freeze it (requires_grad_(False))."
        return Alarm(seen.step, "no_update", place, sentence, 0.0, 0.0, advice, began)

    def _named(self, seen: Seen, row: int) -> str:
        """The layer and others that stand still as long and have a rate of 0 as well, or as little."""
        began, rate = self._still.now(row)[1], seen.rows[row].get("rate")
        alike = [
            place.name for k, place in enumerate(self._places)
            if self._still.now(k)[0] >= START_READINGS and self._still.now(k)[1] <= began
            and seen.rows[k].get("rate") == rate
        ]  # fmt: skip
        return shortened_names(alike, SHOWN)

    def _least_step(self, seen: Seen, row: int) -> float:
        """The shortest step that most numbers of a float32 weight take up, where a step of Adam is known to be one."""
        count, size = math.prod(self._places[row].shape), seen.rows[row].get("frobenius", 0.0)
        plain = seen.facts.betas is not None and seen.facts.of(row).dtype == torch.float32 and count
        return LAST_FLOAT32 * size / math.sqrt(count) if plain else 0.0

    def _nothing(self, seen: Seen) -> Iterator[Alarm]:
        """Weights none of which moves, although they have gradients and the rate is not known to be 0."""
        known = zip(range(len(self._places)), seen.rows, strict=False)
        able = [
            row for k, row in known if row.get("gradient", 0.0) > 0.0 and "update" in row and seen.facts.of(k).trains
        ]
        still = bool(able) and seen.rate != 0.0 and all(row["update"] == 0.0 for row in able)
        count, _ = self._all.see(still, seen.step)
        if began := self._lasts(self._all, seen, 0, STILL_READINGS - 1, STILL_READINGS):
            sentence = f"there is no update: no weight moved in {count} readings, although there are gradients."
            advice = "Is optimizer.step() called, before monitor.step(), and does the optimizer hold these parameters?"
            yield Alarm(seen.step, "no_update", "", sentence, float(count), float(STILL_READINGS), advice, began)


class Vanishing(Sign):
    """Gradients that shrink from layer to layer: through sigmoids, or for want of normalizers."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self._streak = Streak()

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Compare the gradients of the first layers with those of the last."""
        rows = [
            row for row in self._rows("matrix", "conv") if seen.facts.of(row).learns and self._places[row].size > 0.0
        ]
        weights = self._ratio([seen.rows[row].get("gradient", 0.0) for row in rows])
        biases = self._ratio([x for row in rows if (x := seen.rows[row].get("bias_gradient", 0.0))])
        squashed, most = seen.facts.met(*SQUASHING), max(seen.facts.met(name) for name in SQUASHING)
        bare = not self._rows("norm") and len(rows) >= DEEP
        kind, share = "", min(weights, biases)
        gated = squashed - most > most / GATED  # gates have sigmoids and tanh, and let gradients past both
        if squashed >= SQUASHED and seen.story.stuck and not gated:
            yield self._stuck(seen, squashed)
            return
        if squashed >= 3 and share < (FADED if seen.story.stuck else VANISHED):
            kind = "vanishing_gradient"
        elif bare and (share < VANISHED or max(weights, biases) > 1 / VANISHED):
            kind = "no_normalizer"
        count, began = self._streak.see(bool(kind), seen.step)
        if count >= START_READINGS:
            yield self._say(seen, kind, rows, share if share < FADED else max(weights, biases), squashed, began)

    def _stuck(self, seen: Seen, squashed: int) -> Alarm:
        sentence = (
            f"the loss makes no progress in {seen.story.count} steps, and the pass goes through {squashed} sigmoids or "
            "tanh, each of which takes a part of the gradient: what lies far back vanishes (inferred)."
        )
        advice = "Use gates, ReLU or GELU, normalizers or skip connections; or go fewer steps back."
        first = next(iter(self._rows("matrix", "conv").values())).name
        return Alarm(seen.step, "vanishing_gradient", first, sentence, float(squashed), float(SQUASHED), advice, 1)

    def _ratio(self, slopes: Sequence[float]) -> float:
        """Geometric mean of the first third over that of the last; 1 where there are too few."""
        known = [math.log(slope) for slope in slopes if 0.0 < slope < math.inf]
        third = len(known) // 3
        if len(known) < 4 or len(known) < len(slopes):
            return 1.0
        return math.exp(max(-700.0, sum(known[:third]) / third - sum(known[-third:]) / third))

    def _say(self, seen: Seen, kind: str, rows: Sequence[int], share: float, squashed: int, began: int) -> Alarm:
        first, last = self._places[rows[0]].name, self._places[rows[-1]].name
        grow = "grow" if share > 1 else "shrink"
        if kind == "vanishing_gradient":
            what = f"the gradient vanishes through {squashed} sigmoids or tanh"
            advice = "Use ReLU or GELU, normalizers or skip connections."
        else:
            what = f"there is no normalizer anywhere in {len(rows)} layers"
            advice = "Add normalizers or skip connections, or initialize for the activation (He or Xavier)."
        sentence = (
            f"{what}: at step {seen.step} gradients {grow} {max(share, 1 / share):.1e} times from the last third of "
            f"the layers to the first (from {last} back to {first})."
        )
        layer = first if kind == "vanishing_gradient" else ""  # what the whole network lacks, no layer lacks
        limit = 1 / VANISHED if share > 1 else FADED if share >= VANISHED else VANISHED
        return Alarm(seen.step, kind, layer, sentence, share, limit, advice, began)


def _starved(numbers: Row) -> bool:
    return numbers.get("gradient") == 0.0 and numbers.get("bias_gradient", 0.0) > 0.0
