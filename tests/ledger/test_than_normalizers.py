"""Claims of Than 2025 on normalizers: every check passes on several seeds, shows what its verdict needs, can fail."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from normgauge.core.claim import Kind, Outcome, Verdict
from normgauge.ledger import than_groupnorm, than_layernorm, than_local, than_normalizers
from normgauge.ledger.claim import Claim
from normgauge.ledger.jacobians import jacobian, norm

MODULES = (than_normalizers, than_layernorm, than_groupnorm, than_local)
CLAIMS = [claim for module in MODULES for claim in module.claims.claims]
KINDS = {
    Verdict.WRONG: {Kind.REFUTES, Kind.EQUAL},
    Verdict.LOOSE: {Kind.BELOW, Kind.EQUAL},
    Verdict.GAUGE: {Kind.MOVES, Kind.EQUAL},
    Verdict.HOLDS: {Kind.EQUAL},
    Verdict.UNSUPPORTED: set[Kind](),
}


def named(claim: Claim) -> str:
    return claim.id


def numbers(outcome: Outcome) -> list[float]:
    return [finding.measured for finding in outcome.findings]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if claim.check], ids=named)
def test_the_check_passes_and_shows_what_its_verdict_needs(claim: Claim, seed: int) -> None:
    outcome = claim.run(seed)
    assert not outcome.problem
    assert [finding for finding in outcome.findings if not finding.passed] == []
    kinds = {finding.kind for finding in outcome.findings}
    assert kinds >= KINDS[claim.verdict]
    for curve in outcome.curves:
        assert 2 <= len(curve.x) <= 40 and 2 <= len(curve.lines) <= 4
        assert all(len(line) == len(curve.x) for _, line in curve.lines)


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if claim.check], ids=named)
def test_the_instances_are_fresh(claim: Claim) -> None:
    assert numbers(claim.run(0)) == numbers(claim.run(0))
    assert numbers(claim.run(0)) != numbers(claim.run(1))


@pytest.mark.parametrize("claim", CLAIMS, ids=named)
def test_the_words_fit_on_a_line(claim: Claim) -> None:
    assert claim.id.startswith("T.") and claim.source.startswith("Than 2025, ")
    for text in (claim.statement, claim.correction):
        assert text.strip() == text and "\n" not in text and text.endswith(".")


def test_only_what_cannot_be_computed_has_no_check() -> None:
    assert [claim.id for claim in CLAIMS if not claim.check] == ["T.L3.second"]


@pytest.mark.parametrize(
    ("module", "formula", "name"),
    [
        (than_layernorm, "spread", "T.L2"),
        (than_layernorm, "spread", "T.L23"),
        (than_groupnorm, "spreads", "T.L3"),
        (than_groupnorm, "spreads", "T.L3.maps"),
    ],
    ids=["lemma 2", "lemma 23", "lemma 3", "feature maps"],
)
def test_a_wrong_formula_is_caught(
    module: ModuleType, formula: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(module, formula)
    monkeypatch.setattr(module, formula, lambda x, eps: right(x, 2 * eps))
    (claim,) = [claim for claim in CLAIMS if claim.id == name]
    assert not claim.run(0).passed


def test_jacobians_are_flat_double_and_leave_their_point_alone() -> None:
    x = torch.tensor([[1.0, 2.0]])
    slopes = jacobian(lambda v: v.T @ v, x)
    assert slopes.dtype == torch.float64 and not slopes.requires_grad
    assert slopes.tolist() == [[2, 0], [2, 1], [2, 1], [0, 4]]
    assert x.grad is None and x.dtype == torch.float32
    assert jacobian(lambda v: torch.ones(2) + 0 * v.sum(), x).tolist() == [[0, 0], [0, 0]]


def test_norms_are_spectral() -> None:
    assert norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]])) == 4
    assert norm(torch.ones(2, 2)) == pytest.approx(2)
    assert norm(torch.tensor([3.0, 4.0])) == pytest.approx(5)
