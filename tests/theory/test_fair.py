"""Fairness, as rules: words stand in the source, hedges are never wrong, one error counts once, wrong needs a case."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from importlib import resources

import pytest

from normgauge.core.claim import OWN, Entry, Ledger, Outcome, Verdict
from normgauge.theory import CLAIMS, SOURCES
from tests.theory.texts import PLACE, folder, places, plain, text

HEDGES = re.compile(
    r"\b(can|could|might|may|perhaps|suggests?|seems?|likely|possibly|often|roughly|intuitively|akin|hopefully)\b", re.I
)
NEAR = 6000  # signs between the words and the place that `at` names
LONGEST = 12
ENTRIES = [claim.entry for claim in CLAIMS.values()]
PUBLISHED = [entry for entry in ENTRIES if entry.source != OWN]
FILES = resources.files("normgauge.theory").joinpath("claims")
TITLES = {
    told["source"]["name"]: told["source"].get("title", "")
    for told in (tomllib.loads(FILES.joinpath(f"{name}.toml").read_text("utf-8")) for name in SOURCES)
}
needs_texts = pytest.mark.skipif(folder() is None, reason="NORMGAUGE_PAPERS names no folder with the texts")


def unfair(entry: Entry) -> list[str]:
    """What an entry may not do, whatever it is about."""
    found = []
    counted = re.findall(r"[^\W\d_]{2,}", re.sub(r"\$[^$]*\$|\\\w+", "", entry.words))
    if entry.source != OWN and not entry.words:
        found.append("it has no words of the source")
    if len(counted) > LONGEST:
        found.append(f"it cites {len(counted)} words; {LONGEST} at most")
    if HEDGES.search(entry.words) and not entry.hedged:
        found.append("its words are hedged")
    if entry.verdict is Verdict.WRONG and entry.source != OWN:
        if entry.hedged:
            found.append("a hedged statement is not wrong")
        found += [
            f"wrong without `{name}`" for name in ("within", "instead", "survives", "error") if not getattr(entry, name)
        ]
    elif entry.within or entry.error:
        found.append("only what is wrong has `within` and `error`")
    return found


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_an_entry_is_fair(entry):
    assert unfair(entry) == []


@needs_texts
@pytest.mark.parametrize("entry", PUBLISHED, ids=lambda entry: entry.id)
def test_the_words_stand_in_the_source_where_it_says(entry):
    whole = text(TITLES[entry.source])
    found = places(whole, entry.words)
    assert found, f"not in {entry.source}: {entry.words}"
    for number in entry.published:
        assert any(plain(number) in whole[max(0, at - NEAR) : at + NEAR] for at in found), f"{number} is not near"
    named = [plain(place) for place in PLACE.findall(entry.at)]
    assert not named or any(name in whole[max(0, at - NEAR) : at + NEAR] for at in found for name in named), entry.at


def test_one_sentence_has_one_verdict():
    verdicts: dict[str, set[Verdict]] = {}
    for entry in PUBLISHED:
        verdicts.setdefault(plain(entry.words), set()).add(entry.verdict)
    assert {words: found for words, found in verdicts.items() if len(found) > 1} == {}


JOINED = {  # wrong claims whose words stand apart in the source, and why one stretch would not do
    "T.T20.dimension": "the comparison of two bounds, with the reason between them",
    "Q.attribution": "two places of a page",
    "A.E1": "an equation, and what its δ is",
    "A.P4.2.shift": "two cells of a row",
}


def test_the_words_of_an_error_are_one_stretch():
    """Words left out of an accusation may be those that matter."""
    wrong = {entry.id for entry in PUBLISHED if entry.verdict is Verdict.WRONG and " … " in entry.words}
    assert wrong == set(JOINED)


def test_an_error_has_a_name():
    errors = Ledger(tuple(Outcome(entry) for entry in ENTRIES)).errors
    assert errors and all(re.fullmatch(r"[a-z0-9-]+", error) for error in errors)


FAIR = Entry("T.x", "Than 2025", "Lemma 1", "a reading", Verdict.WRONG, "‖BN‖ = ‖1/σ‖", within="n = 2", instead="max",
             survives="the bound", error="norm")  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"words": ""}, ["it has no words of the source"]),
        ({"words": "it is " + "very " * 12}, ["it cites 14 words; 12 at most"]),
        ({"words": "it might be so"}, ["its words are hedged"]),
        ({"words": "it might be so", "hedged": True}, ["a hedged statement is not wrong"]),
        ({"within": ""}, ["wrong without `within`"]),
        ({"survives": ""}, ["wrong without `survives`"]),
        ({"error": ""}, ["wrong without `error`"]),
        ({"verdict": Verdict.HOLDS}, ["only what is wrong has `within` and `error`"]),
        ({"source": OWN, "words": "", "within": "", "error": "", "verdict": Verdict.HOLDS}, []),
    ],
    ids=str,
)
def test_the_rules_above_can_be_broken(change, said):
    assert unfair(replace(FAIR, **change)) == said


def test_words_are_found_however_they_are_set():
    whole = plain(r"Then $\|\text{BN}\|_{Lip} = \|1/\sigma\|$, where *more* follows. It ends \frac{a}{b} here.")
    assert places(whole, "‖BN‖_Lip = ‖1/σ‖") and not places(whole, "‖BN‖ = 1")
    assert places(whole, "Then … ends a/b here") and not places(whole, "ends … Then")
