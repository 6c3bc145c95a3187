"""Claims by what they are called: an id, a place, a source, a verdict, or words of what is claimed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from normgauge.core.claim import Entry
from normgauge.core.errors import InputError
from normgauge.core.places import (
    JOINT,
    SPELLINGS,
    Asked,
    Place,
    asked_places,
    named_places,
    opens_with_place,
    told_numbers,
)
from normgauge.theory.claim import Claim
from normgauge.theory.sections import Section

Found = dict[str, Claim]
NAMING = ("lemma", "theorem", "corollary", "proposition", "remark", "definition", "figure")  # T.L1: Lemma 1
NORMS = re.compile(r"\b(batch|layer|group|instance|weight)[ -]?norm(?:alization|s)?\b")
NEAREST = 5  # names to offer for one that is not there


@dataclass(frozen=True, slots=True)
class Lookup:
    """Where claims are looked up.

    Attributes:
        claims: by their ids.
        sections: of the sources.
        about: what each source is, behind its name.
    """

    claims: Mapping[str, Claim]
    sections: Sequence[Section]
    about: Sequence[str]

    def find(self, names: Sequence[str]) -> list[Claim]:
        """The claims called by ``names``, each once; all where no name is given.

        Raises:
            InputError: for a name that nothing has, with what may be meant.
        """
        chosen: Found = {} if names else dict(self.claims)
        for name in names:
            chosen |= self._one(name)
        return list(chosen.values())

    def joined(self, words: Sequence[str]) -> list[str]:
        """Names out of words that lost their quotes: as many together as are called something.

        A number goes with a word before it that is called nothing: alone it is no name.
        """
        if not words:
            return []
        if len(words) > 1 and JOINT.fullmatch(f" {words[0]} "):
            return self.joined(words[1:])
        numbered = len(words) > 1 and words[0].isalpha() and re.fullmatch(r"\(?\d{1,3}(\.\d{1,2})*\)?,?", words[1])
        least = 2 if numbered and not self._called(words[0]) else 1
        most = next(n for n in range(len(words), 0, -1) if n == least or self._is_name(" ".join(words[:n])))
        return [" ".join(words[:most]), *self.joined(words[most:])]

    def _is_name(self, name: str) -> bool:
        return bool(asked_places(name) or self._called(name))

    def _one(self, name: str) -> Found:
        """What one name is called, or each of several that it joins.

        Raises:
            InputError: where nothing is called so.
        """
        if not name.strip():
            raise InputError("claim: expected a name, got an empty one; leave it out for all claims")
        if name.strip().isdecimal():
            raise InputError(f"claim: {name} alone is a number; 'Lemma {name}', '§{name}' or '({name})' is a place")
        if hits := self._called(name):
            return hits
        if asked := asked_places(name):
            return self._at_all(name, asked)
        parts = [part for part in JOINT.split(name) if part.strip()]
        if len(parts) > 1 and any(map(self._is_name, parts)):
            return {k: claim for part in parts for k, claim in self._one(part).items()}
        raise InputError(_unknown(name, self._meant(name)))

    def _called(self, name: str) -> Found:
        """What is called so and is no place."""
        lower = name.strip(" ,;").lower()
        if not lower:
            return {}
        for named in (
            lambda k, c: k.lower() == lower or c.entry.error == lower,
            lambda k, c: f"{k}.".lower().startswith(f"{lower}."),
            lambda k, c: k.lower().startswith(lower),
            lambda k, c: re.match(r"[a-z]\d", lower) is not None and _below(k, lower),
            lambda k, c: c.entry.verdict == lower,
            lambda k, c: _names(c.entry.source, lower),
        ):
            if hits := self._where(named):
                return hits
        if asked_places(name):
            return {}
        if at := self._where(lambda k, c: _names(c.entry.at, lower)):
            return at | self._companions(at) | self._worded(lower)
        # words of a title are no name of all its claims, where some have them
        titled = [section for section in self.sections if _names(section.title, lower)]
        return (
            self._worded(lower)
            or self._where(lambda k, c: _names(self._title(c.entry), lower))
            or self._where(lambda k, c: any(section.has(c.entry) for section in titled))
        )

    def _where(self, holds: Callable[[str, Claim], bool]) -> Found:
        return {k: c for k, c in self.claims.items() if holds(k, c)}

    def _worded(self, name: str) -> Found:
        return self._where(lambda k, c: _names(_words(c.entry), name))

    def _title(self, entry: Entry) -> str:
        return f"{entry.source} {' '.join(about for about in self.about if about.startswith(f'{entry.source}:'))}"

    def _companions(self, at: Found) -> Found:
        """What is wrong by an error of these."""
        roots = {c.entry.error for c in at.values()} - {""}
        return self._where(lambda k, c: c.entry.error in roots)

    def _at_all(self, name: str, asked: Sequence[Asked]) -> Found:
        """What is at each of these places.

        Raises:
            InputError: where nothing is at one of them.
        """
        found: Found = {}
        for one in asked:
            hits = self._at(one)
            if not hits:
                raise InputError(_unknown(name, self._there_is(one)))
            found |= hits
        return found

    def _at(self, asked: Asked) -> Found:
        """What is at a place, that itself first; what has the id of the place; what is wrong by an error of theirs."""
        sections = [s for s in self.sections if any(n.under(p) for n in s.numbers for p in asked.places)]
        stands = {k: named_places(c.entry.at) for k, c in self.claims.items()}
        at = self._where(
            lambda k, c: (
                any(place.under(p) for place in stands[k] for p in asked.places)
                or any(section.has(c.entry) for section in sections)
            )
        )
        first = {
            k: c
            for k, c in at.items()
            if opens_with_place(c.entry.at) and any(stands[k][0].under(p) for p in asked.places)
        }
        found = first | at
        if asked.parts:
            found = {k: c for k, c in found.items() if not set(stands[k]).isdisjoint(asked.parts)}
        else:
            initials = [place.kind[0] + place.number for place in asked.places if place.kind in NAMING]
            found |= self._where(lambda k, c: any(_below(k, initial) for initial in initials))
        return found | self._companions(found)

    def _places(self) -> Iterable[Place]:
        """All that there are."""
        for claim in self.claims.values():
            yield from named_places(claim.entry.at)
        for section in self.sections:
            yield from section.numbers

    def _there_is(self, asked: Asked) -> str:
        """What there is where something was asked for."""
        place = asked.places[0]
        if asked.parts and (here := self._at(Asked(asked.places))):
            return f"at {Asked(asked.places)} there is {', '.join(here)}"
        numbered = [s for s in self.sections if place in s.numbers]
        if numbered:
            return "; ".join(f"{s.source} has no claim in '{s.title}': {s.empty or 'nothing is run'}" for s in numbered)
        return self._kind(place.kind)

    def _kind(self, kind: str) -> str:
        there = [place for place in self._places() if place.kind == kind]
        if kind == "section":
            letters = [place for place in there if place.number[0].isalpha()]
            return f"there is §{told_numbers([p for p in there if p not in letters])}; Appendix {told_numbers(letters)}"
        return f"there is {kind.capitalize()} {told_numbers(there)}" if there else f"no claim stands at a {kind}"

    def _meant(self, name: str) -> str:
        """What somebody may have meant: a place that is there, or the nearest ids or words."""
        told = re.fullmatch(r"([^\W\d]+)\.?(?: *(\(?\d.*))?", name.strip())
        near = difflib.get_close_matches(told[1].lower(), SPELLINGS, n=1, cutoff=0.7) if told else []
        if told and near:
            there = asked_places(place := f"{near[0].capitalize()} {told[2]}") if told[2] else []
            return f"did you mean {place!r}?" if there and all(map(self._at, there)) else self._kind(near[0])
        if inside := [str(place) for place in named_places(name) if self._at(Asked((place,)))]:
            return f"did you mean {inside[0]!r}?"
        if re.search(r"[\d.]", name):
            known = {k.upper(): k for k in self.claims}
            ids = difflib.get_close_matches(name.upper(), known, n=NEAREST, cutoff=0.3)
            return f"nearest: {', '.join(k for k in self.claims if k.upper() in ids) or 'none'}"
        return self._nearest_words(name)

    def _nearest_words(self, name: str) -> str:
        """For each word that no claim has those that are the most alike."""
        known = {w for c in self.claims.values() for w in re.findall(r"[^\W\d_]{3,}", _spelled(_words(c.entry)))}
        lost = [word for word in re.findall(r"\w+", _spelled(name)) if word not in known]
        near = [w for word in lost for w in difflib.get_close_matches(word, known, n=NEAREST, cutoff=0.7)]
        return f"nearest: {', '.join(dict.fromkeys(near)) or 'none'}"


def _unknown(name: str, meant: str) -> str:
    expected = "an id such as T.L1, a place such as 'Lemma 1', or words that a claim has"
    return f"claim: expected {expected}, got {name!r}; {meant}"


def _below(claim: str, name: str) -> bool:
    """Whether an id begins so behind its letter, as T.T9 and T.T9.x do with T9."""
    return f"{claim}.".partition(".")[2].lower().startswith(f"{name}.".lower())


def _words(entry: Entry) -> str:
    return f"{entry.words} {entry.reading} {' '.join(entry.id.split('.')[1:])}"


def _names(text: str, words: str) -> bool:
    """Whether a text has these words, each whole."""
    return re.search(rf"(?<!\w){re.escape(_spelled(words))}(?!\w|\.\d)", _spelled(text)) is not None


def _spelled(text: str) -> str:
    """Lower case, and "batch normalization" as "batchnorm"."""
    return NORMS.sub(r"\1norm", text.lower())
