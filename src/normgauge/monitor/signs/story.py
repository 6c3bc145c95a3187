"""What is known of every step without measuring: its loss, its learning rate, its mode."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import cast

from normgauge.monitor.thresholds import (
    DECAY_GROSS,
    GAMMA_DECAY,
    GRADIENT_SURGED,
    LOSS_BACK,
    LOSS_EARLY,
    LOSS_FAR,
    LOSS_FELT,
    LOSS_GAIN,
    LOSS_HARM,
    LOSS_JOLTED,
    LOSS_LEFT,
    LOSS_LONG,
    LOSS_RELAPSED,
    LOSS_RISEN,
    LOSS_STUCK,
    LOSS_SUSPECT,
    LOSS_WINDOW,
    MEMORY,
    MODE_STEPS,
    RATE_GONE,
    RATE_GONE_SHARE,
    RATE_GONE_STEPS,
    RATE_JUMP,
    RATE_KEPT,
    RATE_RISES,
    SETTLED,
    STUCK_STEPS,
)


@dataclass(frozen=True, slots=True)
class Leap:
    """A number far above what it was at the step before, while the learning rate did not rise.

    Attributes:
        step: of the number.
        before, after: at the step before, and at this.
        read: the last step that was read before it.
        loss: of this step.
        rate: the learning rate, where it is known.
    """

    step: int
    before: float
    after: float
    read: int
    loss: float
    rate: float | None

    @property
    def unread(self) -> bool:
        """Whether the step before was not read, whose update this number shows."""
        return self.read < self.step - 1

    @property
    def kept(self) -> str:
        """What is said of the rate, where it is known."""
        return "" if self.rate is None else f", and the learning rate did not rise ({self.rate:.3g})"


class Story:
    """The losses and settings of a run so far; plain numbers, a few microseconds a step.

    Attributes:
        step: the last one noted.
        count: finite losses heard.
        first: the first loss.
        start: its size.
        signed: whether a loss was below 0: then it is no distance, and may rise as those of agents and critics do.
        mean: of the last losses.
        best: lowest mean so far.
        lost: step and value of the first loss that is not finite.
        first_rate, rate, largest: learning rate at first, now, and at most.
        jump: step, rate before and rate after, where it jumped above all before.
        read: the last step that was read.
        surge: of the norm of all gradients, between two steps that were read, while the loss was as before.
        leap: of the loss, where it has not come back since.
        reduction: of the loss, where it is seen.
        summed: the step at which a loss that was a mean became a sum, while it is one.
        eval_since: first of the steps in a row that ran in eval mode.
        low_since: first of the steps in a row whose rate is nothing beside the largest.
        wanted: whether something looks odd, so that the next step deserves a reading.
        everything: whether that reading must hold everything, attention logits too.
        urgent: whether the loss has just been lost, or has just left for good, so that this step is read at once.
    """

    def __init__(self) -> None:
        self.step = self.count = self._heard = self._rose = 0
        self.first, self.start, self.mean, self.best, self._early = 0.0, 0.0, 0.0, math.inf, 0.0
        self.signed, self._largest = False, 0.0
        self.lost: tuple[int, float] | None = None
        self.first_rate: float | None = None
        self.rate: float | None = None
        self.largest = 0.0
        self.jump: tuple[int, float, float] | None = None
        self.read, self._odd, self._raised = 0, -LOSS_WINDOW, 0  # the last steps that were so
        self.surge: Leap | None = None
        self.leap: Leap | None = None
        self._slopes: deque[float] = deque(maxlen=MEMORY)
        self._calm, self._rises = (math.inf, 0.0), 0  # mean and spread of the losses before that; rises in a row
        self.reduction, self.summed = "", cast(int | None, None)
        self._decays: dict[float, int] = {}  # since when so much of the weights is taken by each step
        self.eval_since: int | None = None
        self.low_since: int | None = None
        self.wanted = self.everything = self.urgent = self._risen = False
        self._asked: dict[int, bool] = {}
        self._recent: deque[float] = deque(maxlen=LOSS_WINDOW)
        self._long: deque[float] = deque(maxlen=LOSS_LONG)
        self._next_look, self._next_urgent, self._gap, self._stuck_look = 0, 0, 1, STUCK_STEPS

    def note(
        self,
        step: int,
        rate: float | None,
        training: bool | None = None,
        *,
        reduction: str = "",
        decay: float | None = None,
    ) -> None:
        """Take in the settings of a step."""
        self.step = step
        if step + 1 in self._asked:
            self._want(self._asked.pop(step + 1))
        if training is not None:
            self.eval_since = None if training else self.eval_since or step
            self.wanted |= not training and step - (self.eval_since or step) == MODE_STEPS - 1
        if reduction and reduction != self.reduction:
            self.summed = step if (self.reduction, reduction) == ("mean", "sum") else None
            self.reduction = reduction
        for limit in (GAMMA_DECAY, DECAY_GROSS):
            if decay is not None and decay > limit:
                self._decays.setdefault(limit, step)
            else:
                self._decays.pop(limit, None)
        if rate is None:
            return
        self.first_rate = rate if self.first_rate is None else self.first_rate
        if self.rate is not None and rate > RATE_KEPT * self.rate:
            self._raised = step
        self.rate = rate
        if rate > RATE_JUMP * self.largest > 0.0 and step > self._rose + SETTLED:
            self.jump, self.wanted = (step, self.largest, rate), True
            self._calm = (self.mean, pstdev(self._recent)) if self.count >= SETTLED else (math.inf, 0.0)
            self.ask(step + SETTLED)
        if rate > self.largest:
            self._rises = self._rises + 1 if step <= self._rose + SETTLED else 1
            self.largest, self._rose = rate, step
        low = rate < RATE_GONE * self.largest
        self.low_since = (self.low_since or step) if low else None
        self.wanted |= low and step - (self.low_since or step) == RATE_GONE_STEPS

    def ask(self, step: int, *, everything: bool = False) -> None:
        """Ask for a reading at this step, of attention logits too with ``everything``: a sign needs one more."""
        if step <= self.step + 1:  # the step that comes next
            self._want(everything)
        else:
            self._asked[step] = self._asked.get(step, False) or everything

    def _want(self, everything: bool) -> None:
        self.wanted, self.everything = True, self.everything or everything

    def hear(self, step: int, loss: float) -> None:
        """Take in the loss of a step; each step counts once."""
        if step <= self._heard:
            return
        near, self._heard = step == self._heard + 1, step
        if not math.isfinite(loss):
            self.urgent |= self.lost is None
            self.lost = self.lost or (step, loss)
            return
        self.lost = None
        self.count += 1
        if self.count == 1:
            self.first, self.start, self.mean = loss, abs(loss), abs(loss)
        self.signed |= loss < 0.0
        suspect = loss > LOSS_SUSPECT * max(self.start if self.count <= MEMORY else self.mean, 1e-9)
        if suspect and near and self._settled(step) and loss > LOSS_SUSPECT * self._recent[-1]:
            self.leap = Leap(step, self._recent[-1], loss, self.read, loss, self.rate)
        self._odd = step if suspect else self._odd
        self._recent.append(loss)
        self._long.append(loss)
        if self.leap is not None and step >= self.leap.step + LOSS_WINDOW:
            gone = sorted(self._recent)[LOSS_WINDOW // 2] < LOSS_BACK * self.leap.before
            self.leap = None if gone else self.leap
        self.mean += (loss - self.mean) / min(self.count, MEMORY)
        if self.count <= LOSS_EARLY:
            self._early, self._largest = self.mean, max(self._largest, abs(loss))
        if self.count >= SETTLED:
            self.best = min(self.best, self.mean)
        if suspect and step >= self._next_look:
            self.wanted, self._gap = True, min(2 * self._gap, 10 * MEMORY)
            self._next_look = step + self._gap
        risen, self._risen = self._risen, self.risen
        if self._risen and not risen and step >= self._next_urgent:
            self.wanted = self.urgent = True
            self._next_urgent = step + MEMORY
        if self.count >= self._stuck_look and self.stuck:
            self.wanted, self._stuck_look = True, 2 * self._stuck_look

    def feel(self, step: int, gradient: float | None, loss: float | None) -> None:
        """Take in the norm of all gradients at a reading, and the loss of its step."""
        near, self.read = step == self.read + 1, step
        if gradient is None or not math.isfinite(gradient):
            return
        calm = not self.signed and step - self._odd >= LOSS_WINDOW and step - self._raised > 1
        known = near and loss is not None and len(self._slopes) >= SETTLED
        if known and calm and gradient > GRADIENT_SURGED * max(self._slopes) > 0.0:
            self.surge = Leap(step, self._slopes[-1], gradient, step - 1, loss or 0.0, self.rate)
        self._slopes.append(gradient)

    def decayed_since(self, limit: float) -> int | None:
        """First of the steps in a row at which decay takes more than this, of any weight; None where none is known."""
        return self._decays.get(limit)

    def _settled(self, step: int) -> bool:
        """Whether loss and learning rate have been as usual for some steps."""
        early = self.count <= LOSS_EARLY or self.signed
        return not early and step - self._odd > LOSS_WINDOW and step - self._raised > SETTLED

    def lately(self, leap: Leap | None) -> Leap | None:
        """The leap, where it was in the last steps."""
        return leap if leap is not None and self.step - leap.step <= MEMORY else None

    @property
    def risen(self) -> bool:
        """Whether the loss has left where it was and does not come back; a spike that recovers is none."""
        return self.rise is not None

    @property
    def rise(self) -> tuple[float, float] | None:
        """Where the loss has left where it was for good: the loss that shows it, and what it had to exceed."""
        recent = list(self._recent)
        if len(recent) < 3:
            return None
        if self.signed:
            low, far = min(recent), LOSS_FAR * self._largest
            return (low, far) if len(recent) == LOSS_WINDOW and low > far else None
        doubled = LOSS_RISEN * self.start
        if self.count <= LOSS_EARLY and (middle := sorted(recent[-3:])[1]) > doubled:
            return (middle, doubled) if recent[-1] >= max(recent[-4:-1]) else None
        low, floor = min(recent), min(doubled, max(LOSS_RELAPSED * self.best, 0.5 * self.start))
        left = len(recent) == LOSS_WINDOW and low > floor > 0.0 and recent[-1] >= 0.7 * max(recent)
        return (low, floor) if left else None

    @property
    def jolt(self) -> tuple[float, float] | None:
        """Mean loss before the rate jumped and the median of the last three, where all came after it and are higher."""
        if self.jump is None or self.signed or not 3 <= self._heard - self.jump[0] <= MEMORY:
            return None
        (before, spread), now = self._calm, sorted(list(self._recent)[-3:])[1]
        return (before, now) if now - before > max(LOSS_JOLTED * before, 3.0 * spread) else None

    @property
    def latest(self) -> tuple[int, float]:
        """Step and value of the last loss heard."""
        return self.lost or (self._heard, self._recent[-1] if self._recent else math.nan)

    @property
    def rose(self) -> bool:
        """Whether one of the last losses was far above the first, as before a loss that is no number."""
        return bool(self._recent) and max(self._recent) > LOSS_RISEN * max(self.start, 1e-9)

    @property
    def stuck(self) -> bool:
        """Whether the loss has made no progress since the first steps."""
        return self.count >= STUCK_STEPS and self.mean >= LOSS_STUCK * self._early > 0.0

    @property
    def gains(self) -> bool:
        """Whether the last losses are clearly below the first."""
        last = sorted(list(self._recent)[-3:])
        return self.count > 1 and last[len(last) // 2] < self.first - LOSS_GAIN * self.start

    @property
    def falls(self) -> bool:
        """Whether the loss still falls: clearly below the first, and the last ones below those before, beyond noise."""
        if len(self._recent) < LOSS_WINDOW or self.lost is not None or not self.gains:
            return False
        if self.jump is not None and self._heard < self.jump[0] + LOSS_WINDOW:  # these were lost or won before it
            return False
        if self.mean <= self.best and _fell(list(self._recent)):
            return True
        return len(self._long) == LOSS_LONG and not self.worse and _fell(list(self._long))

    @property
    def worse(self) -> bool:
        """Whether the loss is off its best, or makes no progress, or is not given at all."""
        if self.lost is not None or self.stuck or (self.count == 0 and self.step > SETTLED):
            return True
        return self.mean - self.best > max(0.3 * abs(self.best), LOSS_FELT * self.start)

    @property
    def harmed(self) -> bool:
        """Whether long steps show in the loss: it rises at first, or is off its best later; or is not given."""
        if self.count <= LOSS_EARLY:
            last = sorted(list(self._recent)[-3:])
            rises = self.count >= 3 and last[1] > self.first + LOSS_HARM * self.start
            return rises or self.count == 0 or (self.count >= MEMORY and not self.gains)
        return self.worse

    @property
    def warmed(self) -> bool:
        """Whether the learning rate began well below its largest."""
        return self.first_rate is not None and self.first_rate < 0.5 * self.largest

    @property
    def rising(self) -> bool:
        """Whether the learning rate has risen since the first step, and still does: a jump is no such rise."""
        return self.warmed and self.steady_for <= 1 and self._rises >= RATE_RISES and self.step > SETTLED

    @property
    def rate_set(self) -> int:
        """Step at which the learning rate came to its largest: the first that was heard, where it never rose."""
        return max(self._rose, 1)

    @property
    def steady_for(self) -> int:
        """Steps since the learning rate last rose."""
        return self.step - self._rose

    @property
    def faded(self) -> bool:
        """Whether the learning rate has been next to nothing for long, and the loss had still a way to go."""
        if self.low_since is None or self.step - self.low_since < max(
            RATE_GONE_STEPS, RATE_GONE_SHARE * self.low_since
        ):
            return False
        return self.count == 0 or self.mean > LOSS_LEFT * self.start


def _fell(losses: Sequence[float]) -> bool:
    """Whether the later half lies below the earlier one, beyond noise."""
    half = len(losses) // 2
    return fmean(losses[:half]) - fmean(losses[half:]) > 0.5 * pstdev(losses)
