"""Claims of Than 2025 on networks: every check passes on several seeds, shows what its verdict needs, can fail."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import pytest
import torch

from normgauge.core.claim import Kind, Verdict
from normgauge.ledger import (
    FAMILIES,
    than_chains,
    than_gradients,
    than_losses,
    than_networks,
    than_stacks,
    than_weights,
)
from normgauge.ledger.claim import Claim
from normgauge.ledger.draw import Draw
from normgauge.ledger.normalized import equal_channels, frozen_stack, rescaled

MODULES = (than_networks, than_stacks, than_chains, than_weights, than_losses, than_gradients)
CLAIMS = [claim for module in MODULES for claim in module.claims.claims]
KINDS = {
    Verdict.WRONG: {Kind.REFUTES, Kind.EQUAL},
    Verdict.LOOSE: {Kind.BELOW, Kind.EQUAL},
    Verdict.GAUGE: {Kind.MOVES, Kind.EQUAL},
    Verdict.HOLDS: {Kind.EQUAL},
    Verdict.UNSUPPORTED: {Kind.MOVES, Kind.EQUAL},
}


def named(claim: Claim) -> str:
    return claim.id


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if claim.check], ids=named)
def test_the_check_passes_and_shows_what_its_verdict_needs(claim: Claim, seed: int) -> None:
    outcome = claim.run(seed)
    assert not outcome.problem
    assert [finding for finding in outcome.findings if not finding.passed] == []
    assert {finding.kind for finding in outcome.findings} >= KINDS[claim.verdict]
    for curve in outcome.curves:
        assert 2 <= len(curve.x) <= 40 and 2 <= len(curve.lines) <= 4
        assert all(len(line) == len(curve.x) for _, line in curve.lines)


@pytest.mark.parametrize("claim", CLAIMS, ids=named)
def test_the_words_fit_on_a_line(claim: Claim) -> None:
    assert claim.id.startswith("T.") and claim.source.startswith("Than 2025, ")
    for text in (claim.statement, claim.correction):
        assert text.strip() == text and "\n" not in text and text.endswith(".")


def test_what_takes_training_names_its_experiment() -> None:
    assert {claim.id: claim.experiment for claim in CLAIMS if not claim.check} == {"T.C10.fig2": "than2025/fig2"}


def test_every_family_of_this_part_is_in_the_ledger_once() -> None:
    counts = Counter(claim.id for family in FAMILIES for claim in family.claims)
    assert all(counts[claim.id] == 1 for claim in CLAIMS)


@pytest.mark.parametrize(
    ("module", "formula", "name"),
    [
        (than_stacks, "separate", "T.T9"),
        (than_stacks, "in_l2", "T.C10.1"),
        (than_stacks, "by_the_worst", "T.C10.2"),
        (than_chains, "at_point", "T.C11.reduce"),
        (than_weights, "after_bound", "T.T12.7"),
        (than_losses, "written_out", "T.C14.10"),
        (than_losses, "as_printed", "T.C14.11"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_wrong_formula_is_caught(
    module: ModuleType, formula: str, name: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(module, formula)
    monkeypatch.setattr(module, formula, lambda *given: factor * right(*given))
    (claim,) = [claim for claim in CLAIMS if claim.id == name]
    assert not claim.run(0).passed


def test_a_rescaled_stack_is_the_same_function() -> None:
    draw = Draw(0, "stack")
    stack = frozen_stack(draw, 3)
    other = rescaled(stack, [10.0, 0.5, 3.0])
    x = draw.normal(stack.weights[0].shape[1])
    assert torch.allclose(other(x), stack(x), rtol=1e-12)
    assert torch.allclose(other.weights[1], stack.weights[1] / 2)
    assert all(torch.allclose(a, b) for a, b in zip(other.folded, stack.folded, strict=True))


def test_a_stack_splits_at_every_layer() -> None:
    draw = Draw(1, "stack")
    stack = frozen_stack(draw, 3, on=True)
    x = draw.normal(stack.weights[0].shape[1])
    for k, weight in enumerate(stack.weights):
        assert torch.equal(stack.after(k)(weight @ stack.entering(k, x)), stack(x))
    assert (stack(x) > 0).all()
    flat, slope = equal_channels(draw, 2, 3, same=True)
    assert torch.equal(flat.variances[0], flat.variances[1]) and slope > 0
