"""Places are read the same in a claim and in what somebody types."""

from __future__ import annotations

import pytest

from normgauge.core.places import SPELLINGS, Place, asked_places, named_places, opens_with_place, told_numbers


def told(text: str) -> list[str]:
    return [str(place) for place in named_places(text)]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("Lemma 2, second part; Eqs. 22-24", "Lemma 2|Equation 22|Equation 23|Equation 24"),
        ("Theorem 13, (8); proof, (56)-(58)", "Theorem 13|Equation 8|Equation 56|Equation 57|Equation 58"),
        ("Corollary 10 (2)", "Corollary 10|(2)"),
        ("Corollaries 10 (1) and (2)", "Corollary 10|(1)|(2)"),
        ("proposition 4.3; also sections 2.2 and 3.1, and Table 1", "Proposition 4.3|§2.2|§3.1|Table 1"),
        ("§1, quoting De & Smith 2020, Zhang et al. 2019", "§1"),
        ("section 3.1, last paragraph (before section 3.2)", "§3.1"),
        ("Remark 7, first and second point; also §1", "Remark 7|§1"),
        ("Appendix C, (49)-(50)", "Appendix C|Equation 49|Equation 50"),
        ("A.1.2, first paragraph", "Appendix A.1.2"),
        ("first experiments, 3; key results, first", ""),
        ("remark below Lemma 5.1, (iii)", "Lemma 5.1"),
        ("Lemma A, section one, 12 layers", ""),
    ],
)
def test_a_sentence_names_its_places(text, places):
    assert told(text) == places.split("|" if places else None)


@pytest.mark.parametrize("kind", SPELLINGS)
def test_a_kind_is_read_in_the_singular_and_in_capitals(kind):
    place = Place(kind, "5.1")
    assert [asked.places for text in (f"{kind} 5.1", f"{kind.upper()} 5.1") for asked in asked_places(text)] == [
        (place,)
    ] * 2
    assert asked_places(str(place))[0].places == (place,)


@pytest.mark.parametrize(
    "text", ["", "1", "Lemma", "text below Lemma 1", "Lemma 1 3", "Lemma 1, then 3", "in 2020", "T.L1"]
)
def test_what_is_no_list_of_places_asks_for_none(text):
    assert asked_places(text) == []


def test_a_range_over_kinds_or_downwards_is_its_ends():
    assert told("Eqs. 28-25") == ["Equation 28", "Equation 25"] and told("§4.1-5.2") == ["§4.1", "§5.2"]
    assert told("Lemma 1 to Lemma 3") == told("Lemmas 1-3") and told("Lemma 1 or 3") == ["Lemma 1", "Lemma 3"]
    assert told("Appendices A-C and E") == [f"Appendix {letter}" for letter in "ABCE"]


def test_a_section_has_its_own_and_no_others():
    own = Place("section", "4.1")
    assert own.under(Place("section", "4")) and own.under(own) and not own.under(Place("section", "4.1.1"))
    assert not Place("section", "41").under(Place("section", "4")) and not Place("lemma", "4.1").under(own)
    assert not Place("lemma", "4.1").under(Place("lemma", "4"))


def test_what_stands_first_and_what_there_is():
    assert opens_with_place("Lemma 1, proof") and not opens_with_place("text below Lemma 1")
    assert told_numbers([Place("lemma", n) for n in ("23", "2", "1", "3", "5.1", "5")]) == "1-3, 5, 5.1, 23"
