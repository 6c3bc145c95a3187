"""What the tests of several ledger files ask of a claim."""

from __future__ import annotations

from types import ModuleType

import pytest

from normgauge.core.claim import Kind, Outcome, Verdict
from normgauge.ledger.claim import Claim

NEEDS = {
    Verdict.WRONG: ({Kind.REFUTES}, {Kind.EQUAL, Kind.BELOW}),
    Verdict.LOOSE: ({Kind.BELOW}, {Kind.EQUAL}),
    Verdict.GAUGE: ({Kind.MOVES}, {Kind.EQUAL}),
    Verdict.HOLDS: ({Kind.EQUAL, Kind.BELOW},),
    Verdict.UNSUPPORTED: (set(Kind),),
}


def claims_of(*modules: ModuleType) -> list[Claim]:
    return [claim for module in modules for claim in module.claims.claims]


def named(claim: Claim) -> str:
    return claim.id


def check(claim: Claim, seed: int) -> None:
    """The check passes, shows what its verdict needs, and does so on instances of its own."""
    outcome = claim.run(seed)
    assert not outcome.problem
    assert [finding for finding in outcome.findings if not finding.passed] == []
    kinds = {finding.kind for finding in outcome.findings}
    assert all(kinds & needed for needed in NEEDS[claim.verdict])
    assert numbers(claim.run(seed)) == numbers(outcome)
    assert all(len(curve.x) >= 2 and curve.lines for curve in outcome.curves)


def numbers(outcome: Outcome) -> list[float]:
    return [finding.measured for finding in outcome.findings]


def fresh(claim: Claim) -> bool:
    """Whether another seed gives other numbers."""
    return numbers(claim.run(0)) != numbers(claim.run(1))


def breaks(claim: Claim, module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch, by: float = 1.1) -> bool:
    """Whether the check fails once the formula ``name`` of its file is off by a factor."""
    right = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args, **options: _times(right(*args, **options), by))
    outcomes = [claim.run(seed) for seed in range(2)]
    return not all(outcome.passed for outcome in outcomes) and not any(outcome.problem for outcome in outcomes)


def _times(value: object, by: float) -> object:
    return type(value)(_times(v, by) for v in value) if isinstance(value, tuple | list) else value * by  # type: ignore[operator]
