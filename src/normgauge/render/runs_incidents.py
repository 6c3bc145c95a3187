"""The incidents of a run: each a cause, when it began, where, what to do, and what followed from it, folded beneath."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from normgauge.core.store import Run
from normgauge.render.numbers import plural

FOLDED = 6  # consequences named in one line

SAID = {
    "nan_input": "a sample, or what is made of it, not finite"
}  # alarms whose names say something else than is meant


@dataclass(frozen=True, slots=True)
class Followed:
    """What followed from a cause, or stood beside it.

    Attributes:
        step: at which it was seen.
        alarm: what it would have been called by itself.
        layer: where; empty for the whole network.
        sentence: what was measured.
        set_at: of a setting, the step at which it was set.
    """

    step: int
    alarm: str
    layer: str
    sentence: str
    set_at: int | None = None

    @property
    def words(self) -> str:
        """What, where and when.

        >>> Followed(9, "no_warmup", "", "", set_at=1).words
        'no warmup, set since the start (seen at step 9)'
        """
        words = f"{self.alarm.replace('_', ' ')}{f' in {layer_phrase(self.layer)}' if self.layer else ''}"
        if self.set_at is None:
            return f"{words} at step {self.step:,}"
        since = "since the start" if self.set_at <= 1 else f"at step {self.set_at:,}"
        return f"{words}, set {since} (seen at step {self.step:,})"

    @property
    def short(self) -> str:
        """What and when, where the layer stands beside it."""
        return f"{self.alarm} followed at step {self.step:,}"

    @property
    def told(self) -> str:
        """The same with what was measured."""
        return f"{self.words}: {self.sentence}" if self.sentence else self.words


@dataclass(frozen=True, slots=True)
class Incident:
    """Alarms of one cause at one layer.

    Attributes:
        first: the step at which the first of them was seen.
        last: the step of the last.
        times: how many.
        alarm: its cause.
        layer: where; empty for the whole network.
        sentence: what the first said.
        advice: what to do; empty where the sentence says it.
        began: the step at which it began.
        followed: what followed.
        beside: settings that were there before it, and showed while it lasted.
    """

    first: int
    last: int
    times: int
    alarm: str
    layer: str
    sentence: str
    advice: str = ""
    began: int = 0
    followed: tuple[Followed, ...] = ()
    beside: tuple[Followed, ...] = ()

    @property
    def consequences(self) -> list[str]:
        """What followed, each with what was measured."""
        return [one.told for one in self.followed]

    @property
    def suspects(self) -> list[str]:
        """The settings beside it, likewise."""
        return [one.told for one in self.beside]

    @property
    def cause(self) -> str:
        """Cause, layer and step in a few words.

        >>> Incident(9, 9, 1, "sigma_collapse", "3", "", began=7).cause
        'Sigma collapse in layer 3, since step 7'
        """
        where = f" in {layer_phrase(self.layer)}" if self.layer else ""
        words = SAID.get(self.alarm) or self.alarm.replace("_", " ")
        return f"{words[:1].upper()}{words[1:]}{where}, since step {self.began:,}"


def layer_phrase(layer: str) -> str:
    """A layer in a sentence: one that is only a number, as in ``nn.Sequential``, needs a word in front.

    >>> layer_phrase("3"), layer_phrase("blocks.3")
    ('layer 3', 'blocks.3')
    """
    return f"layer {layer}" if layer.isdecimal() else layer


def run_incidents(run: Run) -> list[Incident]:
    """The alarms, those of one cause at one layer together, in the order in which they were seen."""
    together: dict[tuple[str, str], Incident] = {}
    causes: dict[tuple[str, int], tuple[str, str]] = {}
    for record in run.alarms:
        step = _step(record.get("step"))
        key = (str(record.get("alarm", "alarm")), str(record.get("layer") or ""))
        causes.setdefault((key[0], step), key)
        old = together.get(key)
        sentence, advice = _sentence(record, key[1]), str(record.get("advice") or "")
        began = min(_step(record.get("began"), step), step)
        together[key] = (
            Incident(step, step, 1, *key, sentence, advice, began)
            if old is None
            else replace(old, last=max(step, old.last), times=old.times + 1)
        )
    for record in run.consequences:
        key = causes.get((str(record.get("cause")), _step(record.get("cause_step"))), ("", ""))
        if key in together:  # of a cause whose line is lost there is nothing to say it of
            old = together[key]
            told = _followed(record)
            together[key] = (
                replace(old, followed=(*old.followed, told))
                if told.set_at is None
                else replace(old, beside=(*old.beside, told))
            )
    return sorted(together.values(), key=lambda incident: incident.first)


def incident_sentence(incidents: Sequence[Incident]) -> str:
    """The first incident: its cause, when it began, where, what was seen and what to do; then how many more."""
    first = incidents[0]
    said = " ".join(part.rstrip(". ") + "." for part in (first.sentence, first.advice) if part.strip())
    if len(incidents) == 1:
        return f"{first.cause}: {said}"
    layers = list(dict.fromkeys(layer_phrase(i.layer) for i in incidents[1:] if i.layer not in ("", first.layer)))
    named = f", in {', '.join(layers[:3])}{' and others' if len(layers) > 3 else ''}" if layers else ""
    return f"{first.cause}: {said} Later {plural(len(incidents) - 1, 'more incident')}{named}."


def followed_sentence(incident: Incident) -> str:
    """What followed from the cause, and settings that are suspects beside it; empty where there is neither."""
    both = (("What followed from it", incident.followed), ("Suspects beside it", incident.beside))
    return " ".join(_told(words, [one.words for one in found]) for words, found in both if found)


def _told(words: str, found: Sequence[str]) -> str:
    more = f"; {len(found) - FOLDED} more" if len(found) > FOLDED else ""
    return f"{words}: {'; '.join(found[:FOLDED])}{more}."


def _followed(record: Mapping[str, Any]) -> Followed:
    layer, at = str(record.get("layer") or ""), record.get("set_at")
    set_at = None if at is None else _step(at)
    return Followed(_step(record.get("step")), str(record.get("alarm", "")), layer, _sentence(record, layer), set_at)


def _sentence(record: Mapping[str, Any], layer: str) -> str:
    """What a record says; the layer stands beside it wherever it is shown, and is not named again."""
    said = str(record.get("sentence") or "")
    return said.removeprefix(f"{layer}: ") if layer else said


def _step(value: object, otherwise: int = 0) -> int:
    return value if isinstance(value, int) and abs(value) < 2**53 else otherwise
