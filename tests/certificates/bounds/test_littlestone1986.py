from __future__ import annotations

import math

import pytest
from scipy.stats import beta

from normgauge.certificates.bounds.littlestone1986 import log_choose, log_share, sample_compression_bound


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
