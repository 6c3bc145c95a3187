"""Claims of the summary page."""

from __future__ import annotations

import pytest
import torch

from normgauge.ledger import CLAIMS, summary
from normgauge.ledger.claim import Claim
from tests.ledger.checking import breaks, check, claims_of, fresh, named

MINE = claims_of(summary)
HERE = [claim for claim in MINE if claim.check]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("claim", HERE, ids=named)
def test_the_check_passes_and_shows_what_its_verdict_needs(claim: Claim, seed: int) -> None:
    check(claim, seed)


@pytest.mark.parametrize("claim", HERE, ids=named)
def test_instances_are_fresh(claim: Claim) -> None:
    assert fresh(claim)


def test_experiments_to_run_were_run() -> None:
    assert {claim.checked for claim in MINE if not claim.check} == {
        "than2025/optimizers", "than2025/count", "than2025/fig1", "than2025/below",
    }  # fmt: skip


def test_counting_layers_leaves_the_random_state_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    CLAIMS["Q.attribution"].run(0)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("name", ["Q.LN", "Q.GN", "Q.OQ1", "Q.OQ3", "Q.local", "Q.failure.width"])
def test_a_wrong_norm_is_seen(name, monkeypatch) -> None:
    assert breaks(CLAIMS[name], summary, "norm", monkeypatch)
