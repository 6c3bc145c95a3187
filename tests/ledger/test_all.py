"""Rules that every claim keeps, whoever wrote it: what its verdict must show, how it is named, where it comes from."""

from __future__ import annotations

import re

import pytest

from normgauge.cli.reproduce import checkout, figures, papers
from normgauge.core.claim import Kind, Outcome, Verdict
from normgauge.ledger import CLAIMS, FAMILIES
from normgauge.ledger.claim import Claim, equal, moves, refutes, shown

SEED = 20_25
CONFIRMS = {Kind.EQUAL, Kind.BELOW, Kind.SHOWN}
HERE = [name for name, claim in CLAIMS.items() if claim.check]


def lacking(outcome: Outcome) -> str:
    """What a verdict needs and the findings do not show; "" where nothing is missing."""
    kinds = {finding.kind for finding in outcome.findings}
    if outcome.verdict is Verdict.WRONG and Kind.REFUTES not in kinds:
        return "a counterexample"
    if outcome.verdict is Verdict.GAUGE and Kind.MOVES not in kinds:
        return "a number that moves"
    confirmed = outcome.verdict in (Verdict.WRONG, Verdict.LOOSE, Verdict.GAUGE, Verdict.HOLDS)
    if confirmed and not kinds & CONFIRMS:
        return "a confirmation"
    return "" if kinds else "a finding"


@pytest.mark.parametrize("name", HERE)
def test_a_check_passes_and_shows_what_its_verdict_says(name):
    outcome = CLAIMS[name].run(SEED)
    assert outcome.passed, (outcome.problem, [f for f in outcome.findings if not f.passed])
    assert lacking(outcome) == ""
    assert all(f.what.strip() and "\n" not in f.what for f in outcome.findings)
    for curve in outcome.curves:
        assert curve.lines and all(len(line) == len(curve.x) > 1 for _, line in curve.lines), curve.title
    outcome.to_json()


@pytest.mark.parametrize("name", list(CLAIMS))
def test_a_claim_is_one_line_with_a_source(name):
    claim = CLAIMS[name]
    assert re.fullmatch(r"[TASQX]\.[^\s].*", claim.id) and claim.id == claim.id.strip()
    for text in (claim.statement, claim.correction, claim.source):
        assert text.strip() == text and "\n" not in text and len(text) > 4
    assert len(claim.statement) <= 240
    paper, _, place = claim.source.partition(", ")
    assert paper and place


def test_no_claim_is_lost_by_having_the_id_of_another():
    ids = [claim.id for family in FAMILIES for claim in family.claims]
    assert len(ids) == len(set(ids)) == len(CLAIMS)


def test_every_experiment_named_exists():
    named = {claim.experiment for claim in CLAIMS.values() if claim.experiment}
    root = checkout()
    there = {f"{paper}/{figure}" for paper in papers(root) for figure in figures(root, paper)}
    assert named <= there


@pytest.mark.parametrize(
    ("verdict", "findings", "missing"),
    [
        (Verdict.WRONG, [equal("", 1, predicted=1)], "a counterexample"),
        (Verdict.WRONG, [refutes("", 1, published=2)], "a confirmation"),
        (Verdict.WRONG, [refutes("", 1, published=2), shown("", True)], ""),
        (Verdict.GAUGE, [equal("", 1, predicted=1)], "a number that moves"),
        (Verdict.GAUGE, [moves("", 1, 2)], "a confirmation"),
        (Verdict.LOOSE, [refutes("", 1, published=2)], "a confirmation"),
        (Verdict.HOLDS, [], "a confirmation"),
        (Verdict.UNSUPPORTED, [], "a finding"),
        (Verdict.UNSUPPORTED, [moves("", 1, 2)], ""),
    ],
    ids=lambda value: value.value if isinstance(value, Verdict) else "",
)
def test_the_rule_above_can_be_broken(verdict, findings, missing):
    claim = Claim("T.x", "s, p", "statement", verdict, "correction", lambda draw: iter(findings))
    assert lacking(claim.run()) == missing
