from __future__ import annotations

import math
from fractions import Fraction

import pytest
from scipy.stats import beta

from normgauge.certificates.bounds.compression import (
    log_choose,
    log_share,
    pick_to_learn_bound,
    sample_compression_bound,
)


@pytest.mark.parametrize(("n", "k"), [(10, 3), (1000, 500), (60_000, 200), (5, 0), (5, 5)])
def test_binomial_coefficient_from_above(n: int, k: int) -> None:
    truth = math.log(math.comb(n, k))
    assert truth <= log_choose(n, k) <= truth + 1e-7


def test_shares_of_all_choices_add_up_to_delta() -> None:
    total = math.fsum(math.comb(12, k) * math.exp(log_share(12, k, 0.05)) for k in range(13))
    assert 0.04 < total < 0.05


def test_against_the_beta_quantile() -> None:
    errors, n, kept = 12, 2000, 5
    share = 0.05 * 6 / math.pi**2 / 36 / math.comb(n, kept)
    truth = beta.isf(share, errors + 1, n - kept - errors)
    found = sample_compression_bound(errors, n, kept, 0.05)
    assert found.value == pytest.approx(truth, rel=1e-8)
    assert [name for name, _ in found.terms] == ["error on the others", "slack", "price of the choice"]
    assert sum(term for _, term in found.terms) == pytest.approx(found.value)


def test_a_share_below_the_smallest_float_still_counts() -> None:
    small = sample_compression_bound(10, 60_000, 2000, 0.05).value
    assert log_share(60_000, 2000, 0.05) < -5000
    assert 0.1 < small < 0.2
    assert sample_compression_bound(10, 60_000, 2100, 0.05).value > small


def test_monotone_and_limits() -> None:
    base = sample_compression_bound(12, 2000, 5, 0.05).value
    assert sample_compression_bound(13, 2000, 5, 0.05).value > base
    assert sample_compression_bound(12, 2000, 6, 0.05).value > base
    assert sample_compression_bound(12, 2000, 5, 0.06).value < base
    assert sample_compression_bound(0, 10, 10, 0.05).value == 1.0


def psi(kept: int, n: int, delta: float, eps: float) -> float:
    total = sum(
        Fraction(math.comb(m, kept), math.comb(n, kept)) * (1 - Fraction(eps)) ** (m - n) for m in range(kept, n)
    )
    return float(Fraction(delta) / n * total)


@pytest.mark.parametrize(("kept", "n"), [(0, 20), (3, 40), (30, 60), (59, 60)])
def test_solves_the_equation(kept: int, n: int) -> None:
    found = pick_to_learn_bound(kept, n, 0.05)
    assert psi(kept, n, 0.05, found.value) == pytest.approx(1.0, rel=1e-6)
    assert psi(kept, n, 0.05, found.value) >= 1.0
    assert found.terms[0] == ("share picked", kept / n)


def test_picking_is_monotone_and_has_limits() -> None:
    assert pick_to_learn_bound(60, 60, 0.05).value == 1.0
    assert (
        pick_to_learn_bound(4, 60, 0.05).value
        > pick_to_learn_bound(3, 60, 0.05).value
        > pick_to_learn_bound(3, 61, 0.05).value
        > pick_to_learn_bound(3, 61, 0.06).value
    )


def test_large_samples_are_sharper_than_a_union() -> None:
    found = pick_to_learn_bound(200, 20_000, 0.01).value
    assert 0.01 < found < 0.02
    assert found < sample_compression_bound(0, 20_000, 200, 0.01).value
