"""The incidents of a run: each a cause, when it began, where, what to do, and what followed from it, folded beneath."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from normgauge.core.store import Run
from normgauge.render.numbers import plural

FOLDED = 6  # consequences named in one line


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
        consequences: what followed, in a few words each.
        suspects: settings that were there before it, and showed while it lasted; likewise.
    """

    first: int
    last: int
    times: int
    alarm: str
    layer: str
    sentence: str
    advice: str = ""
    began: int = 0
    consequences: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()

    @property
    def cause(self) -> str:
        """Cause, layer and step in a few words.

        >>> Incident(9, 9, 1, "sigma_collapse", "3", "", began=7).cause
        'Sigma collapse in layer 3, since step 7'
        """
        where = f" in {layer_phrase(self.layer)}" if self.layer else ""
        words = self.alarm.replace("_", " ")
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
        sentence, advice = (str(record.get(name) or "") for name in ("sentence", "advice"))
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
            told = _consequence(record)
            together[key] = (
                replace(old, consequences=(*old.consequences, told))
                if record.get("set_at") is None
                else replace(old, suspects=(*old.suspects, told))
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
    both = (("What followed from it", incident.consequences), ("Suspects beside it", incident.suspects))
    return " ".join(_told(words, found) for words, found in both if found)


def _told(words: str, found: Sequence[str]) -> str:
    more = f"; {len(found) - FOLDED} more" if len(found) > FOLDED else ""
    return f"{words}: {'; '.join(found[:FOLDED])}{more}."


def _consequence(record: Mapping[str, Any]) -> str:
    layer = str(record.get("layer") or "")
    where = f" in {layer_phrase(layer)}" if layer else ""
    words = f"{str(record.get('alarm', '')).replace('_', ' ')}{where}"
    step, at = _step(record.get("step")), record.get("set_at")
    if at is None:
        return f"{words} at step {step:,}"
    return f"{words}, set {'since the start' if _step(at) <= 1 else f'at step {_step(at):,}'} (seen at step {step:,})"


def _step(value: object, otherwise: int = 0) -> int:
    return value if isinstance(value, int) and abs(value) < 2**53 else otherwise
