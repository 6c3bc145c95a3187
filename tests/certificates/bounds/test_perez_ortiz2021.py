from __future__ import annotations

import math

import pytest
from scipy.optimize import brentq
from scipy.special import rel_entr

from normgauge.certificates.bounds.kl import kl_inverse
from normgauge.certificates.bounds.perez_ortiz2021 import maurer_exponent, monte_carlo, pac_bayes_kl_bound


def inverse(q: float, c: float) -> float:
    def excess(p: float) -> float:
        return float(rel_entr(q, p) + rel_entr(1 - q, 1 - p)) - c

    return float(brentq(excess, q, 1 - 1e-15, xtol=1e-14))


def xi(n: int) -> float:
    return math.fsum(math.comb(n, k) * (k / n) ** k * (1 - k / n) ** (n - k) for k in range(n + 1))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 50, 500])
def test_the_constant_covers_every_sample_size(n: int) -> None:
    assert xi(n) <= 2 * math.sqrt(n) * (1 + 1e-12)


def gibbs(loss: float, kl: float, n: int, delta: float) -> float:
    return kl_inverse(loss, maurer_exponent(kl, n, delta))


@pytest.mark.parametrize(("loss", "kl", "n"), [(0.03, 5000.0, 60_000), (0.3, 10.0, 500), (0.0, 100.0, 10_000)])
def test_kl_form_against_a_root_finder(loss: float, kl: float, n: int) -> None:
    exact = (kl + math.log(2 * math.sqrt(n) / 0.05)) / n
    assert gibbs(loss, kl, n, 0.05) == pytest.approx(inverse(loss, exact), rel=1e-9)
    assert gibbs(loss, kl, n, 0.05) <= loss + math.sqrt(maurer_exponent(kl, n, 0.05) / 2)  # Pinsker


def test_grows_the_way_it_must() -> None:
    base = gibbs(0.1, 50.0, 1000, 0.05)
    assert gibbs(0.11, 50.0, 1000, 0.05) > base
    assert gibbs(0.1, 51.0, 1000, 0.05) > base
    assert gibbs(0.1, 50.0, 1001, 0.05) < base
    assert gibbs(0.1, 50.0, 1000, 0.06) < base
    assert gibbs(0.1, 1e9, 1000, 0.05) == pytest.approx(1.0)
    assert gibbs(0.1, 50.0, 10**12, 0.05) == pytest.approx(0.1, abs=1e-4)


def test_monte_carlo_has_its_own_share() -> None:
    assert monte_carlo(0.02, 1000, 0.01) == pytest.approx(inverse(0.02, math.log(200) / 1000), rel=1e-9)
    whole = pac_bayes_kl_bound(0.02, 1000, 50.0, 10_000, 0.025, 0.01)
    assert whole.value == pytest.approx(
        inverse(inverse(0.02, math.log(200) / 1000), (50 + math.log(200 / 0.025)) / 10_000), rel=1e-9
    )
    assert [name for name, _ in whole.terms] == ["sampled Gibbs loss on D", "Monte Carlo", "slack", "divergence"]
    assert sum(term for _, term in whole.terms) == pytest.approx(whole.value)
    assert pac_bayes_kl_bound(0.02, 2000, 50.0, 10_000, 0.025, 0.01).value < whole.value
