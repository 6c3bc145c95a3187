"""The gate of `diff`: whether two files of readings can be held against each other, and by how much a bound grew.

A gate that passes on what it cannot compare is worse than none. What two readings may differ in, and what is done:

  the file itself, the mode, what was asked for  refused, always: edited, without a digest, compared with itself
  samples, scopes, settings, version             refused, and may be allowed by a person who knows why
  how many inputs and outputs, which was taken   likewise: another output may have come before the measured one
  one of several inputs or outputs, not chosen   likewise: whatever the others do would pass
  both ends infinite, a bound that is no proof   likewise
  a new bound that holds on one path alone       likewise
  class, layers, names, weaker evidence          compared, and named in the line of the verdict
  parameters, buffers                            compared, and the verdict says whether they are the same
  slopes found, method, times                    compared: they do not enter the bound
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normgauge.cli.obstacles import ENDS, OF_ONE, PATH, Obstacle, chosen_ends, cure_sentence, obstacles_of
from normgauge.core import reference
from normgauge.core.bound import Evidence
from normgauge.core.compare import NO_WEIGHTS, same_weights, wiring
from normgauge.core.errors import ReadingError
from normgauge.core.first_notes import ends_of_several
from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10
from normgauge.render.numbers import plural, shortened_names
from normgauge.render.verdict import evidence_words

ALLOWED = tuple(sorted((*OF_ONE, "evidence", "infinite", "samples", "scopes", "settings", "version")))
SETTINGS = ("effort", "width", "balance")  # what else moves an upper bound; a search moves the lower end alone
WEAK = (Evidence.ESTIMATED, Evidence.OBSERVED)
NAMED = 3
SHORT = len("sha256:") + 8


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a gate says: whether it passed, and a sentence."""

    passed: bool
    sentence: str


class Gate:
    """Two files of readings, the first the committed one.

    Attributes:
        names: of the two files.
        pairs: the readings of both in each scope that both have.
    """

    def __init__(self, names: tuple[str, str], a: Sequence[Reading], b: Sequence[Reading]) -> None:
        self.names, self._sides = names, (a, b)
        self.pairs = [(x, y) for x in a for y in b if x.scope == y.scope]

    def judge(self, limit: float, allowed: Sequence[str]) -> Verdict:
        """Whether no bound grew by more than ``limit`` decades.

        Raises:
            ReadingError: where that cannot be told of these two.
        """
        for sentence in self._unfit():
            raise ReadingError(f"no gate is held: {sentence}")
        found = [*self._of_scopes(), *(item for pair in self.pairs for item in self._of_pair(*pair))]
        judged = [pair for pair in self.pairs if not _both_infinite(*pair)]
        refused = [item for item in found if item.word not in allowed]
        if refused or not judged:
            raise ReadingError(_refusal(refused if judged else [o._replace(word="") for o in refused or found]))
        grown = [(growth(*pair) > limit, growth(*pair), pair) for pair in judged]
        above, by, pair = max(grown, key=lambda item: item[:2])
        notes = [*dict.fromkeys(note for pair in judged for note in self._notes(*pair)), *(item.said for item in found)]
        told = f" ({'; '.join(dict.fromkeys(notes))})" if notes else ""
        return Verdict(
            not above, f"the upper bound, scope {pair[0].scope}, {growth_words(*pair, by)}; allowed are {limit:g}{told}"
        )

    def _unfit(self) -> Iterator[str]:
        """What makes two files unfit for any gate."""
        if _same_file(*self.names):
            yield f"{self.names[0]} and {self.names[1]} are one file; give the committed reading and the new one"
        for name, side in zip(self.names, self._sides, strict=True):
            if any(reading.edited for reading in side):
                yield f"{name} was edited after it was written; a change is accepted by copying a new reading over it"
            elif any(reading.undigested for reading in side):
                yield f"{name} is of schema 1, which has no digest that would show an edit; measure again"
            scopes = [str(reading.scope) for reading in side]
            for scope in dict.fromkeys(scope for scope in scopes if scopes.count(scope) > 1):
                yield f"{name} holds {scopes.count(scope)} readings in scope {scope}; keep the one that counts"

    def _of_scopes(self) -> Iterator[Obstacle]:
        first, second = ({str(reading.scope) for reading in side} for side in self._sides)
        for name, alone in zip(self.names, (first - second, second - first), strict=True):
            if alone:
                yield Obstacle("scopes", f"{name} alone has scope {', '.join(sorted(alone))}")

    def _of_pair(self, a: Reading, b: Reading) -> Iterator[Obstacle]:
        """What keeps two readings of one scope apart, and what is in the way of the new one alone."""
        unlike = [Obstacle(word, said) for word, said in self._differences(a, b)]
        yield from unlike
        for item in obstacles_of(b):
            if item.word not in {other.word for other in unlike}:
                place = f" in scope {b.scope}" * (item.word == PATH)
                yield item._replace(said=f"in {self.names[1]} {item.said}{place}")

    def _differences(self, a: Reading, b: Reading) -> Iterator[tuple[str, str]]:
        if a.mode != b.mode:
            yield "", self._unlike("was read in mode", a.mode, b.mode)
        for end in ENDS:
            if a.options.get(end) != b.options.get(end):
                yield "", self._unlike(f"has as its {end}", *(_shown(r.options.get(end)) for r in (a, b)))
            several = [_shown_ends(r, end) for r in (a, b)]
            if several[0] != several[1]:
                yield f"{end}s", self._unlike("has", *several)
        if a.scope.kind != "global" or a.together or b.together:
            yield from self._of_samples(a, b)
        for key in SETTINGS:
            if key in a.options and key in b.options and a.options[key] != b.options[key]:
                shown = _shown(a.options[key]), _shown(b.options[key])
                yield "settings", self._unlike(f"was measured with {key}", *shown)
        if a.version != b.version:
            yield "version", self._unlike("was measured by normgauge", a.version, b.version)
        if _both_infinite(a, b):
            parts = list(dict.fromkeys(f.name for f in (*b.unknown, *b.unbounded, *b.no_bound)))
            owing = f", owing to {shortened_names(parts, NAMED)}" if parts else ""
            said = f"neither has a finite bound in scope {b.scope}{owing}, so a smaller one must be compared"
            yield "infinite", said
        if b.evidence in WEAK and a.evidence != b.evidence:
            yield "evidence", self._unlike("has a bound that is", a.evidence, b.evidence)

    def _of_samples(self, a: Reading, b: Reading) -> Iterator[tuple[str, str]]:
        silent = [name for name, reading in zip(self.names, (a, b), strict=True) if not reading.batch]
        if silent:
            yield "samples", f"{' and '.join(silent)} {'does' if len(silent) == 1 else 'do'} not say on which samples"
        elif a.batch != b.batch:
            yield "samples", self._unlike("was measured on", _samples(a), _samples(b))

    def _unlike(self, verb: str, first: object, second: object) -> str:
        return f"{self.names[0]} {verb} {first}, {self.names[1]} {second}"

    def _notes(self, a: Reading, b: Reading) -> Iterator[str]:
        """What a gate compares and a person should know."""
        if a == b:
            yield "alike to the seconds they took: perhaps one measurement"
        elif (same := same_weights(a.weights, b.weights)) is not None:
            yield "same parameters and buffers" if same else "other weights"
        elif NO_WEIGHTS in (a.weights, b.weights):
            yield "no parameters or buffers to compare"
        if a.model != b.model:
            yield f"another model: {a.model} became {b.model}"
        rows = [{(layer.name, layer.kind): None for layer in reading.layers} for reading in (a, b)]
        others = list(dict.fromkeys(name for name, _ in (rows[0].keys() ^ rows[1].keys())))
        if others:
            yield f"other layers: {shortened_names(sorted(others), NAMED)}"
        elif wiring(a) != wiring(b):
            yield "the same layers wired in another way"
        yield from chosen_ends(b)
        if a.input_name != b.input_name:
            yield f"the input {a.input_name} is called {b.input_name}"
        if _weakness(a) != _weakness(b):
            yield f"the bound was {evidence_words(a)}, is {evidence_words(b)}"
        elif b.evidence in WEAK:
            yield f"the bound is {evidence_words(b)}, not proved"
        own = sorted({layer.rule for r in (a, b) for layer in r.layers if layer.rule.startswith("user.")})
        if own:
            yield f"as good as rules of your own: {shortened_names(own, NAMED)}"
        if a.scope.kind == "global" and a.batch != b.batch:
            yield "other samples, whose shape alone counts in scope global"


def _refusal(found: Sequence[Obstacle]) -> str:
    return f"no gate is held: {'; '.join(dict.fromkeys(item.said for item in found))}. {cure_sentence(found)}"


def growth(a: Reading, b: Reading) -> float:
    """By how many decades the upper bound grew; 0 between equal infinities."""
    return 0.0 if a.log_upper == b.log_upper else (b.log_upper - a.log_upper) / LN10


def growth_words(a: Reading, b: Reading, decades: float) -> str:
    """What became of the bound."""
    if math.isinf(decades):
        if a.log_upper == math.inf or b.log_upper == math.inf:
            return "has no finite value any more" if decades > 0 else "is finite now"
        return "was 0 and is not any more" if decades > 0 else "is 0 now"
    shown = f"{abs(decades):.4f}" if abs(decades) >= 5e-5 else "less than 0.0001"
    return f"{'grew' if decades > 0 else 'fell'} by {shown} decades" if decades else "stayed"


def _weakness(reading: Reading) -> tuple[Evidence, bool]:
    return reading.evidence, reading.path_dependent


def _both_infinite(a: Reading, b: Reading) -> bool:
    return a.log_upper == b.log_upper == math.inf


def _samples(reading: Reading) -> str:
    count = "a batch" if reading.together else plural(len(reading.samples), "sample")
    return f"{count} ({reading.batch[:SHORT]})"


def _shown_ends(reading: Reading, end: str) -> str:
    """Whether there were several inputs or outputs, and which was measured."""
    said = ends_of_several(reading.notes)[end]
    return f"several {end}s ({said})" if said else f"one {end}"


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def _same_file(a: str, b: str) -> bool:
    if a.startswith(reference.PREFIX) or b.startswith(reference.PREFIX):
        return a == b
    return Path(a).samefile(b)
