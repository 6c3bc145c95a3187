"""Places in a text, such as "Lemma 1", "§4.2", "Eqs. (25)-(28)", "Corollaries 10 and 11" or "Theorem 13, (8)"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import NamedTuple

SPELLINGS = {  # kind of place -> how it is written; an appendix is a section that has a letter
    "lemma": "lemmas?|lems?", "theorem": "theorems?|thms?", "corollary": "corollary|corollaries|cors?",
    "proposition": "propositions?|props?", "remark": "remarks?|rems?", "definition": "definitions?|defs?",
    "figure": "figures?|figs?", "equation": "equations?|eqn?s?", "table": "tables?|tabs?",
    "experiment": "experiments?|exps?", "example": "examples?", "footnote": "footnotes?", "mechanism": "mechanisms?",
    "section": "sections?|sect?s?|appendix|appendices|app|§+",
}  # fmt: skip
PART = "part"  # of a statement: the (2) of "Corollary 10 (2)", where "Theorem 13, (8)" has an equation
KIND = "|".join(rf"(?P<{kind}>{words})" for kind, words in SPELLINGS.items())
NUMBER = r"(?:[A-E](?:\.\d{1,2})+|[A-Z]|\d{1,3}(?:\.\d{1,2})*)(?!\w|\.\d)"  # four figures are a year
TOKEN = re.compile(
    rf"(?:(?<![\w.])|(?<=\d)(?=\())(?:(?P<word>{KIND})\.?\s*)?(?P<first>\({NUMBER}\)|{NUMBER})"
    rf"(?:\s*(?:[-–—]|\bto\b)\s*(?:(?P=word)\.?\s*)?(?P<last>\({NUMBER}\)|{NUMBER}))?",
    re.IGNORECASE,
)
JOINT = re.compile(r"\s*(?:[,;&]|\b(?:and|or)\b)[\s,;&]*(?:(?:and|or)\b\s*)?", re.IGNORECASE)
AHEAD = re.compile(r"\bbefore (?:section )?§?\d[\d.]*", re.IGNORECASE)  # "before section 4.2" is not there


class Place(NamedTuple):
    """A kind and a number."""

    kind: str
    number: str

    def __str__(self) -> str:
        """As it is printed."""
        if self.kind == "section":
            return f"Appendix {self.number}" if self.number[0].isalpha() else f"§{self.number}"
        return f"({self.number})" if self.kind == PART else f"{self.kind.capitalize()} {self.number}"

    def under(self, other: Place) -> bool:
        """Whether this is that place, or a section of that section."""
        inside = self.kind == "section" and self.number.startswith(f"{other.number}.")
        return self.kind == other.kind and (inside or self.number == other.number)


@dataclass(frozen=True, slots=True)
class Asked:
    """One of the places that a name asks for.

    Attributes:
        places: any of these; several for a range.
        parts: and any of these beside it, where there are some: the equations or parts of a statement.
    """

    places: tuple[Place, ...]
    parts: tuple[Place, ...] = ()

    def __str__(self) -> str:
        """As it is printed."""
        last = f"-{self.places[-1].number}" * (self.places[0].number != self.places[-1].number)
        return " ".join([f"{self.places[0]}{last}", *dict.fromkeys(f"({part.number})" for part in self.parts)])


class _Token(NamedTuple):
    kind: str  # "" where none is named
    numbers: tuple[str, ...]
    bracketed: bool
    gap: str  # what stands before it


def _tokens(text: str) -> Iterator[_Token]:
    end, before = 0, ""
    for found in TOKEN.finditer(text):
        kind, gap = next((kind for kind in SPELLINGS if found[kind]), ""), text[end : found.start()]
        first = found["first"].strip("()").upper()
        going_on = before == "section" and found["first"].isupper() and JOINT.fullmatch(gap)
        if first[0].isalpha() and kind != "section" and (kind or not ("." in first or going_on)):
            continue  # "Lemma A" and a letter alone are no places
        yield _Token(kind, _between(first, (found["last"] or first).strip("()").upper()), found["first"][0] == "(", gap)
        end, before = found.end(), kind or before
    yield _Token("", (), False, text[end:])


def _between(first: str, last: str) -> tuple[str, ...]:
    """The numbers of a range: 25 to 28, 4.1 to 4.3, A to C."""
    (stem, _, low), (other, _, high) = first.rpartition("."), last.rpartition(".")
    if first == last:
        return (first,)
    if low.isdecimal() and high.isdecimal() and stem == other and int(low) < int(high) < int(low) + 1000:
        return tuple(".".join(filter(None, (stem, str(n)))) for n in range(int(low), int(high) + 1))
    if len(first) == len(last) == 1 and first.isalpha() and last.isalpha() and first < last:
        return tuple(map(chr, range(ord(first), ord(last) + 1)))
    return first, last


@cache
def named_places(text: str) -> tuple[Place, ...]:
    """The places that a sentence names, in its order.

    >>> [str(place) for place in named_places("text below Theorem 13, (8); proof, Eqs. 56-57 and 59; A.1.2")]
    ['Theorem 13', 'Equation 8', 'Equation 56', 'Equation 57', 'Equation 59', 'Appendix A.1.2']
    """
    found, kind = list[Place](), ""
    for token in _tokens(AHEAD.sub("", text)):
        going_on = JOINT.fullmatch(token.gap) is not None
        if token.bracketed and not token.kind:
            part = kind not in ("", "equation", PART) and not token.gap.strip()
            kind = PART if part or (kind == PART and going_on) else "equation"
        elif token.numbers and token.numbers[0][0].isalpha() and not token.kind:
            kind = "section"
        else:
            kind = token.kind or (kind if going_on and kind != PART else "")
        found += [Place(kind, number) for number in token.numbers if kind]
    return tuple(dict.fromkeys(found))


def asked_places(name: str) -> list[Asked]:
    """The places that a name asks for; none where it is not made of places alone.

    >>> [str(asked) for asked in asked_places("Lemmas 1 and 3, Thm. 13 (8), Eqs. 25-28, Sec. 5.2")]
    ['Lemma 1', 'Lemma 3', 'Theorem 13 (8)', 'Equation 25-28', '§5.2']
    >>> asked_places("text below Lemma 1")
    []
    """
    asked, kind = list[Asked](), ""
    *tokens, rest = _tokens(name.strip(" ,;"))
    if rest.gap or not tokens or tokens[0].gap:
        return []
    for token in tokens:
        if asked and not JOINT.fullmatch(token.gap) and not (token.bracketed and not token.gap.strip()):
            return []
        if token.bracketed and not token.kind:
            either = tuple(Place(one, number) for number in token.numbers for one in ("equation", PART))
            beside = bool(asked) and (bool(asked[-1].parts) or "and" not in token.gap.lower())
            if beside and kind not in ("", "equation"):
                asked[-1] = Asked(asked[-1].places, (*asked[-1].parts, *either))
            else:
                kind = "equation"
                asked.append(Asked(either))
            continue
        kind = token.kind or kind
        kinds = (kind,) if kind else ("section", *SPELLINGS) if "." in token.numbers[0] else ()  # "4.1" may be any
        if not kinds:
            return []
        asked.append(Asked(tuple(Place(one, number) for number in token.numbers for one in kinds)))
    return asked


def place_order(place: Place) -> list[tuple[str, int]]:
    """A key that sorts places of one kind as they are counted: 2 before 10, figures before letters."""
    return [(part, 0) if part.isalpha() else ("", int(part)) for part in place.number.split(".")]


def told_numbers(places: list[Place]) -> str:
    """The numbers of places of one kind in their order, what follows on another as a range.

    >>> told_numbers([Place("section", n) for n in ("5.2", "10", "5.1", "B", "5.3", "8", "9", "13")])
    '5.1-5.3, 8-10, 13, B'
    """
    numbers = [place.number for place in sorted(set(places), key=place_order)]
    runs = groupby(enumerate(numbers), lambda one: _run(*one))
    told = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(run) for run in told)


def _run(index: int, number: str) -> tuple[str, int]:
    """The same for numbers that follow on one another."""
    stem, _, last = number.rpartition(".")
    return (stem, int(last) - index) if last.isdecimal() else (number, 0)


def opens_with_place(text: str) -> bool:
    """Whether a place is what stands first: in "Lemma 1, proof", not in "text below Lemma 1"."""
    return TOKEN.match(text) is not None
