"""Claims of Than 2025 on training."""

from __future__ import annotations

import pytest

from normgauge.ledger import CLAIMS, than_cost, than_training
from normgauge.ledger.claim import Claim
from normgauge.ledger.than_training import convex_steps, goldstein_rate, goldstein_steps, strong_steps
from tests.ledger.checking import breaks, check, claims_of, fresh, named

MINE = claims_of(than_training, than_cost)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("claim", MINE, ids=named)
def test_the_check_passes_and_shows_what_its_verdict_needs(claim: Claim, seed: int) -> None:
    check(claim, seed)


@pytest.mark.parametrize("claim", MINE, ids=named)
def test_instances_are_fresh(claim: Claim) -> None:
    assert fresh(claim)


def test_hard_instances_take_a_step_a_coordinate() -> None:
    assert convex_steps(7, 2.0, 3.0) == 7 and strong_steps(9, 2.0, 0.5) == 9
    assert goldstein_steps(2.0, 10.5, 1.0) == 10


def test_the_rate_has_no_units() -> None:
    base = goldstein_rate(2.0, 3.0, 0.5, 0.1)
    assert goldstein_rate(14.0, 21.0, 0.5, 0.7) == pytest.approx(base)  # loss × 7
    assert goldstein_rate(2.0 / 7, 3.0, 3.5, 0.1 / 7) == pytest.approx(base)  # weights × 7


@pytest.mark.parametrize(
    ("name", "formula", "by"),
    [
        ("T.rate.convex", "convex_steps", 2),
        ("T.rate.strong", "brute_minimum", 1.1),
        ("T.rate.nonconvex", "goldstein_rate", 2),
    ],
)
def test_a_wrong_formula_is_seen(name, formula, by, monkeypatch) -> None:
    assert breaks(CLAIMS[name], than_training, formula, monkeypatch, by)


def test_the_cost_of_training_can_fail_too(monkeypatch) -> None:
    assert breaks(CLAIMS["T.C18.depth"], than_cost, "norm", monkeypatch)
