"""Every claim of the theory, with a verdict and a check that can fail.

claims/: what the sources say, one file each, data alone; checks/: functions that draw instances and compare.
claim: the words checks are written in; draw, nets, losses, jacobians: what they draw and how they measure.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Sequence
from importlib import import_module, resources
from typing import Any

from normgauge.core.claim import Entry, Ledger, Verdict
from normgauge.core.errors import InputError
from normgauge.instrument.rules import REGISTRY
from normgauge.lab.training import one_thread
from normgauge.theory.claim import Claim

SOURCES = ("than2025", "slides", "summary", "akbar", "own")
PLACES = ("lemma", "theorem", "corollary", "proposition", "remark", "definition", "figure", "equation")


def load_claims(name: str) -> tuple[dict[str, str], list[Claim]]:
    """A source and its claims in its order; what a rule says by itself stands with the rule alone."""
    text = resources.files(__package__).joinpath("claims", f"{name}.toml").read_text(encoding="utf-8")
    told = tomllib.loads(text)
    source, shared = told.pop("source"), told.pop("rules", {})
    given = {key: {"at": "rules", "check": check, **_said(key)} for key, check in shared.items()}
    return source, [_claim(key, source["name"], fields) for key, fields in {**given, **told}.items()]


def _said(claim: str) -> dict[str, str]:
    rules = [rule for rule in REGISTRY.entries() if rule.claim == claim]
    read = (" ".join((rule.summary, rule.formula)) for rule in rules)
    return {"reading": "; ".join(read), "instead": "Holds " + "; ".join(dict.fromkeys(rule.holds for rule in rules))}


def _claim(name: str, source: str, given: dict[str, Any]) -> Claim:
    module, _, function = given.pop("check", "").partition(".")
    check = getattr(import_module(f"{__package__}.checks.{module}"), function) if module else None
    backs = (*given.pop("backs", ()), *(rule.id for rule in REGISTRY.entries() if rule.claim == name))
    verdict, published = Verdict(given.pop("verdict", "holds")), tuple(given.pop("published", ()))
    return Claim(Entry(name, source, verdict=verdict, published=published, backs=backs, **given), check)


_LOADED = [load_claims(source) for source in SOURCES]
CLAIMS: dict[str, Claim] = {claim.id: claim for _, claims in _LOADED for claim in claims}
ABOUT = tuple(f"{source['name']}: {source['about']}" for source, _ in _LOADED if "about" in source)


def find_claims(names: Sequence[str]) -> list[Claim]:
    """The claims called by ``names``: an id (``T.L1``), the start of several (``T``) or a place (``Lemma 1``).

    At a place are all that name it, all of its id, and what is wrong by an error of theirs. A source is a name too
    (``Than 2025``, ``2511.00958``), a verdict (``wrong``), and so are words of what is claimed (``LayerNorm``), where
    nothing else is called so. All where no name is given.

    Raises:
        InputError: for a name that is neither, with what may be meant.
    """
    chosen: dict[str, Claim] = {}
    for name in names or ("",):
        if name.isdecimal():
            raise InputError(f"claim: {name} alone is a number; 'Lemma {name}', '§{name}' or '({name})' is a place")
        hits = _called(name)
        if not hits:
            raise InputError(
                f"claim: expected an id such as T.L1, a place such as 'Lemma 1', or words that a claim has, got "
                f"{name!r}; {_meant(name)}"
            )
        chosen |= hits
    return list(chosen.values())


def _meant(name: str) -> str:
    """What somebody may have meant who gave a name that nothing has: a place that is there, or the nearest ids."""
    told = re.fullmatch(r"([^\W\d]+)\.?(?: *(\(?\d.*))?", _spelled(name))
    place = difflib.get_close_matches(told[1], PLACES, n=1, cutoff=0.7) if told else []
    if told and place:
        if told[2] and _called(there := f"{place[0].capitalize()} {told[2]}"):
            return f"did you mean {there!r}?"
        return f"there is {place[0].capitalize()} {', '.join(_numbers(place[0]))}"
    known = {k.upper(): k for k in CLAIMS} if re.search(r"[\d.]", name) else {}  # a word alone is no id
    near = difflib.get_close_matches(name.upper(), known, n=5, cutoff=0.3)
    return f"nearest: {', '.join(k for k in CLAIMS if k.upper() in near) or 'none'}"


def _numbers(place: str) -> list[str]:
    """The numbers of all lemmas, say, that claims are at."""
    found = {n for c in CLAIMS.values() for n in re.findall(rf"\b{place} (\d+(?:\.\d+)*)", _spelled(c.entry.at))}
    return sorted(found, key=lambda number: [int(part) for part in number.split(".")])


def joined_names(words: Sequence[str]) -> list[str]:
    """Names out of words that lost their quotes: as many together as are called something, ``Lemma 1`` before ``1``.

    A number goes with a word before it that is a kind of place or is called nothing: alone it is no name.
    """
    if not words:
        return []
    numbered = len(words) > 1 and words[0].isalpha() and re.fullmatch(r"\(?\d{1,3}(\.\d{1,2})*\)?", words[1])
    least = 2 if numbered and (words[0].lower() in PLACES or not _called(words[0])) else 1
    most = next(n for n in range(len(words), 0, -1) if n == least or _called(" ".join(words[:n])))
    return [" ".join(words[:most]), *joined_names(words[most:])]


def _called(name: str) -> dict[str, Claim]:
    lower = name.lower()
    for named in (
        lambda k, c: k.lower() == lower or c.entry.error == lower != "",
        lambda k, c: not name or f"{k}.".lower().startswith(f"{lower}."),
        lambda k, c: k.lower().startswith(lower),
        lambda k, c: re.match(r"[a-z]\d", lower) is not None and _below(k, name),
        lambda k, c: c.entry.verdict == lower,
        lambda k, c: _names(c.entry.source, name),
    ):
        if hits := {k: c for k, c in CLAIMS.items() if named(k, c)}:
            return hits
    if at := {k: c for k, c in CLAIMS.items() if _names(c.entry.at, name)}:
        return _at_place(name, at)
    # words of a title are no name of all its claims, where some have them
    return _worded(name) or {k: c for k, c in CLAIMS.items() if _names(_source(c.entry), name)}


def _at_place(name: str, at: dict[str, Claim]) -> dict[str, Claim]:
    """What is at a place, that itself first; what has the id of the place; what is wrong by an error of theirs."""
    spelled = _spelled(name)
    place = re.fullmatch(rf"({'|'.join(PLACES)}) (\d+(?:\.\d+)*)", spelled)
    initial, roots = place[1][0] + place[2] if place else name, {c.entry.error for c in at.values()} - {""}
    first = {k: c for k, c in at.items() if _spelled(c.entry.at).startswith(spelled)}
    more = {k: c for k, c in CLAIMS.items() if _below(k, initial) or c.entry.error in roots}
    return first | at | more | ({} if re.search(r"[\d§]", spelled) else _worded(name))


def _worded(name: str) -> dict[str, Claim]:
    return {k: c for k, c in CLAIMS.items() if _names(_words(c.entry), name)}


def _below(claim: str, name: str) -> bool:
    """Whether an id begins so behind its letter, as T.T9 and T.T9.x do with T9."""
    return f"{claim}.".partition(".")[2].lower().startswith(f"{name}.".lower())


def _source(entry: Entry) -> str:
    return f"{entry.source} {' '.join(about for about in ABOUT if about.startswith(f'{entry.source}:'))}"


def _words(entry: Entry) -> str:
    return f"{entry.words} {entry.reading}"


def _names(text: str, words: str) -> bool:
    """Whether a text has these words, each whole: "Lemma 1" is not in "Lemma 12"."""
    return re.search(rf"(?<!\w){re.escape(_spelled(words))}(?!\w|\.\d)", _spelled(text)) is not None


def _spelled(text: str) -> str:
    """Lower case, places in one spelling: "section 4.2" is "§4.2", "Cor 10(2)" "corollary 10 (2)"."""
    text = re.sub(r"(?<=\d)\(", " (", re.sub(r"\bsections?\s+", "§", text.lower()))
    for place in PLACES:
        short = "thm" if place == "theorem" else place[: 2 if place == "equation" else 3]
        text = re.sub(rf"\b(?:{place}|{short})s?\.?\s*(?=\(?\d)", f"{place} ", text)
    return text


def check_claims(
    claims: Sequence[Claim], seed: int = 0, progress: Callable[[str, float], None] | None = None
) -> Ledger:
    """Run the checks of ``claims`` on instances drawn from ``seed``.

    Args:
        claims: which ones; `find_claims` finds them.
        seed: another seed, other instances.
        progress: called with the id of each claim before it, and how far all have come.

    Returns:
        What was found.
    """
    outcomes = []
    with one_thread():
        for done, claim in enumerate(claims):
            if progress:
                progress(claim.id, done / len(claims))
            outcomes.append(claim.run(seed))
    return Ledger(tuple(outcomes), ABOUT)
