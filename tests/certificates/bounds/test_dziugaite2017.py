from __future__ import annotations

import math

import pytest

from normgauge.certificates.bounds import dziugaite2017 as dr
from normgauge.certificates.bounds.perez_ortiz2021 import maurer_exponent as maurer


def test_the_grid_shares_all_of_delta() -> None:
    shares = math.fsum(math.exp(-dr.price(j)) for j in range(1, 200_000))
    assert shares == pytest.approx(1.0, abs=1e-5)
    assert shares < 1.0


@pytest.mark.parametrize("step", [1, 7, 100, 900])
def test_a_variance_finds_its_step(step: int) -> None:
    variance = dr.prior_variance(step)
    assert variance == pytest.approx(0.1 * math.exp(-step / 100), rel=1e-12)
    assert dr.grid_step(variance) == step
    assert dr.grid_step(variance * 1.003) == step
    assert dr.grid_step(5.0) == 1


@pytest.mark.parametrize("n", [2, 3, 10, 55_000])
def test_the_exponent_is_never_below_maurers(n: int) -> None:
    exact = math.fsum(math.comb(n, k) * (k / n) ** k * (1 - k / n) ** (n - k) for k in range(n + 1)) if n < 99 else 0
    xi = exact or 2 * math.sqrt(n)
    assert dr.grid_exponent(3.0, 1, n, 0.05) >= (3.0 + math.log(xi / 0.05)) / n
    assert dr.grid_exponent(3.0, 5, 55_000, 0.05) > maurer(3.0, 55_000, 0.05)


def test_the_exponent_as_published() -> None:
    step, m, kl, delta = 300, 55_000, 5000.0, 0.025
    variance = dr.prior_variance(step)
    published = (kl + 2 * math.log(100 * math.log(0.1 / variance)) + math.log(math.pi**2 * m / (6 * delta))) / (m - 1)
    assert dr.grid_exponent(kl, step, m, delta) == pytest.approx(published, rel=1e-12)


def test_bound_names_what_the_choice_costs() -> None:
    found = dr.grid_prior_bound(0.03, 150_000, 5000.0, 300, 55_000, 0.025, 0.01)
    assert 0.1 < found.value < 0.2  # T-600 of the paper reports .161 at such figures
    assert sum(term for _, term in found.terms) == pytest.approx(found.value)
    assert dict(found.terms)["choice of prior variance"] > 0
    assert dr.grid_prior_bound(0.03, 150_000, 5000.0, 301, 55_000, 0.025, 0.01).value > found.value
    assert dr.grid_prior_bound(0.03, 150_000, 5001.0, 300, 55_000, 0.025, 0.01).value > found.value
    assert dr.grid_prior_bound(0.03, 150_000, 5000.0, 300, 55_001, 0.025, 0.01).value < found.value
    assert dr.grid_prior_bound(0.03, 150_000, 5000.0, 300, 55_000, 0.025, 0.02).value < found.value
