"""Claims are loaded, found by name, and run."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from normgauge import theory as ledger
from normgauge.core.claim import Entry, Verdict
from normgauge.core.errors import InputError
from normgauge.theory import CLAIMS, SECTIONS, SOURCES, find_claims, load_claims, look_up
from normgauge.theory.claim import (
    Claim,
)

ENTRY = Entry("T.x", "Than 2025", "Lemma 1", "a reading", Verdict.HOLDS, "a = b")


def test_no_claim_is_lost_by_having_the_id_of_another():
    assert sum(len(load_claims(source)[1]) for source in SOURCES) == len(CLAIMS)


@pytest.fixture
def few(monkeypatch):
    names = ("T.L1", "T.L10", "T.L1.gauge", "A.P4.1", "A.P4.3", "S.sum")
    claims = {name: Claim(replace(ENTRY, id=name)) for name in names}
    monkeypatch.setattr(ledger, "CLAIMS", claims)
    return claims


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([], "T.L1 T.L10 T.L1.gauge A.P4.1 A.P4.3 S.sum"),
        (["T.L1"], "T.L1"),
        (["t.l1"], "T.L1"),
        (["T"], "T.L1 T.L10 T.L1.gauge"),
        (["A.P4"], "A.P4.1 A.P4.3"),
        (["A.P"], "A.P4.1 A.P4.3"),
        (["T.L10", "A.P4.1", "T.L1"], "T.L10 A.P4.1 T.L1"),
        (["T", "S"], "T.L1 T.L10 T.L1.gauge S.sum"),
        (["S", "A.P4.1", "S.sum"], "S.sum"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, list) else "",
)
def test_claims_are_found_by_id_or_by_its_start(few, names, found):
    assert " ".join(claim.id for claim in ledger.find_claims(names)) == found


def test_an_unknown_id_gets_the_nearest(few):
    with pytest.raises(InputError, match=r"got 'T\.L2'; nearest: T\.L1, T\.L10") as caught:
        ledger.find_claims(["T.L1", "T.L2"])
    assert "S.sum" not in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(InputError, match="nearest: none"):
        ledger.find_claims(["zzzzzz"])


def test_checking_tells_how_far_it_is_before_each_claim(few):
    seen = {}
    done = ledger.check_claims(ledger.find_claims(["T"]), 5, seen.__setitem__)
    assert list(seen) == [o.claim.id for o in done.outcomes] == ["T.L1", "T.L10", "T.L1.gauge"]
    assert list(seen.values()) == [0, 1 / 3, 2 / 3]
    assert {o.seed for o in ledger.check_claims(list(few.values()), 5).outcomes} == {5}


def test_claims_are_found_by_section_source_and_word():
    sign, word = ({claim.id for claim in find_claims([name])} for name in ("§4.2", "section 4.2"))
    assert sign == word and "T.C11.reduce" in sign
    assert all(claim.entry.source == "Than 2025" for claim in find_claims(["2511.00958"]))
    assert {"T.L1", "T.C11"} <= {claim.id for claim in find_claims(["than 2025"])} and find_claims(["Abstract"])
    assert "T.C11" in {claim.id for claim in find_claims(["layernorm"])}


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        ("thm 9", "Theorem 9"), ("Fig. 1", "Figure 1"), ("Cor 10", "Corollary 10"), ("lemma1", "Lemma 1"),
        ("Corollary 10(2)", "Corollary 10 (2)"), ("T9", "T.T9"), ("eqs. 25-28", "Eqs. 25-28"),
        ("Eq. (8)", "T.T13.8"), ("Equation (8)", "Eq. 8"), ("(8)", "Eq. 8"), ("Equation 34", "T.T9"),
        ("Eq. 34", "T.T9"), ("(28)", "T.L3"), ("Theorem 13 (8)", "Theorem 13, (8)"), ("Theorem 13(8)", "Eq. 8"),
        ("Sec. 5.2.1", "§5.2.1"), ("Sections 4.1 and 4.2", "§4.1 §4.2"), ("Appendices B and C", "appendix b app. C"),
        ("Lemmas 1 and 3", "Lemma 1 Lemma 3"), ("Theorem 6, Theorem 9", "Theorem 6 Theorem 9"),
        ("Theorem 6, 9", "Theorem 6 Theorem 9"), ("Theorem 9 and Corollary 10", "Theorem 9 Corollary 10"),
        ("Eqs. (26)-(27)", "T.L3"), ("(8)-(9)", "Theorem 13"), ("T.L1, T.L2", "T.L1 T.L2"), ("4.1.1", "A.C4.1.1"),
        ("T.L1 and Eq. 34", "T.L1 T.T9"), ("batch norm", "BatchNorm"), ("batch normalization", "BatchNorm"),
    ],
)  # fmt: skip
def test_a_place_is_found_however_it_is_written(typed, place):
    for names in ([typed], typed.split()):
        found = [claim.id for claim in find_claims(names)]
        assert found and set(found) == {claim.id for claim in find_claims([place])}


def test_a_section_is_whole():
    """All that its page names, with the sub-sections."""
    for section in SECTIONS:
        there = {k for k, claim in CLAIMS.items() if section.has(claim.entry)}
        for number in section.numbers if there else ():
            assert there <= {claim.id for claim in find_claims([str(number)])}, section.title
    assert {"T.T9", "T.C10.1", "T.C11"} <= {claim.id for claim in find_claims(["§4.2"])}
    inside = {claim.id for name in ("§4.1", "§4.2", "§4.3") for claim in find_claims([name])}
    assert inside | {"A.Hzero"} == {claim.id for claim in find_claims(["section 4"])}


def test_a_place_has_nothing_of_another():
    assert {claim.id for claim in find_claims(["Theorem 6, Theorem 9"])} == {"T.T6", "T.T9"}
    assert "T.C10.2" not in {claim.id for claim in find_claims(["Eqs. 1-5"])}  # its (2) is a part
    assert [claim.id for claim in find_claims(["(2)"])] == ["T.C10.2"]


@pytest.mark.parametrize("name", ["", " ", "\t"])
def test_an_empty_name_is_no_name(name):
    with pytest.raises(InputError, match="an empty one; leave it out for all claims"):
        find_claims([name])


ESTIMATES = "T.L1 T.L1.penalty"
BOTH = "T.C10.1 T.C10.2 T.C10.reduce T.C11 T.C11.reduce T.L3.maps X.layernorm.chain"


@pytest.mark.parametrize(
    ("typed", "found"),
    [  # from what the claims say of themselves, by hand
        ("Than Theorem 13", "T.T13.8 T.T13.9"), ("Than Theorem 9", "T.T9"), ("Than, Theorem 9", "T.T9"),
        ("Theorem 9 of Than", "T.T9"), ("Corollary 10 or 11", BOTH), ("Than: Lemma 1", ESTIMATES),
        ("Than Lemma 1", ESTIMATES), ("Lemma 1 of Than", ESTIMATES), ("T Lemma 1", ESTIMATES), ("Lemma 1.", ESTIMATES),
        ("Lemma 1:", ESTIMATES), ("Is Lemma 1 true?", ESTIMATES), ('"Lemma 1"', ESTIMATES), ("Lemma 1 wrong", "T.L1"),
        ("than 2025 lemma 4", None), ("Lemma 4 of Than", "S.L4 S.product"), ("slides, Lemma 4", "S.L4 S.product"),
        ("Akbar proposition 4.3", "A.P4.3"),
        ("Akbar Lemma 5.1", "A.L5.1 A.L5.1.LN A.L5.1.WN A.R5.1.i A.R5.1.ii A.R5.1.iii A.5.grow"),
        ("Lemma 5.1 wrong", "A.L5.1.WN A.R5.1.iii"), ("Akbar Theorem 9", None), ("Lemma 1 of Akbar", None),
        ("Section 4.2 of Akbar", "A.P4.2 A.P4.2.part A.P4.2.shift A.Table1"), ("Theorem 13 holds", "T.T13.9"),
        ("Theorem 13.", "T.T13.8 T.T13.9"), ("Corollary 10!", "T.C10.1 T.C10.2 T.C10.reduce"),
        ("Corollary 11 of Than wrong", "T.C11.reduce"), ("Theorem 13 wrong", "T.T13.8"),
        ("X Lemma 3", "X.groupnorm.chord"), ("Lemma 1 LayerNorm", None),
        ("slides wrong", "S.LN"), ("Theorem 13 withdrawn", None), ("not reproduced Than 2023", "S.samples"),
        ("Theorem 13 wrong or loose", "T.T13.8"), ("T.L1 T.C11 LayerNorm", "T.C11"),
        ("Bubeck 2015", "T.rate.convex T.rate.strong"), ("LayerNorm global", "T.L2.global X.layernorm.bounded"),
        ("T.L1, T.T9 and S.VC loose", "T.T9"), ("Lemma 1 3", None),
        ("Lemma 1 to Lemma 2 of Than wrong", "T.L1 T.C11.reduce"), ("the", None), ("Akbar T.L1", None),
        ("Than (2025), Theorem 6", "T.T6"), ("Theorem 6 (Than, 2025)", "T.T6"), ("Than, 2025, Theorem 6", "T.T6"),
        ("Khoat Than Theorem 9", "T.T9"), ("Theorem 9 of K. Than", "T.T9"), ("Than's Lemma 1", ESTIMATES),
        ("Akbar’s Proposition 4.3", "A.P4.3"), ("what survives of Lemma 1", ESTIMATES), ("Lemma one", ESTIMATES),
        ("which lemmas are wrong", "T.L1"), ("Which claims at Lemma 1 are wrong?", "T.L1"), ("Ressnet Than", None),
        ("Is Theorem 13 wrong?", "T.T13.8 T.T13.9"), ("Is Theorem 13 wrong", "T.T13.8 T.T13.9"),
        ("Theorem 13 withdrawn?", "T.T13.8 T.T13.9"), ("gauge dependent slides", "S.product S.flat"),
    ],
)  # fmt: skip
def test_what_is_of_one_kind_adds_up_and_what_differs_narrows(typed, found):
    for names in ([typed], typed.split()):
        if found is None:
            with pytest.raises(InputError):
                find_claims(names)
        else:
            assert {claim.id for claim in find_claims(names)} == set(found.split())


def test_words_that_stand_together_narrow_and_what_joins_them_widens():
    norm, both, either, other = (
        {claim.id for claim in find_claims([name])}
        for name in ("LayerNorm", "LayerNorm global", "LayerNorm or global", "global")
    )
    assert both <= norm & other and either == norm | other and 0 < len(both) < len(norm) < len(either)
    assert either == {claim.id for claim in find_claims(["LayerNorm,", "global"])}
    assert {claim.id for claim in find_claims(["layer normalization wrong"])} == norm & {
        claim.id for claim in find_claims(["wrong"])
    }


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("Theorem 9 LayerNorm", "'Theorem 9' alone has 1, 'LayerNorm' alone has "),
        ("Lemma 1 withdrawn", "'Lemma 1' alone has 2, 'withdrawn' alone has "),
        ("Theorem 9 of Akbar", "got 'Theorem 9'; in Akbar (189 claims) no claim stands at a theorem"),
        ("Lemma 5.1 of Than", "in Than (118 claims) there is Lemma 1-5, 23"),
        ("Lemma 1 13", "13 alone is a number; there is Theorem 13, Equation 13"),
        ("999", "999 alone is a number; there is no place with it"),
    ],
)
def test_where_nothing_has_all_each_part_is_told(typed, said):
    with pytest.raises(InputError, match=re.escape(said)):
        find_claims(typed.split())


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("Lema 1", "did you mean 'Lemma 1'?"),
        ("Theorm 9", "did you mean 'Theorem 9'?"),
        ("Propositon 4.1", "did you mean 'Proposition 4.1'?"),
        ("Theorem 99", "there is Theorem 1, 5, 6, 9, 12, 13, 15, 20"),
        ("Theorm", "there is Theorem 1, 5, 6"),
        ("Lema", "there is Lemma 1-5, 5.1, 23"),
        ("Theorem 6, Theorem 99", "there is Theorem 1, 5, 6"),
        ("Theorem 13 (7)", "at Theorem 13 there is T.T13.8, T.T13.9"),
        ("Eq. 99", "there is Equation 1, 5-66"),
        ("Lemma 1 and zzzzzz", "nearest: none"),
        ("Appendix F", "; Appendix A.1, A.1.1-A.1.3, A.2, A.3, B, C, D, E.1, E.2"),
        ("section 2.5 of Akbar", "got 'section 2.5'; Akbar has no claim in '2.5 Open gaps': "),
        ("zzzz", "the sources are Than 2025, Than 2023, "),
        ("§E.1", "Than 2025 has no claim in 'E.1 Experimental settings': settings"),
        ("LayerNrom", "nearest: layernorm"),
        ("Ressnet", "nearest: resnet"),
        ("overfiting", "nearest: overfitting"),
        ("zzzzzz", "nearest: none"),
        ("T.L99", "nearest: T.L1, "),
    ],
)
def test_a_mistyped_place_is_answered_with_what_is_there(typed, said):
    with pytest.raises(InputError) as caught:
        find_claims(typed.split())
    assert repr(typed.rpartition(" and ")[2].partition(" of ")[0]) in str(caught.value) and said in str(caught.value)


def test_words_of_a_title_are_no_name_of_all_its_claims():
    found = find_claims(["gradient flow"])
    assert 5 < len(found) < 30 and "A.L5.1" in {claim.id for claim in found}
    assert len(find_claims(["Akbar"])) > 150 < len(find_claims(["a manuscript without date"]))


def test_a_verdict_is_a_name():
    assert {claim.entry.verdict for claim in find_claims(["wrong"])} == {Verdict.WRONG}
    assert {claim.entry.verdict for claim in find_claims(["not", "reproduced"])} == {Verdict.NOT_REPRODUCED}


def test_what_is_at_a_place_comes_before_what_names_it():
    assert find_claims(["corollary 11"])[0].id == "T.C11"


def test_a_number_alone_is_no_name():
    with pytest.raises(InputError, match=r"1 alone is a number; there is .*Lemma 1, "):
        find_claims(["1"])


def beside(*names):
    return " ".join(look_up(names)[1])


def test_what_stands_elsewhere_is_told_apart():
    """The id of a claim is its place too, and what is wrong by the same error is named; neither is counted."""
    found, told = look_up(["Theorem 20"])
    assert "T.T20.dimension" not in {claim.id for claim in found}
    assert all(k in f"{' '.join(c.id for c in found)} {told}" for k in CLAIMS if k.startswith("T.T20."))
    assert "T.T20.dimension (wrong; Than 2025, section 5.2.1" in " ".join(told)
    assert beside("Theorem 13").startswith(
        "Elsewhere, wrong by the same error: T.C14.11 (wrong; Than 2025, Corollary 14"
    )
    assert [claim.id for claim in find_claims(["truncated-h"])] == ["T.T13.8", "T.C14.11"]
    for claim in CLAIMS.values():
        if claim.entry.verdict is Verdict.WRONG:
            others = {k for k, c in CLAIMS.items() if c.entry.error == claim.entry.error}
            place = claim.entry.at.partition(";")[0].partition(",")[0]
            found, told = look_up([place])
            named = {claim.id for claim in found} | set(re.findall(r"\S+(?= \()", " ".join(told)))
            assert others <= named, place


def test_a_verdict_that_narrows_a_place_says_what_else_is_there():
    assert "7 more at Lemma 2: holds: 7" in beside("Lemma 2 wrong") and "7 more at" in beside("Lemma 2", Verdict.WRONG)
    assert "more at" not in beside("Is Lemma 2 wrong?") + beside("LayerNorm wrong") + beside("Lemma 2")
    assert {c.id for c in find_claims(["Is Lemma 2 wrong?", Verdict.WRONG])} == {"T.C11.reduce"}


def test_a_section_of_a_source_is_what_its_page_has():
    for section in SECTIONS:
        there = {k for k, claim in CLAIMS.items() if section.has(claim.entry)}
        for number in section.numbers if there else ():
            inside = [s for s in SECTIONS if s.source == section.source and any(n.under(number) for n in s.numbers)]
            all_of = {k for k, claim in CLAIMS.items() if any(s.has(claim.entry) for s in inside)}
            assert {c.id for c in find_claims([f"{number} of {section.source}"])} == all_of, section.title
