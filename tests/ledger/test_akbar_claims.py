"""Claims of Akbar: every check passes on several seeds, shows what its verdict needs, and is written down once."""

from __future__ import annotations

from collections import Counter

import pytest

from normgauge.core.claim import Kind, Verdict
from normgauge.ledger import CLAIMS, FAMILIES
from normgauge.ledger.claim import Claim

AKBAR = [claim for claim in CLAIMS.values() if claim.id.startswith("A.")]
CHECKED = [claim for claim in AKBAR if claim.check]
CONFIRMED = {Kind.EQUAL, Kind.BELOW, Kind.SHOWN}
NEEDS = {
    Verdict.WRONG: (Kind.REFUTES, Kind.EQUAL),
    Verdict.LOOSE: (Kind.EQUAL,),
    Verdict.GAUGE: (Kind.MOVES, Kind.EQUAL),
    Verdict.HOLDS: (),
    Verdict.UNSUPPORTED: (),
}
# as the ledger of the project names them
NAMED = [
    "A.D3.1.BN",
    "A.E1",
    "A.LNgrad",
    "A.WNpartials",
    "A.P4.1.first",
    "A.P4.1",
    "A.C4.1.1",
    "A.group",
    "A.metric",
    "A.P4.2",
    "A.P4.2.shift",
    "A.P4.3",
    "A.L5.1",
    "A.R5.1.i",
    "A.R5.1.ii",
    "A.R5.1.iii",
    "A.WD",
    "A.smooth",
    "A.saddle",
    "A.H6.1",
    "A.whiten",
    "A.linear",
    "A.deeplinear",
    "A.bias7.2",
    "A.pacbayes",
    "A.margin",
    "A.A.1.1",
    "A.A.1.2",
    "A.exp1",
    "A.exp2.max",
    "A.exp3.margin",
    "A.exp4.small",
]


def named(claim: Claim) -> str:
    return claim.id


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("claim", CHECKED, ids=named)
def test_the_check_passes_and_shows_what_its_verdict_needs(claim: Claim, seed: int) -> None:
    outcome = claim.run(seed)
    assert not outcome.problem
    assert [finding for finding in outcome.findings if not finding.passed] == []
    kinds = {finding.kind for finding in outcome.findings}
    assert kinds >= set(NEEDS[claim.verdict])
    assert kinds & CONFIRMED or claim.verdict is Verdict.UNSUPPORTED
    assert kinds


@pytest.mark.parametrize("claim", AKBAR, ids=named)
def test_the_words_fit_on_a_line(claim: Claim) -> None:
    assert claim.source.startswith("Akbar, ")
    for text in (claim.statement, claim.correction):
        assert text and text.strip() == text and "\n" not in text and len(text) <= 240


def test_every_statement_named_by_the_ledger_is_there_once() -> None:
    counted = Counter(claim.id for family in FAMILIES for claim in family.claims if family.letter == "A")
    assert [name for name in NAMED if counted[name] != 1] == []
    assert max(counted.values()) == 1


def test_what_is_not_checked_here_is_trained_or_says_why() -> None:
    unchecked = [claim for claim in AKBAR if not claim.check]
    trained = {claim.experiment for claim in unchecked if claim.experiment}
    assert all(name.startswith("akbar2025/") for name in trained)
    assert [claim.id for claim in unchecked if not claim.experiment and len(claim.correction) < 40] == []


@pytest.mark.parametrize(
    "claim",
    [CLAIMS[name] for name in ("A.P4.1.eps", "A.R5.1.i", "A.WD", "A.Hzero", "A.7.2.batch", "A.9.5.depth")],
    ids=named,
)
def test_curves_are_small_and_even(claim: Claim) -> None:
    (curve,) = claim.run(0).curves
    assert 2 <= len(curve.x) <= 40 and 2 <= len(curve.lines) <= 4
    assert all(len(line) == len(curve.x) for _, line in curve.lines)
    assert curve.x == tuple(sorted(curve.x))


@pytest.mark.parametrize(
    "claim", [CLAIMS[name] for name in ("A.E1", "A.WD", "A.H6.1", "A.L5.1", "A.2.3.yang")], ids=named
)
def test_another_seed_is_another_instance(claim: Claim) -> None:
    one, again, other = (claim.run(seed) for seed in (5, 5, 6))
    assert [f.measured for f in one.findings] == [f.measured for f in again.findings]
    assert [(f.measured, f.error) for f in one.findings] != [(f.measured, f.error) for f in other.findings]
