"""Decides which numbers of a run deserve an alarm, and which follow from one that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from normgauge.monitor.signs.broken import BrokenNumbers, BrokenSample
from normgauge.monitor.signs.data import DataScale, LabelNoise
from normgauge.monitor.signs.decay import CoupledDecay, WeightDecay
from normgauge.monitor.signs.flow import DeadUnits, NoGradient, Vanishing
from normgauge.monitor.signs.normalizers import Epsilon, Gains, MissingNormalizer, SigmaShift, StaleStatistics
from normgauge.monitor.signs.rate import EffectiveRate, LearningRate, Momentum, SecondBeta, TooSmall
from normgauge.monitor.signs.settings import (
    EpsLost,
    EvalMode,
    NotInOptimizer,
    RateFaded,
    Squashed,
    StatisticsMomentum,
    SteppedTwice,
    Summed,
    UpdateLost,
    remarks,
)
from normgauge.monitor.signs.sign import Alarm, Consequence, Place, Seen, Sign
from normgauge.monitor.signs.story import Story
from normgauge.monitor.signs.transformers import Attention, Stream
from normgauge.monitor.signs.weights import Capacity, Gradients, RateApart, WeightScale
from normgauge.monitor.thresholds import FOLDED_STEPS, QUIET

# In the order in which they are asked: the first that shows is the cause, and what comes after it may follow from it
SIGNS: tuple[type[Sign], ...] = (
    BrokenSample, Summed, Squashed, EpsLost, NotInOptimizer, SteppedTwice, EvalMode, StatisticsMomentum, DataScale,
    Momentum, SecondBeta, RateFaded, UpdateLost, CoupledDecay, WeightDecay, RateApart,
    MissingNormalizer, WeightScale, Epsilon, DeadUnits, Stream, Vanishing, LearningRate, Attention, BrokenNumbers,
    Gains, StaleStatistics, NoGradient, TooSmall, LabelNoise,
    SigmaShift, EffectiveRate, Gradients, Capacity,
)  # fmt: skip

# What is read as a setting in the end: it stands as it was set, so it follows from nothing that was measured later
RATES = frozenset({"learning_rate", "no_warmup", "rate_small"})
WIRED = frozenset(
    {"loss_reduction", "data_scale", "no_normalizer", "missing_normalizer", "weight_decay", "coupled_decay"}
)

# What began within one step, at a rate that did not rise
LEAPS = frozenset({"gradient_jump", "loss_jump"})

# What may be left alone as long as the loss falls: numbers that grow, and no mistake that stands by itself
WATCHED = frozenset({"attention_growth", "residual_growth", "no_warmup", "learning_rate"})

Said = Alarm | Consequence


@dataclass(slots=True)
class Incident:
    """A cause, and what followed from it.

    Attributes:
        alarm: the cause.
        kinds: of the alarms that were said of it, its own too.
        reading, shown: number and step of the last reading that showed a sign of it.
        step: of the last thing that was new.
    """

    alarm: Alarm
    kinds: set[str]
    reading: int
    shown: int
    step: int


class AlarmWatch:
    """Looks at every reading and remembers what it needs of the past; plain numbers only.

    One incident is one alarm, its cause. While it lasts, what may follow from it is its consequence, and each kind is
    said once. It is over when nothing showed for ``QUIET`` readings and ``FOLDED_STEPS`` steps.

    Args:
        places: the layers, in the order of the rows.
        story: of the steps so far.

    Attributes:
        story: of every step, to be told of each.
    """

    def __init__(self, places: Sequence[Place], story: Story | None = None) -> None:
        self.story = Story() if story is None else story
        self._places = places
        self._signs = [sign(places) for sign in SIGNS]
        self._each = [sign for sign in self._signs if sign.each]
        self._incidents: list[Incident] = []
        self._readings = 0

    def observe(self, seen: Seen, *, whole: bool = True) -> list[Said]:
        """Take in one reading; returns what is new: causes of incidents, and consequences of known ones.

        Args:
            seen: the reading.
            whole: whether all signs are asked: where every step is read, most learn nothing new at each.
        """
        self._readings += whole
        for at, loss in seen.losses:
            self.story.hear(at, loss)
        if self.story.step < seen.step:
            self.story.note(seen.step, seen.rate)
        self.story.feel(seen.step, seen.totals.get("gradient"), dict(seen.losses).get(seen.step))
        seen = seen if seen.story is self.story else replace(seen, story=self.story)
        self._incidents = [x for x in self._incidents if not self._over(x, seen.step)]
        found: list[Said] = []
        for sign in self._signs if whole else self._each:
            for alarm in sign.look(seen):
                found += self._take(sign, alarm, seen)
        if self.story.risen or self.story.lost:  # the trouble goes on, whatever the signs say of it
            for incident in self._incidents:
                incident.reading, incident.shown, incident.step = self._readings, seen.step, seen.step
        return found

    def remarks(self, seen: Seen) -> Iterator[tuple[str, str]]:
        """What is worth a note at this reading, and the name under which it is said once."""
        return remarks(replace(seen, story=self.story), self._places)

    def _over(self, incident: Incident, step: int) -> bool:
        return self._readings - incident.reading > QUIET and step - incident.shown > FOLDED_STEPS

    def _take(self, sign: Sign, alarm: Alarm, seen: Seen) -> list[Said]:
        """What is to be said of a sign that shows."""
        known = next((x for x in self._incidents if alarm.alarm in x.kinds), None)
        if known is not None:
            known.reading, known.shown = self._readings, alarm.step
            return []
        if sign.rank == "symptom" and not self.story.worse:
            return []
        cause = None if sign.rank == "setting" else self._explaining(alarm)
        if cause is None:
            alarm = self._weighed(self._unread(alarm, sign), seen)
            self._incidents.append(Incident(alarm, {alarm.alarm}, self._readings, alarm.step, alarm.step))
            return [alarm]
        cause.kinds.add(alarm.alarm)
        cause.reading, cause.shown, cause.step = self._readings, alarm.step, alarm.step
        if alarm.alarm in (
            "label_noise",
            "batch_change",
        ):  # what is left where nothing else is known; here something is
            return []
        since = cause.alarm
        if alarm.alarm in RATES and self._leapt(since):
            return []  # a rate that stayed is no suspect for what one step broke
        stands = self.story.rate_set if alarm.alarm in RATES else alarm.began or 1 if alarm.alarm in WIRED else None
        return [Consequence(alarm.step, alarm.alarm, alarm.layer, alarm.sentence, since.alarm, since.step, stands)]

    def _leapt(self, cause: Alarm) -> bool:
        """Whether this began within one step, and no jump of the rate came at it or after it."""
        began, jump = cause.began or cause.step, self.story.jump
        leapt = cause.alarm in LEAPS or (cause.alarm == "loss_reduction" and began == self.story.summed)
        return leapt and not (jump is not None and jump[0] >= began)

    def _unread(self, alarm: Alarm, sign: Sign) -> Alarm:
        """The alarm; after a loss that leapt where no step was read, what was inferred may all follow from that."""
        leap = self.story.leap
        inferred = alarm.alarm in WATCHED or sign.rank == "symptom"
        if leap is None or not leap.unread or not inferred or alarm.step - leap.step > FOLDED_STEPS:
            return alarm
        first = (
            f"First look at what changed by step {leap.step} (batch, targets, loss and its scale): the loss went from "
            f"{leap.before:.3g} to {leap.after:.3g} there, in one step, and none was read between {leap.read} and it; "
            "every=1 reads all. Where nothing changed:"
        )
        return replace(alarm, advice=f"{first} {alarm.advice[:1].lower()}{alarm.advice[1:]}")

    def _weighed(self, alarm: Alarm, seen: Seen) -> Alarm:
        """The alarm; while the loss falls, lowering a rate may make things worse, and so it says to wait first."""
        if alarm.alarm not in WATCHED:
            return alarm
        if self.story.rising:
            rates = f"from {self.story.first_rate:.3g} at first to {self.story.rate:.3g} at step {self.story.step}"
            own = self._own_rate(alarm.layer, seen)
            first = "The learning rate" if own is None else f"Its learning rate is {own:.3g}; that of the first group"
            alarm = replace(alarm, sentence=f"{alarm.sentence} {first} was still rising, {rates}.")
        if not self.story.falls:
            return alarm
        wait = f"At step {alarm.step} the loss still fell: watch it. Where it no longer falls:"
        return replace(alarm, advice=f"{wait} {alarm.advice[:1].lower()}{alarm.advice[1:]}")

    def _own_rate(self, layer: str, seen: Seen) -> float | None:
        """The rate of this layer, where others have another one and it is not that of the first group."""
        rates = {place.name: row["rate"] for place, row in zip(self._places, seen.rows, strict=False) if "rate" in row}
        own = rates.get(layer)
        return own if own != self.story.rate and len(set(rates.values())) > 1 else None

    def _explaining(self, alarm: Alarm) -> Incident | None:
        """The latest incident that this may follow from."""
        recent = [x for x in self._incidents if alarm.step - x.step <= FOLDED_STEPS]
        return recent[-1] if recent else None
