"""Why steps are too long: the first of a few rules that applies, since a high learning rate is only the last resort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from normgauge.monitor.signs.sign import Alarm, Place, Seen, is_cold
from normgauge.monitor.thresholds import DEEP, LOSS_BIG, LOSS_SUSPECT, MEMORY, TURN_FELT, TURN_GROSS, WARM_STEPS


@dataclass(frozen=True, slots=True)
class Why:
    """What shows that steps are too long.

    Attributes:
        said: in words.
        value: the number that gave it away.
        threshold: the number it crossed.
    """

    said: str
    value: float
    threshold: float


@dataclass(frozen=True, slots=True)
class Case:
    """Steps that are too long.

    Attributes:
        seen: the reading that shows it.
        places: the layers.
        early: largest of the first median relative steps.
        why: what shows it.
        began: the first of the readings in a row with long steps.
        usual: level of the median relative step before.
    """

    seen: Seen
    places: Sequence[Place]
    early: float
    why: Why
    began: int | None = None
    usual: float = 0.0

    @property
    def deep(self) -> int:
        """How many matrices and convolutions there are."""
        return sum(place.role in ("matrix", "conv") for place in self.places)

    @property
    def bare(self) -> bool:
        """Whether no layer is a normalizer."""
        return not any(place.role == "norm" for place in self.places)


MEAN_ADVICE = (
    'Use the mean (reduction="mean"), or divide the learning rate by the number of summands (of a sequence, all its '
    "tokens count; of an image, all its numbers)."
)

# cause, when, what it means, what to do
Rule = tuple[str, Callable[[Case], bool], Callable[[Case], str], str | Callable[[Case], str]]


def _jumped(case: Case) -> bool:
    jump = case.seen.story.jump
    return jump is not None and case.seen.step - jump[0] <= MEMORY


def _surged(case: Case) -> bool:
    return case.seen.story.lately(case.seen.story.surge) is not None


def _leapt(case: Case) -> bool:
    leap = case.seen.story.lately(case.seen.story.leap)
    return leap is not None and leap.unread and 0.0 < case.usual < TURN_FELT


def _surge(case: Case) -> str:
    surge = case.seen.story.surge
    assert surge is not None
    return (
        f"the gradient jumped: the norm of all gradients went from {surge.before:.3g} at step {surge.step - 1} to "
        f"{surge.after:.3g} at step {surge.step}, while the loss was {surge.loss:.3g}, no more than "
        f"{LOSS_SUSPECT:g} times its mean{surge.kept}"
    )


def _leap(case: Case) -> str:
    leap = case.seen.story.leap
    assert leap is not None
    return (
        f"the loss jumped from {leap.before:.3g} at step {leap.step - 1} to {leap.after:.3g} at step {leap.step}; the "
        f"steps read before moved the median layer by about {case.usual:.1%} of its norm{leap.kept}. No step between "
        f"{leap.read} and {leap.step} was read, so what broke it is not known"
    )


def _summed(case: Case) -> bool:
    facts, story = case.seen.facts, case.seen.story
    return (story.reduction or facts.reduction) == "sum" and not facts.adaptive


def _summed_since(summed: int | None) -> str:
    """Since when a loss is a sum, where it was a mean before."""
    return "" if summed is None else f" since step {summed} (a mean before)"


def _unscaled(case: Case) -> bool:
    facts = case.seen.facts  # a cross entropy has no targets that could be scaled
    return case.seen.story.start > LOSS_BIG and not facts.adaptive and not facts.classes


def _cold(case: Case) -> bool:
    early = case.seen.step <= WARM_STEPS or case.seen.story.stuck
    return is_cold(case.seen) and early and case.early < TURN_GROSS


def _since(case: Case) -> str:
    (at, before, after), rate = case.seen.story.jump or (0, 0.0, 0.0), case.seen.rate
    if rate is not None and rate < after / 2:
        again = f", and is {rate:.3g} at step {case.seen.step}"
        return f"the learning rate was too high: it went from {before:.3g} to {after:.3g} at step {at}{again}"
    return f"the learning rate is too high: it went from {before:.3g} to {after:.3g} at step {at}"


def _tenth(case: Case) -> str:
    rate = case.seen.rate
    return f"Try a tenth of it (it is {rate:.3g} at step {case.seen.step})." if rate else "Try a tenth of it."


RULES: tuple[Rule, ...] = (
    ("learning_rate", _jumped, _since, "Check the schedule."),
    (
        "gradient_jump",
        _surged,
        _surge,
        "Look at what multiplies the gradient from that step on (a loss scale that is not divided out, a sum in place "
        "of a mean, the weight of a term of the loss), and at its batch.",
    ),
    (
        "loss_jump",
        _leapt,
        _leap,
        "Read all steps (every=1): where the gradient jumps before the loss does, look at what multiplies it (a loss "
        "scale that is not divided out, a sum in place of a mean) and at that batch; else try a lower learning rate.",
    ),
    (
        "loss_reduction",
        _summed,
        lambda case: (
            f"the loss is a sum{_summed_since(case.seen.story.summed)}, and its gradient that of the mean times the "
            "number of summands"
        ),
        MEAN_ADVICE,
    ),
    (
        "data_scale",
        _unscaled,
        lambda case: (
            "the data are not normalized, or what the network makes of them is far too large (inferred): the loss "
            f"began at {case.seen.story.start:.3g}"
        ),
        "Scale the targets (subtract their mean, divide by their standard deviation); look at the first outputs.",
    ),
    (
        "no_warmup",
        _cold,
        lambda case: (
            "there is no warm-up: the learning rate is full from the first step on, and too high for the "
            "first ones of Adam and attention"
        ),
        "Let the learning rate rise over the first hundreds of steps, or lower it.",
    ),
    (
        "no_normalizer",
        lambda case: case.bare and case.deep >= DEEP and case.early < TURN_GROSS,
        lambda case: f"there is no normalizer anywhere in {case.deep} layers",
        "Add normalizers, or lower the learning rate and scale the residual branches.",
    ),
    (
        "learning_rate",
        lambda case: True,
        lambda case: (
            "the learning rate is too high"
            + (", and no normalizer holds the activations" if case.bare and case.deep >= DEEP else "")
        ),
        _tenth,
    ),
)


def blame(case: Case) -> Alarm:
    """The alarm about steps that are too long, by the first rule that applies."""
    kind, _, means, advice = next(rule for rule in RULES if rule[1](case))
    advice = advice if isinstance(advice, str) else advice(case)
    story = case.seen.story
    leap = {"gradient_jump": story.surge, "loss_jump": story.leap}.get(kind)
    began = story.jump[0] if _jumped(case) and story.jump else case.began if leap is None else leap.step
    if kind == "loss_reduction" and story.summed is not None:
        began = story.summed
    sentence = f"{means(case)}; {case.why.said}."
    return Alarm(case.seen.step, kind, "", sentence, case.why.value, case.why.threshold, advice, began)
