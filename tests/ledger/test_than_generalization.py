"""Claims of Than 2025 on generalization, and about its experiments."""

from __future__ import annotations

import math

import pytest
import torch

from normgauge.core.claim import Verdict
from normgauge.generalization.bounds.cells import mean_walk, tau_chernoff, tau_published, tau_rademacher, tau_variation
from normgauge.ledger import CLAIMS, than_experiments, than_generalization, than_normalized
from normgauge.ledger.cells import draw_counts
from normgauge.ledger.claim import Claim
from normgauge.ledger.draw import Draw
from normgauge.ledger.examples import BatchNormNet
from tests.ledger.checking import breaks, check, claims_of, fresh, named

MINE = claims_of(than_generalization, than_normalized, than_experiments)
HERE = [claim for claim in MINE if claim.check]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("claim", HERE, ids=named)
def test_the_check_passes_and_shows_what_its_verdict_needs(claim: Claim, seed: int) -> None:
    check(claim, seed)


@pytest.mark.parametrize("claim", HERE, ids=named)
def test_instances_are_fresh(claim: Claim) -> None:
    assert fresh(claim)


def test_figures_are_trained_claims() -> None:
    trained = {claim.id: claim.experiment for claim in MINE if not claim.check}
    assert trained == {f"T.AE.fig{i}": f"than2025/fig{i}" for i in (1, 2, 3)}
    assert all(CLAIMS[name].verdict is Verdict.GAUGE for name in trained)


def test_slacks_are_those_of_the_table() -> None:
    found = [tau_published(10, 10, 50_000, 0.01), tau_rademacher([5000] * 10, 0.01), tau_variation(10, 50_000, 0.01)]
    assert found == pytest.approx([0.0972, 0.0331, 0.0135], rel=5e-3)
    assert tau_chernoff([5000] * 10, 10, 0.01) < found[0]
    assert mean_walk(60) == pytest.approx(60 * math.comb(59, 29) / 2**59)


def test_counts_are_counts() -> None:
    p = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    counts = draw_counts(Draw(0, "counts"), p, 400, 50)
    assert counts.shape == (50, 3) and bool((counts.sum(1) == 400).all())
    assert (counts.mean(0) / 400).tolist() == pytest.approx(p.tolist(), abs=0.02)


def test_a_network_in_another_scale_is_the_same_function() -> None:
    net = BatchNormNet.drawn(Draw(0, "net"), 4, 6)
    other = net.rescaled([torch.full((6,), 100.0, dtype=torch.float64)] * 4)
    x = torch.ones(6, dtype=torch.float64)
    assert torch.allclose(net(x), other(x), rtol=1e-10, atol=0)
    assert other.log_weights - net.log_weights == pytest.approx(8) and other.log_folded == pytest.approx(net.log_folded)


@pytest.mark.parametrize(
    ("name", "module", "formula"),
    [
        ("T.T20.13", than_generalization, "tau_variation"),
        ("T.T20.dimension", than_generalization, "tau_published"),
        ("T.T20.corollary", than_generalization, "local_term"),
        ("T.C22.14", than_normalized, "plain_bound"),
        ("T.C22.BN", than_normalized, "channel_bounds"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_formula_is_seen(name, module, formula, monkeypatch) -> None:
    assert breaks(CLAIMS[name], module, formula, monkeypatch)


def test_a_bound_that_is_too_small_is_seen_by_simulation(monkeypatch) -> None:
    monkeypatch.setattr(than_generalization, "tau_variation", lambda *_: 0.0)
    assert not CLAIMS["T.T20.13"].run(0).passed
    assert tau_variation(5, 100, 0.1) > 0
