"""The claims on a terminal and in the documentation, from outcomes made by hand and on the real ones."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from normgauge.cli import main
from normgauge.core.claim import Drawn, Ledger, Outcome, Verdict
from normgauge.core.reading import SOURCES
from normgauge.render import theory
from normgauge.render.console import draw_blocks
from normgauge.theory import ABOUT, CLAIMS
from normgauge.theory.claim import equals, refutes
from tests.made_claims import AGAIN, ALL, BROKEN, FAILED, GAUGE, HOLDS, LOOSE, MINE, READ, TRAINED, WRONG, other


@pytest.fixture(autouse=True)
def eight_in_full(monkeypatch):
    """As many as the outcomes made by hand are more than."""
    monkeypatch.setattr(theory, "IN_FULL", 8)


README = Path(__file__).parents[2] / "README.md"
REAL = Ledger(tuple(Outcome(claim.entry, absent="only listed") for claim in CLAIMS.values()), ABOUT)


def shown(*outcomes, width: int = 120, every: bool = True) -> str:
    stream = io.StringIO()
    draw_blocks(theory.theory_blocks(Ledger(tuple(outcomes)), every), stream, width)
    return stream.getvalue()


def many(count: int = 9) -> list:
    return [other(WRONG, id=f"T.L{i}", reading=f"word{i} " * 40) for i in range(count)]


def test_the_sentence_counts_every_verdict_in_plain_words():
    assert theory.verdict_summary(ALL) == (
        "Of 8 published claims 1 holds as printed; 1 is true but can be sharpened (loose); 2 are wrong as printed, "
        "1 independent error; 1 changes under a mere rescaling (gauge-dependent); 1 has no proof behind it "
        "(unsupported); 1 came out otherwise for us (not reproduced); 1 is withdrawn by the author. Counted apart: "
        "1 result of our own."
    )
    assert theory.verdict_summary(Ledger((LOOSE,))) == "This claim is true but can be sharpened (loose)."
    assert theory.verdict_summary(Ledger((MINE,))) == "This result holds as printed."


def test_what_was_not_run_never_counts_as_passed():
    told = "Every check that was run passed: 7 (seed 7). Read, not run: 2 (against the text, or the work it cites)."
    assert theory.check_summary(ALL) == told
    assert theory.check_summary(Ledger((READ,))) == "Read, not run: 1 (against the text, or the work it cites)."
    assert theory.check_state(READ) == "not run: against the text, or the work it cites" and not READ.passed


def test_results_that_are_missing_were_not_read():
    missing = replace(READ, absent="no results of experiments/a, b: normgauge reproduce --train makes them")
    other_one = replace(missing, absent="no results of experiments/c, d: likewise")
    assert theory.check_summary(Ledger((missing,))) == f"Verdicts not checked here: 1 ({missing.absent})."
    told = theory.check_summary(Ledger((READ, missing, other_one, other_one)))
    assert told.startswith("Read, not run: 1 (against the text") and told.endswith(
        f"Verdicts not checked here: 3 (such as: {missing.absent})."
    )
    assert theory.check_state(missing) == f"not checked here: {missing.absent}"
    one = theory.verdict_summary(Ledger((replace(missing, claim=HOLDS.claim),)))
    assert one == "This claim holds as printed; its check did not run here."


def test_the_words_of_the_columns_stand_below_the_comparisons():
    drawn = replace(HOLDS, drawn=(Drawn("normal", (3,)),))
    told = " ".join(shown(WRONG, drawn, width=80).split())
    assert all(f"{name}: {words}" in told for name, words in theory.TERMS)
    assert "instance:" not in shown(HOLDS) and "published:" not in shown(replace(HOLDS, findings=HOLDS.findings[2:]))
    assert "difference:" not in shown(READ)


def test_the_difference_is_the_share_its_words_say():
    """4 against 2 differ by half of the larger one."""
    assert "as a share of the larger of the two" in dict(theory.TERMS)["difference"]
    assert refutes("x", 4.0, published=2.0).error == equals("x", 2.0, predicted=4.0).error == 0.5


def test_lines_break_where_the_terminal_ends_and_nowhere_else():
    told = shown(*ALL.outcomes, every=False, width=300).splitlines()
    assert any(line.startswith("* T.L1: ") and line.endswith("Survives: the upper bound.") for line in told)


def test_failures_are_counted_and_named_with_their_numbers():
    empty = replace(HOLDS, findings=())
    ledger = Ledger((HOLDS, FAILED, BROKEN, empty))
    assert theory.check_summary(ledger) == "3 checks FAILED of 4 (seed 7)."
    assert theory.check_failures(ledger) == [
        "failed: X.bad (seed 7): a slope: above, measured 3, predicted 2",
        "failed: X.broken (seed 7): ZeroDivisionError: division by zero",
        "failed: T.L2 (seed 7): it compared nothing",
    ]
    assert theory.check_failures(ALL) == []


def test_few_claims_are_shown_in_full():
    told = shown(WRONG, TRAINED, READ)
    for words in (
        "T.L1: Than 2025, Lemma 1, first part", "BatchNorm's constant is the length of 1/σ.", "it is wrong as printed",
        "“‖BN‖ = ‖1/σ‖”", "σ = (0.5, 1): 2.29 is printed", "The largest entry", "the upper bound.",
        "passed: the verdict is confirmed, seed 7, 3 ms",
        "Steps by learning rate; A flat line (--html)", "normgauge reproduce than2025/fig1", "“it may be so” (hedged)",
        "not run: against the text, or the work it cites", "batchnorm-euclidean-norm",
    ):  # fmt: skip
        assert words in told
    row = next(line for line in told.splitlines() if line.startswith("slope of a layer"))
    assert row.split()[-6:] == ["2.2913", "·", "2", "1.3e-01", "refuted", theory.DECIDES]
    marked = [line for line in told.splitlines() if line.endswith(theory.DECIDES)]
    assert len(marked) == sum(len(outcome.findings) > 1 for outcome in (WRONG, TRAINED, READ))
    assert "norm_layer.layer_norm" in shown(HOLDS)


def test_a_claim_about_a_network_says_where_its_number_is_shown(capsys):
    """By the place that the published quantities of a reading name as theirs."""
    found = {name: theory.gauge_rows(claim.entry) for name, claim in CLAIMS.items()}
    named = {key for told in found.values() for key in re.findall(r"log10_\w+", told)}
    assert named == {*SOURCES, "log10_weight_lipschitz"}
    slopes = {name: told for name, told in found.items() if "log10_weight_lipschitz" in told}
    assert set(slopes) == {"T.T12.6", "T.T13.8", "T.C14.11"}  # Theorem 13 is about networks without normalizers
    assert {name for name, told in slopes.items() if "plain_net" in told} == {"T.T13.8", "T.C14.11"}
    assert all("of the slope in its weights at the weights it has" in told for told in slopes.values())
    assert found["T.L2"] == "" and all(found[name] for name in ("T.C11.reduce", "T.T13.8", "T.T20.13"))
    assert all("--all (" in found[name] and "FILE.py:build" in found[name] for name in ("T.L3", "T.T9", "T.C11.reduce"))
    for command in {told.partition(" (")[0] for told in found.values() if "--all" in told}:
        assert main([*shlex.split(command)[1:-1], "--json", "-", "--scope", "point", "--effort", "quick"]) == 0
        published = json.loads(capsys.readouterr().out)["published"]  # the network it names has all the numbers
        told = {key for words in found.values() if words.startswith(command) for key in re.findall(r"log10_\w+", words)}
        assert told and all(published[key] is not None for key in told)
    assert "on a network" in shown(replace(Outcome(CLAIMS["T.T9"].entry), absent="only listed"))


def test_a_quote_says_whether_it_hedges_and_leaves_words_out():
    def told(words: str, *, hedged: bool = False) -> str:
        return theory.quoted(replace(WRONG.claim, words=words, hedged=hedged))

    assert told("a … b", hedged=True) == "“a … b” (hedged; joined: … leaves words out)"
    assert told("a … b") == "“a … b” (joined: … leaves words out)"
    assert told("min{n_1, …, n_K}") == "“min{n_1, …, n_K}”" and told("", hedged=True) == ""


def test_facts_have_no_numbers():
    row = next(line for line in shown(HOLDS).splitlines() if "the rank is" in line)
    assert row.split()[-5:] == ["·", "·", "·", "·", "seen"]


def test_many_claims_open_with_the_errors_that_matter_then_what_holds():
    told = shown(*ALL.outcomes, every=False, width=100)
    assert told.startswith("1 independent error in 8 published claims. Those that reach furthest:\n* T.L1: ")
    assert "‖1/σ‖. Not so: σ = (0.5, 1): 2.29 is printed, 2 is found. Survives: the upper bound." in " ".join(
        told.split()
    )
    assert told.index("Survives") < told.index("hold as printed") < told.index("are wrong as printed")
    assert re.search(r"\nclaims +3 +2 +2 +1 +8\n", told) and re.search(r"\nindependent errors +1 +· +· +· +1\n", told)
    assert "Counted apart: 1 result of our own. Every check that was run passed" in told and "X.add" not in told
    assert "matter most" not in shown(*[other(HOLDS, id=f"T.{i}") for i in range(9)])


def test_every_claim_is_a_row_of_its_source():
    told = shown(*many(), GAUGE, READ, FAILED)
    assert "Than 2025: 9 claims" in told and "Akbar: 1 claim\n" in told and "Our own results: 1\n" in told
    row = next(line for line in told.splitlines() if line.startswith("T.L3 "))
    assert row.split()[1:7] == ["wrong", "Lemma", "1,", "first", "part:", "word3"]
    assert row.split()[-6:] == ["2.291", "2", "2", "✓", "3", "ms"]
    assert "…" in told and max(map(len, told.splitlines())) <= 120
    assert re.search(r"X.bad .* FAILED", told) and re.search(r"Q.open +unsupported .* not run\n", told)


def test_the_real_first_screen_is_one_and_its_errors_are_there():
    assert [entry.error for entry in theory.foremost_errors(REAL)] == list(theory.FOREMOST)
    stream = io.StringIO()
    draw_blocks(theory.theory_blocks(REAL, every=False), stream, 100)
    told = stream.getvalue().splitlines()
    assert len(told) <= 38 and max(map(len, told)) <= 100  # two lines are left for the command and the seed


def test_the_readme_counts_as_the_ledger_does():
    verdicts = Counter(outcome.claim.verdict for outcome in theory.published_claims(REAL.outcomes))
    order = (
        Verdict.HOLDS,
        Verdict.LOOSE,
        Verdict.GAUGE,
        Verdict.UNSUPPORTED,
        Verdict.NOT_REPRODUCED,
        Verdict.WITHDRAWN,
    )
    wrong = Counter(outcome.claim.source for outcome in REAL.outcomes if outcome.claim.verdict is Verdict.WRONG)
    paper, manuscript = wrong["Than 2025"], wrong["Akbar"]
    where = (paper, manuscript, wrong.total() - paper - manuscript)
    numbers = [verdicts.total(), *(verdicts[v] for v in (*order, Verdict.WRONG)), *where, len(REAL.errors)]
    told = README.read_text(encoding="utf-8").partition("Of ")[2].partition(" independent errors")[0]
    assert [int(n) for n in re.findall(r"\b\d+\b", told)] == numbers


def test_a_printed_number_beside_a_true_one_says_that_it_is_another():
    """Where the claim is wrong it was missed; an upper bound of a loose one lies above."""

    def cell(row, outcome=WRONG):
        return theory.findings_grid(replace(outcome, findings=(row,))).rows[0][1]

    assert cell(equals("x", 3.0, predicted=3.0, published=2.0)) == "2 ✗"
    assert cell(equals("x", 3.0, predicted=3.0, published=4.0), LOOSE) == "4 >"
    assert cell(equals("x", 3.0, predicted=3.0, published=2.0), LOOSE) == "2 <"
    assert cell(equals("x", 3.0, predicted=3.0, published=3.0 + 1e-9)) == "3"
    assert cell(refutes("x", 3.0, published=2.0)) == "2"


def test_what_was_drawn_is_counted():
    drawn = [Drawn("integer", (), (2.0,)), Drawn("normal", (3,)), Drawn("integer", (), (4.0,))]
    told = dict(theory.claim_facts(replace(HOLDS, drawn=tuple(drawn))))
    assert told["drawn"] == "2 × whole number, normal 3 (--json: the numbers)"


def test_the_true_form_stands_beside_the_printed_one_only_where_both_are_about_one_number():
    assert theory.corrected(WRONG) == 2.0  # of the second finding, which measured the same
    other = replace(WRONG, findings=(WRONG.findings[0], replace(WRONG.findings[1], measured=2.5)))
    assert theory.corrected(other) is None
    assert theory.corrected(HOLDS) == 3.75
    assert theory.corrected(READ) is None
    assert theory.corrected(replace(HOLDS, findings=HOLDS.findings[2:])) is None


def test_a_list_has_whole_readings():
    grid = theory.claims_list("Than 2025: 2 claims", many(2))
    assert grid.rows[1][3] == "word1 " * 40 and grid.rows[0][:3] == ("T.L0", "Lemma 1, first part", "wrong")


def test_markdown_has_errors_in_full_then_one_row_a_claim_and_no_markup_of_theirs():
    odd = other(HOLDS, id="T.odd", reading="a|b *c* _d_ <e> [f] \\g ~h~")
    page = theory.theory_markdown(Ledger((*ALL.outcomes, odd)))
    rows = [line for line in page.splitlines() if line.startswith(("| T.", "| A.", "| X."))]
    assert len(rows) == 7 and {line.replace("\\|", "").count("|") for line in rows} == {6}
    assert page.count(LOOSE.claim.instead) == 2 and "*Loose*" in page  # of what does not hold as printed
    assert r"a\|b \*c\* \_d\_ \<e> \[f\] \\g \~h\~" in page
    assert "| claims | 4 | 2 | 2 | 1 | 9 |" in page and "## Summary page: 1 claim\n" in page
    full = page[page.index("### T.L1: Than 2025, Lemma 1") : page.index("## Than 2025")]
    for words in (
        "* words: “‖BN‖",
        "* counterexample: σ =",
        "* instead: The largest",
        "* survives: the upper",
        "* the same",
    ):
        assert words in full
    assert f"S.BN: {AGAIN.claim.source}, slide 9" in full and page.count("### ") == 1
    assert page == theory.theory_markdown(Ledger(tuple(replace(o, seed=9, seconds=1.0) for o in (*ALL.outcomes, odd))))


@pytest.mark.parametrize("verdict", list(Verdict), ids=str)
def test_every_verdict_has_words(verdict):
    assert len(theory.WORDS[verdict]) == 2
    assert theory.WORDS[verdict][0] in shown(other(READ, verdict=verdict))
