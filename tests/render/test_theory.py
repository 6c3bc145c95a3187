"""The claims on a terminal and in the documentation, from outcomes made by hand."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from normgauge.core.claim import Ledger, Verdict
from normgauge.render import theory
from normgauge.render.console import draw
from tests.made_claims import ALL, BROKEN, FAILED, GAUGE, HOLDS, LOOSE, READ, TRAINED, WRONG


def shown(*outcomes, width: int = 120) -> str:
    stream = io.StringIO()
    draw(theory.blocks(Ledger(tuple(outcomes))), stream, width)
    return stream.getvalue()


def many(count: int = theory.IN_FULL + 1) -> list:
    return [replace(WRONG, id=f"T.L{i}", statement=f"word{i} " * 40) for i in range(count)]


def test_the_sentence_counts_every_verdict_in_plain_words():
    first, second = theory.sentences(ALL)
    assert first == (
        "Of 6 claims, 1 holds as printed; 1 is true but can be sharpened (loose); 1 is wrong as printed and corrected "
        "here; 2 are about numbers that move under a rescaling the network does not notice (gauge-dependent); 1 has no "
        "proof behind it (unsupported)."
    )
    assert second == (
        "Checked: 4 on fresh random instances, 1 by training, 1 only by reading, since nothing in them can be computed "
        "(seed 7). Every check passed."
    )


def test_one_claim_has_a_sentence_of_its_own():
    first, second = theory.sentences(Ledger((LOOSE,)))
    assert first == "This claim is true but can be sharpened (loose)."
    assert second == "Checked: 1 on fresh random instances (seed 7). Every check passed."
    assert theory.sentences(Ledger((READ,)))[1].startswith("Checked: 1 only by reading") is True


def test_failures_are_counted_and_named_with_their_numbers():
    ledger = Ledger((HOLDS, FAILED, BROKEN))
    assert theory.sentences(ledger)[1].endswith("2 checks FAILED.")
    assert theory.failures(ledger) == [
        "failed: X.bad (seed 7): a slope: above, measured 3, predicted 2",
        "failed: X.broken (seed 0): ZeroDivisionError: division by zero",
    ]
    assert theory.failures(ALL) == []


def test_few_claims_are_shown_in_full():
    told = shown(WRONG, TRAINED)
    for words in (
        "T.L1: Than 2025, Lemma 1, first part", "BatchNorm's constant is the length of 1/σ.", "it is wrong as printed",
        "It is the largest entry", "passed, 3 ms", "Steps by learning rate; A flat line (--html)", "by than2025/fig1",
    ):  # fmt: skip
        assert words in told
    row = next(line for line in told.splitlines() if line.startswith("slope of a layer"))
    assert row.split()[-5:] == ["2.2913", "·", "2", "1.3e-01", "refuted"]
    assert "norm_layer.layer_norm" in shown(HOLDS)


def test_facts_have_no_numbers():
    row = next(line for line in shown(HOLDS).splitlines() if "the rank is" in line)
    assert row.split()[-5:] == ["·", "·", "·", "·", "seen"]


def test_many_claims_are_rows_by_source_with_counts_at_the_end():
    told = shown(*many(), GAUGE, READ, FAILED)
    assert "Than 2025: 10 claims" in told and "Akbar: 1 claim\n" in told
    row = next(line for line in told.splitlines() if line.startswith("T.L3 "))
    assert row.split()[1:7] == ["wrong", "Lemma", "1,", "first", "part:", "word3"]
    assert row.split()[-6:] == ["2.291", "2", "2", "✓", "3", "ms"]
    assert "…" in told and max(map(len, told.splitlines())) <= 120
    assert re.search(r"X.bad .* FAILED", told) and re.search(r"Q.open +unsupported .* read\n", told)
    assert re.search(r"\nall +1 +· +9 +1 +1 +12\n", told)


def test_the_true_form_stands_beside_the_printed_one_only_where_both_are_about_one_number():
    assert theory.corrected(WRONG) == 2.0  # of the second finding, which measured the same
    other = replace(WRONG, findings=(WRONG.findings[0], replace(WRONG.findings[1], measured=2.5)))
    assert theory.corrected(other) is None
    assert theory.corrected(HOLDS) == 3.75
    assert theory.corrected(READ) is None
    assert theory.corrected(replace(HOLDS, findings=HOLDS.findings[2:])) is None


def test_a_list_has_whole_statements():
    grid = theory.claims_list("Than 2025", many(2))
    assert grid.rows[1][3] == "word1 " * 40 and grid.title == "Than 2025: 2 claims"


def test_markdown_has_one_row_a_claim_and_no_markup_of_theirs():
    odd = replace(WRONG, id="T.odd", statement="a|b *c* _d_ <e> [f] \\g ~h~")
    page = theory.markdown([*ALL.outcomes, odd])
    rows = [line for line in page.splitlines() if line.startswith(("| T.", "| A."))]
    assert len(rows) == 5
    assert {line.replace("\\|", "").count("|") for line in rows} == {7}
    assert r"a\|b \*c\* \_d\_ \<e> \[f\] \\g \~h\~" in page
    assert "| Than 2025 | 1 | · | 2 | 1 | · | 4 |" in page
    assert "## Summary page" in page and "`than2025/fig1`" in page
    assert page == theory.markdown([replace(o, seed=9, seconds=1.0) for o in [*ALL.outcomes, odd]])


@pytest.mark.parametrize("verdict", list(Verdict), ids=str)
def test_every_verdict_has_words(verdict):
    assert len(theory.WORDS[verdict]) == 2
    assert theory.WORDS[verdict][0] in shown(replace(READ, verdict=verdict))
