"""Claims by what they are called: ids and places, sources, verdicts, and words of what is claimed."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from normgauge.core.claim import Entry, Verdict
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
from normgauge.theory.wording import ASKING, FILLING, MARKS, has_words, read_plainly, spelled, words_of

Found = dict[str, Claim]
AT, WORDS, VERDICT, SOURCE = "at", "words", "verdict", "source"  # what a name may be
NAMING = ("lemma", "theorem", "corollary", "proposition", "remark", "definition", "figure")  # T.L1: Lemma 1
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

    def find(self, names: Sequence[str]) -> tuple[list[Claim], list[str]]:
        """The claims that have, of each kind that ``names`` ask for, one, and what else there is; all without a name.

        A question for a place is answered with all that is there, whatever verdict it asks about.

        Raises:
            InputError: for a name that nothing has, with what may be meant, and where no claim has all.
        """
        if not names:
            return list(self.claims.values()), []
        if not all(map(str.strip, names)):
            raise InputError("claim: expected a name, got an empty one; leave it out for all claims")
        text = read_plainly(" ".join(name for name in names if not isinstance(name, Verdict)))
        asked = self._read(text)
        if asked[AT] and ASKING.match(text):
            asked[VERDICT].clear()
        asked[VERDICT] += [name for name in names if isinstance(name, Verdict)]
        called: dict[str, Callable[[str], Found]] = {
            AT: lambda name: self._ids(name) or self._plural(name) or self._at_all(name, asked[SOURCE]),
            WORDS: lambda words: self._worded(spelled(words).split(), text),
            VERDICT: lambda name: self._where(lambda _, c: c.entry.verdict in _verdicts(name)),
            SOURCE: self._from,
        }
        parts = {" or ".join(asked[kind]): _united(map(called[kind], asked[kind])) for kind in called if asked[kind]}
        if not parts:
            raise InputError(_unknown(text, self._none()))
        found, verdicts = _shared(parts), " or ".join(asked[VERDICT])
        others = {name: part for name, part in parts.items() if name != verdicts}
        there = _shared(others) if verdicts and asked[AT] else found
        counts = Counter(c.entry.verdict for k, c in there.items() if k not in found)
        told = "; ".join(f"{verdict}: {count}" for verdict, count in counts.items())
        more = [f"{counts.total()} more at {', '.join(asked[AT])}: {told}"] if told else []
        return list(found.values()), [*more, *self._elsewhere(asked, found, there)]

    def _elsewhere(self, asked: Mapping[str, list[str]], found: Found, there: Found) -> Iterable[str]:
        """What belongs to the places that were asked for and stands elsewhere, each with its place."""
        places = [one for name in asked[AT] if not self._ids(name) for one in asked_places(name)]
        near = [
            c.entry for c in found.values() if places or any(has_words(c.entry.at, w.split()) for w in asked[WORDS])
        ]
        roots, sources = {e.error for e in near} - {""}, {c.entry.source for c in there.values()}
        same = self._where(lambda k, c: c.entry.error in roots and k not in there)
        ids = {} if asked[VERDICT] else _united(map(self._of_id, places))
        named = {k: c for k, c in ids.items() if k not in {**there, **same} and c.entry.source in sources}
        for why, claims in (("wrong by the same error", same), ("about it by their ids", named)):
            told = [f"{e.id} ({e.verdict}; {e.source}, {e.at})" for e in (c.entry for c in claims.values())]
            if told:
                yield f"Elsewhere, {why}: {'; '.join(told)}."

    def _read(self, text: str) -> dict[str, list[str]]:
        """The names of each kind in a sentence, each as long as it is one; words that nothing joins are one name."""
        asked: dict[str, list[str]] = {AT: [], WORDS: [], VERDICT: [], SOURCE: []}
        tokens, end = list(re.finditer(r"[^\s,;&]+", text)), 0
        while tokens:
            begin = tokens[0].start()
            names = [text[begin : token.end()].strip(MARKS) for token in tokens]
            kinds = [self._kind(name) for name in names]
            size = max((n for n, kind in enumerate(kinds) if kind != WORDS), default=0)
            if kinds[size] != WORDS:
                asked[kinds[size]].append(names[size])
            elif (word := names[0].strip("()")) and not (FILLING.fullmatch(word) or self._forename(tokens)):
                apart = not asked[WORDS] or JOINT.search(text, end, begin)
                asked[WORDS].append(word if apart else f"{asked[WORDS].pop()} {word}")
                end = tokens[0].end()
            del tokens[: size + 1]
        return asked

    def _kind(self, name: str) -> str:
        if asked_places(name) or self._ids(name) or self._plural(name):
            return AT
        return VERDICT if _verdicts(name) else SOURCE if self._from(name) else WORDS

    def _forename(self, tokens: Sequence[re.Match[str]]) -> bool:
        """Whether an initial or a name that nothing has stands in front of a source's."""
        word, *behind = (token[0].strip(MARKS) for token in tokens)
        if not behind or not re.fullmatch(r"[A-Z][a-z]*", word) or (len(word) > 1 and self._known(word)):
            return False
        return (len(behind[0]) > 1 and self._kind(behind[0]) == SOURCE) or self._forename(tokens[1:])

    def _known(self, word: str) -> bool:
        """Whether a claim has a word, or one near it."""
        near = difflib.get_close_matches(word.lower(), SPELLINGS, n=1, cutoff=0.7) or self._near(word)
        return bool(near or self._saying([word], titles=True))

    def _plural(self, name: str) -> Found:
        """What stands first of all at a place of this kind: "lemmas"."""
        kinds = {k for k, words in SPELLINGS.items() if name[-1:] in "sS" and re.fullmatch(words, name, re.IGNORECASE)}
        return self._where(lambda _, c: opens_with_place(c.entry.at) and named_places(c.entry.at)[0].kind in kinds)

    def _where(self, holds: Callable[[str, Claim], bool]) -> Found:
        return {k: c for k, c in self.claims.items() if holds(k, c)}

    def _ids(self, name: str) -> Found:
        """What has this id or error, or else an id that begins so, with or without its letter."""
        lower = name.lower()
        exact = self._where(lambda k, c: bool(name) and lower in (k.lower(), c.entry.error))
        if re.match(r"[a-z]\d", lower):
            return exact or self._where(lambda k, _: _below(k, lower))
        return exact or self._where(lambda k, _: "." in lower and k.lower().startswith(lower))

    def _from(self, name: str) -> Found:
        """What is of a source: by its letter, by how its name begins, or by a part of what is said about it."""
        lower = name.lower()
        called = {about.partition(":")[0] for about in self.about if lower in re.split(": |, ", about.lower())}
        return self._where(
            lambda k, c: (
                name == k[0] or c.entry.source in called or f"{c.entry.source} ".lower().startswith(f"{lower} ")
            )
        )

    def _saying(self, words: Sequence[str], titles: bool = False) -> Found:
        """What has all these words, itself or in the titles of its source and sections too."""
        return self._where(lambda _, c: has_words(words_of(c.entry) + titles * self._titles(c.entry), words))

    def _titles(self, entry: Entry) -> str:
        titles = [section.title for section in self.sections if section.has(entry)]
        return " ".join(titles + [about for about in self.about if about.startswith(f"{entry.source}:")])

    def _worded(self, words: Sequence[str], text: str) -> Found:
        """What has all these words; those of a title are no name of all that it is over, where some have them.

        Raises:
            InputError: where there is nothing.
        """
        if all(re.fullmatch(r"\d{1,3}", word) for word in words):
            there = dict.fromkeys(str(place) for place in self._places() if place.number == words[0])
            raise InputError(f"claim: {words[0]} alone is a number; there is {', '.join(there) or 'no place with it'}")
        if hits := self._saying(words) or self._saying(words, titles=True):
            return hits
        parts = {word: self._saying([word], titles=True) for word in words}
        if lost := [word for word, hits in parts.items() if not hits]:
            raise InputError(self._lost(lost[0], text))
        return _shared(parts)

    def _at_all(self, name: str, sources: Sequence[str]) -> Found:
        """What is at each of the places that a name asks for, in these sources where some are given.

        Raises:
            InputError: where nothing is at one of them.
        """
        claims = _united(map(self._from, sources)) if sources else self.claims
        own = {claim.entry.source for claim in claims.values()}
        inside = Lookup(claims, [section for section in self.sections if section.source in own], self.about)
        for one in asked_places(name):
            if not inside._at(one):
                within = f"in {' or '.join(sources)} ({len(claims)} claims) " if sources else ""
                raise InputError(_unknown(name, inside._there_is(one, within)))
        return _united(map(inside._at, asked_places(name)))

    def _at(self, asked: Asked) -> Found:
        """What is at a place, that itself first; where nothing is, what has the id of the place."""
        sections = [s for s in self.sections if any(n.under(p) for n in s.numbers for p in asked.places)]
        stands = {k: named_places(c.entry.at) for k, c in self.claims.items()}
        at = self._where(
            lambda k, c: (
                any(place.under(p) for place in stands[k] for p in asked.places)
                or any(section.has(c.entry) for section in sections)
            )
        )
        opening = {k for k in at if opens_with_place(at[k].entry.at) and any(map(stands[k][0].under, asked.places))}
        found = {k: at[k] for k in sorted(at, key=lambda k: k not in opening)}
        if asked.parts:
            return {k: c for k, c in found.items() if not set(stands[k]).isdisjoint(asked.parts)}
        return found or self._of_id(asked)

    def _of_id(self, asked: Asked) -> Found:
        """What has the id of a place, wherever it stands; of a part nothing."""
        places = () if asked.parts else asked.places
        initials = [place.kind[0] + place.number for place in places if place.kind in NAMING]
        return self._where(lambda k, c: any(_below(k, initial) for initial in initials))

    def _places(self) -> Iterable[Place]:
        """All that there are."""
        for claim in self.claims.values():
            yield from named_places(claim.entry.at)
        for section in self.sections:
            yield from section.numbers

    def _there_is(self, asked: Asked, within: str = "") -> str:
        """What there is where something was asked for, ``within`` some sources."""
        place = asked.places[0]
        if asked.parts and (here := self._at(Asked(asked.places))):
            return f"{within}at {Asked(asked.places)} there is {', '.join(here)}"
        numbered = [s for s in self.sections if place in s.numbers]
        if numbered:
            return "; ".join(f"{s.source} has no claim in '{s.title}': {s.empty or 'nothing is run'}" for s in numbered)
        return within + self._all_of(place.kind)

    def _all_of(self, kind: str) -> str:
        there = [place for place in self._places() if place.kind == kind]
        if kind == "section":
            letters = [place for place in there if place.number[0].isalpha()]
            return f"there is §{told_numbers([p for p in there if p not in letters])}; Appendix {told_numbers(letters)}"
        return f"there is {kind.capitalize()} {told_numbers(there)}" if there else f"no claim stands at a {kind}"

    def _lost(self, word: str, text: str) -> str:
        """What somebody may have meant by a word that nothing has: a place, or the nearest ids or words."""
        told = re.search(rf"{re.escape(word)}(?:\.? *(\(?\d[\d.]*\)?))?", text, re.IGNORECASE)
        name, number = (told[0].strip(MARKS), told[1]) if told else (word, None)
        if near := difflib.get_close_matches(word, SPELLINGS, n=1, cutoff=0.7):
            there = asked_places(place := f"{near[0].capitalize()} {number}")
            found = there and all(map(self._at, there))
            return _unknown(name, f"did you mean {place!r}?" if found else self._all_of(near[0]))
        if re.search(r"\w\.\w|\w\d", word):
            alike = difflib.get_close_matches(word, map(str.lower, self.claims), n=NEAREST, cutoff=0.3)
            nearest = [k for k in self.claims if k.lower() in alike]
        else:
            nearest = self._near(word)
        return _unknown(name, f"nearest: {', '.join(nearest)}" if nearest else self._none())

    def _near(self, word: str) -> list[str]:
        """The words of claims that are nearest to one."""
        said = " ".join(spelled(words_of(c.entry)) for c in self.claims.values())
        return difflib.get_close_matches(spelled(word), {*re.findall(r"[^\W\d_]{3,}", said)}, n=NEAREST, cutoff=0.7)

    def _none(self) -> str:
        return f"nearest: none; the sources are {', '.join(about.partition(':')[0] for about in self.about)}"


def _unknown(name: str, meant: str) -> str:
    expected = "an id such as T.L1, a place such as 'Lemma 1', or words that a claim has"
    return f"claim: expected {expected}, got {name!r}; {meant}"


def _united(found: Iterable[Found]) -> Found:
    return {k: claim for one in found for k, claim in one.items()}


def _shared(parts: Mapping[str, Found]) -> Found:
    """What is in all of them.

    Raises:
        InputError: where nothing is, with how many each part has.
    """
    first, *others = parts.values()
    if found := {k: claim for k, claim in first.items() if all(k in other for other in others)}:
        return found
    each = ", ".join(f"{name!r} alone has {len(part)}" for name, part in parts.items())
    raise InputError(f"claim: no claim is all of this at once: {each}")


def _verdicts(name: str) -> list[Verdict]:
    """The verdict that is written so, "withdrawn" without its author."""
    words = name.lower().replace("-", " ")
    return [verdict for verdict in Verdict if words in (verdict.replace("-", " "), verdict.partition(" by ")[0])]


def _below(claim: str, name: str) -> bool:
    """Whether an id begins so behind its letter, as T.T9 and T.T9.x do with T9."""
    return f"{claim}.".partition(".")[2].lower().startswith(f"{name}.".lower())
