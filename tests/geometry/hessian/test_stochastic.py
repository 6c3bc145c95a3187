"""Traces with their standard errors, and spectral densities: moments, counts and outliers, without ghosts."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from normgauge.core.errors import InputError
from normgauge.geometry.hessian import Product, eigenvalues, estimate_trace, spectral_density
from normgauge.geometry.hessian.lanczos import LanczosBasis, gaussian
from normgauge.geometry.hessian.operator import dense_matrix, of_matrix
from normgauge.geometry.hessian.stochastic import _probe, exact_density
from tests.geometry.hessian.made import benchmark, data, fitted, net


@pytest.fixture(scope="module")
def product():
    return Product(fitted(net()), F.cross_entropy, [data()], mode="train", dtype=torch.float64)


def test_estimates_lie_within_their_errors(product):
    wanted = float(dense_matrix(product).trace())
    off = []
    for seed in range(40):
        found, _ = estimate_trace(product, 24, seed=seed)
        off.append((found.value - wanted) / found.standard_error)
    spread = torch.tensor(off)
    assert float((spread.abs() < 2.4).double().mean()) > 0.85
    assert 0.6 < float(spread.std()) < 1.8


def test_parts_add_up_and_are_right(product):
    whole = dense_matrix(product)
    total, parts = estimate_trace(product, 400, parts=product.blocks)
    assert sum(part.value for part in parts.values()) == pytest.approx(total.value)
    for name, place in product.blocks.items():
        wanted = float(whole[place, place].trace())
        assert abs(parts[name].value - wanted) < 5 * parts[name].standard_error + 1e-9


def test_known_directions_take_the_error_out(product):
    wanted = float(dense_matrix(product).trace())
    _, krylov = eigenvalues(product, 10, tolerance=1e-8)
    plain, _ = estimate_trace(product, 16)
    better, _ = estimate_trace(product, 16, krylov=krylov)
    assert better.standard_error < 0.5 * plain.standard_error
    assert abs(better.value - wanted) < 4 * better.standard_error


def test_a_diagonal_matrix_has_no_error():
    values = torch.arange(10.0, dtype=torch.float64)
    found, _ = estimate_trace(of_matrix(torch.diag(values)), 2)
    assert found.value == pytest.approx(45) and found.standard_error == pytest.approx(0, abs=1e-12)


def test_one_sample_has_no_standard_error():
    with pytest.raises(InputError, match="at least 2"):
        estimate_trace(of_matrix(torch.eye(3)), 1)


@pytest.fixture(scope="module")
def matrix():
    return of_matrix(benchmark().outlier_matrix(500))


def test_outliers_are_counted_once(matrix):
    assert spectral_density(matrix, probes=3, steps=50).outliers == 6
    known, _ = eigenvalues(matrix, 3)
    assert spectral_density(matrix, known, probes=3, steps=50).outliers == 6


def test_plain_lanczos_makes_ghosts_and_ours_does_not(matrix):
    generator = torch.Generator().manual_seed(0)
    krylov = LanczosBasis(matrix, gaussian(matrix, generator), generator, 60)
    for _ in range(60):
        krylov.grow()
    assert int((krylov.spectrum()[0] > 2).sum()) == 6
    assert int((benchmark().plain_lanczos(matrix, 60, 0) > 2).sum()) > 6


def test_no_gap_no_outliers():
    values = torch.linspace(0.5, 1.0, 200, dtype=torch.float64)
    found = spectral_density(of_matrix(torch.diag(values)), probes=2, steps=20)
    assert found.outliers == 0 and found.gap < 1.5


def test_weights_sum_to_one_and_give_the_moments(matrix):
    known, _ = eigenvalues(matrix, 6)
    found = spectral_density(matrix, known, probes=6, steps=30)
    assert math.fsum(w for _, w in found.points()) == pytest.approx(1)
    for power in (1, 2):
        wanted = float(torch.linalg.matrix_power(dense_matrix(matrix), power).trace()) / matrix.size
        assert math.fsum(w * v**power for v, w in found.points()) == pytest.approx(wanted, 0.06)
    assert found.count(2.0) == pytest.approx(6)


def test_the_quadrature_is_exact_for_low_powers(matrix):
    start = gaussian(matrix, torch.Generator().manual_seed(5))
    values, shares, _ = _probe(matrix, start, torch.Generator(), 6)
    v = start / start.norm()
    for power in range(12):
        wanted = float(v @ torch.linalg.matrix_power(dense_matrix(matrix), power) @ v)
        assert float((shares * values**power).sum()) == pytest.approx(wanted, 1e-9)


def test_a_network_against_all_its_eigenvalues():
    product = Product(fitted(net(hidden=12), steps=150), F.cross_entropy, [data()], dtype=torch.float64)
    values = torch.linalg.eigvalsh(dense_matrix(product)).flip(0)
    known, _ = eigenvalues(product, 4)
    found, exact = spectral_density(product, known, probes=8, steps=40), exact_density(values.tolist())
    assert found.outliers == exact.outliers > 0
    assert found.gap == pytest.approx(exact.gap, 1e-3)
    assert found.negative_mass == pytest.approx(exact.negative_mass, abs=0.05)
    assert exact.negative_mass == pytest.approx(float(-values[values < 0].sum() / values.abs().sum()))
    assert exact.count(0.0) == pytest.approx(int((values > 0).sum()))


def test_the_curve_is_a_density(matrix):
    found = spectral_density(matrix, probes=2, steps=30)
    at = [-5 + 0.02 * i for i in range(2001)]
    assert sum(found.curve(at, 0.1)) * 0.02 == pytest.approx(1, 1e-3)


def test_a_vector_that_reaches_everything_early_stops():
    found = spectral_density(of_matrix(torch.eye(30, dtype=torch.float64) * 2), probes=2, steps=10)
    assert found.nodes == pytest.approx((2.0, 2.0))
