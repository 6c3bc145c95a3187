"""Claims of the slides of 2023."""

from __future__ import annotations

import math

import pytest

from normgauge.ledger import CLAIMS, slides, slides_learning, slides_rates
from normgauge.ledger.claim import Claim
from normgauge.ledger.slides_learning import maurer, slide_pac_bayes, vc_bound
from tests.ledger.checking import breaks, check, claims_of, fresh, named

MINE = claims_of(slides, slides_learning, slides_rates)
HERE = [claim for claim in MINE if claim.check]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("claim", HERE, ids=named)
def test_the_check_passes_and_shows_what_its_verdict_needs(claim: Claim, seed: int) -> None:
    check(claim, seed)


@pytest.mark.parametrize("claim", [c for c in HERE if c.id != "S.arithmetic"], ids=named)
def test_instances_are_fresh(claim: Claim) -> None:
    assert fresh(claim)


def test_only_what_cannot_be_computed_has_no_check() -> None:
    rest = {claim.id: claim.checked for claim in MINE if not claim.check}
    assert rest == {"S.kernels": "reading", "S.VC.relu": "reading", "S.product": "than2025/slide"}


def test_formulas_have_the_values_of_the_ledger() -> None:
    assert (slide_pac_bayes(100, 1000, 0.05), maurer(100, 1000, 0.05)) == pytest.approx((0.2345, 0.2315), rel=1e-3)
    assert math.isnan(vc_bound(11e6, 50_000, 0.05)) and vc_bound(10, 50_000, 0.05) < 0.1


@pytest.mark.parametrize(
    ("name", "module", "formula"),
    [
        ("S.VC", slides_learning, "vc_bound"),
        ("S.McAllester", slides_learning, "slide_pac_bayes"),
        ("S.McAllester", slides_learning, "maurer"),
        ("S.T1.rate", slides_rates, "tau_published"),
        ("S.rate.nonconvex", slides_rates, "goldstein_rate"),
        ("S.LN", slides, "norm"),
        ("S.L4", slides, "norm"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_formula_is_seen(name, module, formula, monkeypatch) -> None:
    assert breaks(CLAIMS[name], module, formula, monkeypatch)
