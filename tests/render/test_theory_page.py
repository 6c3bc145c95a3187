"""The page of claims and its small plots, as text; how it looks and behaves is tested in a browser."""

from __future__ import annotations

import re
from dataclasses import replace

from normgauge.core.claim import Ledger, Verdict
from normgauge.render.theory import FOREMOST
from normgauge.render.theory_page import theory_page
from tests.made_claims import (
    ALL,
    ATTACK,
    BROKEN,
    FAILED,
    HOLDS,
    READ,
    WRONG,
    hostile,
    other,
)


def test_the_page_begins_with_the_counts_and_the_errors_and_holds_everything():
    page = theory_page(ALL)
    body = page[page.index("<main") :]
    places = ("Of 8 published claims", "tally", "1 independent error</h2>", "Survives: the upper", 'id="claims"')
    found = [body.index(words) for words in places]
    assert found == sorted(found)
    for outcome in ALL.outcomes:
        assert f'id="{outcome.claim.id}"' in body and f'data-verdict="{outcome.claim.verdict}"' in body
    assert "10<sup>-5</sup>" in theory_page(Ledger((other(READ, reading="about 10^−5"),)))
    assert '<a href="#T.L1">T.L1</a> <a href="#S.BN">S.BN</a>' in body  # one error
    for words in ("Lemma 1, first part", "instead", "2.2913", "10<sup>0.3</sup>", "reproduce than2025/fig1", "refuted"):
        assert words in body
    assert body.count('class="fig mini"') == 2 * 2
    assert {f"v-{v.name.lower()}" for v in Verdict} <= set(re.findall(r"v-\w+", body))


def test_failures_stand_on_the_first_screen():
    page = theory_page(Ledger((HOLDS, FAILED, BROKEN)))
    assert page.count('class="warn"') == 2 and "2 checks FAILED" in page
    assert page.index("ZeroDivisionError") < page.index('id="claims"')
    assert '<span class="state bad">FAILED</span>' in page


def test_one_claim_is_open_and_several_are_folded_by_source():
    opened = r"<details [^>]* open>"
    assert len(re.findall(opened, theory_page(Ledger((HOLDS,))))) == 2 and not re.search(opened, theory_page(ALL))
    assert len(re.findall(opened, theory_page(Ledger((HOLDS, WRONG))))) == 3  # their source, and each
    assert theory_page(ALL).count('<details class="paper">') == 5


def test_the_errors_that_reach_furthest_are_no_numbered_part_of_all_and_stand_first_in_both():
    first, last = (other(WRONG, id=f"T.{root}", error=root) for root in (FOREMOST[0], "another"))
    page = theory_page(Ledger((last, first)))
    errors = page[page.index("2 independent errors</h2>") : page.index('id="claims"')]
    assert "Those that reach furthest" in errors and "<ol" not in errors
    cards = re.findall(r'<h3><a href="#(.*?)"', errors)
    assert cards == [first.claim.id, last.claim.id]


def test_hostile_words_stay_words():
    page = theory_page(hostile())
    assert ATTACK not in page and "<img" not in page and page.count("<script") == 1
    assert page.count("&lt;/script&gt;") > 20


def test_many_claims_are_far_below_five_megabytes():
    many = Ledger(tuple(replace(other(WRONG, id=f"T.{i}"), findings=WRONG.findings * 2) for i in range(200)))
    assert len(theory_page(many).encode()) < 3_000_000
