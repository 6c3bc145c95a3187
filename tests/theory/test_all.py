"""Rules that every claim keeps, whoever wrote it: what its verdict must show, how it is named, where it comes from."""

from __future__ import annotations

import pkgutil
import re

import pytest

from normgauge.core.claim import ComparisonKind, Entry, Ledger, Outcome, Verdict
from normgauge.theory import CLAIMS, checks
from normgauge.theory.claim import Absent, Claim, equals, moves, refutes, shown
from tests.theory.texts import reproducible

SEEDS = (0, 20_25)
CONFIRMS = {ComparisonKind.EQUAL, ComparisonKind.BELOW, ComparisonKind.SHOWN}
CONFIRMED = {Verdict.WRONG, Verdict.LOOSE, Verdict.GAUGE, Verdict.HOLDS}
HERE = [name for name, claim in CLAIMS.items() if claim.check]


def lacking(outcome: Outcome) -> str:
    """What a verdict needs and the findings do not show; "" where nothing is missing."""
    verdict, kinds = outcome.claim.verdict, {finding.kind for finding in outcome.findings}
    if verdict is Verdict.WITHDRAWN or (verdict is Verdict.NOT_REPRODUCED and outcome.absent):
        return ""
    if verdict is Verdict.WRONG and ComparisonKind.REFUTES not in kinds:
        return "a counterexample"
    if verdict is Verdict.GAUGE and ComparisonKind.MOVES not in kinds:
        return "a number that moves"
    if verdict in CONFIRMED and not kinds & CONFIRMS:
        return "a confirmation"
    return "" if kinds else "a finding"


@pytest.mark.parametrize("name", HERE)
def test_a_check_passes_on_fresh_instances_and_shows_what_its_verdict_says(name):
    for seed in SEEDS:
        outcome = CLAIMS[name].run(seed)
        assert outcome.passed, (outcome.problem, outcome.absent, [f for f in outcome.findings if not f.passed])
        assert lacking(outcome) == ""
        assert all(f.what.strip() and "\n" not in f.what for f in outcome.findings)
        for curve in outcome.curves:
            assert curve.lines and all(len(line) == len(curve.x) > 1 for _, line in curve.lines), curve.title
        outcome.to_json()
    again = CLAIMS[name].run(SEEDS[-1])  # whatever was drawn elsewhere meanwhile
    assert [f.measured for f in again.findings] == pytest.approx([f.measured for f in outcome.findings], nan_ok=True)


def test_every_module_of_checks_is_reached_by_the_test_above():
    """So no module of checks needs a test file of its own."""
    modules = {found.name for found in pkgutil.iter_modules(checks.__path__, f"{checks.__name__}.")}
    assert len(modules) > 5 and modules == {CLAIMS[name].check.__module__ for name in HERE}


@pytest.mark.parametrize("name", [name for name in CLAIMS if name not in HERE])
def test_what_has_no_check_never_counts_as_passed(name):
    outcome = CLAIMS[name].run()
    assert outcome.absent and not outcome.ran and not outcome.passed and outcome not in Ledger((outcome,)).failed
    assert outcome.to_json()["passed"] is None


def test_nothing_counts_as_passed_that_was_not_run():
    def absent(draw):
        draw.normal(3)
        raise Absent("the results are not here")
        yield

    entry = Entry("T.x", "s", "p", "reading", Verdict.HOLDS)
    missing, empty = Claim(entry, absent).run(), Claim(entry, lambda draw: iter(())).run()
    assert missing.drawn == () and missing.findings == ()
    assert missing.absent == "the results are not here" and not missing.passed and Ledger((missing,)).failed == ()
    assert empty.ran and not empty.passed and Ledger((empty,)).failed == (empty,)


@pytest.mark.parametrize("name", list(CLAIMS))
def test_a_claim_is_one_line_with_a_place(name):
    entry = CLAIMS[name].entry
    assert re.fullmatch(r"[TASQX]\.[^\s]+", entry.id)
    assert len(entry.reading) > 4 and entry.at and entry.source
    for text in (entry.at, entry.reading, entry.words, entry.within, entry.instead, entry.survives, entry.note):
        assert text.strip() == text and "\n" not in text


def test_every_experiment_named_exists():
    named = {claim.entry.experiment for claim in CLAIMS.values() if claim.entry.experiment}
    assert named and named <= reproducible()


@pytest.mark.parametrize(
    ("verdict", "findings", "missing"),
    [
        (Verdict.WRONG, [equals("", 1, predicted=1)], "a counterexample"),
        (Verdict.WRONG, [refutes("", 1, published=2)], "a confirmation"),
        (Verdict.WRONG, [refutes("", 1, published=2), shown("", True)], ""),
        (Verdict.GAUGE, [equals("", 1, predicted=1)], "a number that moves"),
        (Verdict.GAUGE, [moves("", 1, 2)], "a confirmation"),
        (Verdict.LOOSE, [refutes("", 1, published=2)], "a confirmation"),
        (Verdict.HOLDS, [], "a confirmation"),
        (Verdict.UNSUPPORTED, [], "a finding"),
        (Verdict.UNSUPPORTED, [moves("", 1, 2)], ""),
        (Verdict.NOT_REPRODUCED, [], "a finding"),
        (Verdict.NOT_REPRODUCED, [refutes("", 1, published=2)], ""),
        (Verdict.WITHDRAWN, [], ""),
    ],
    ids=lambda value: value.value if isinstance(value, Verdict) else "",
)
def test_the_rule_above_can_be_broken(verdict, findings, missing):
    entry = Entry("T.x", "s", "p", "reading", verdict)
    assert lacking(Claim(entry, lambda draw: iter(findings)).run()) == missing
    assert lacking(Claim(entry).run()) == ("" if verdict is Verdict.NOT_REPRODUCED else lacking(Outcome(entry)))
