"""Extreme eigenvalues: right, with residuals that hold, in few products."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from normgauge.geometry.hessian import Product, eigenvalues
from normgauge.geometry.hessian.lanczos import LanczosBasis, gaussian, length, solve
from normgauge.geometry.hessian.operator import Mapped, dense_matrix, of_matrix
from tests.geometry.hessian.made import benchmark, data, fitted, net


def spread(size: int = 300, seed: int = 0) -> tuple[Mapped, torch.Tensor]:
    """A matrix with many eigenvalues close together at both ends."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.linspace(-1, 1, size, dtype=torch.float64) ** 3 * 5
    basis = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q
    return of_matrix((basis * values) @ basis.T), values.flip(0)


def test_both_ends_of_a_network():
    product = Product(fitted(net()), F.cross_entropy, [data()], mode="train", dtype=torch.float64)
    wanted = torch.linalg.eigvalsh(dense_matrix(product)).flip(0)
    found, _ = eigenvalues(product, 5, 2, tolerance=1e-8)
    assert found.converged
    assert torch.allclose(found.values, wanted[[0, 1, 2, 3, 4, -2, -1]], rtol=1e-7, atol=1e-9)


def test_residuals_and_errors_hold():
    matrix, wanted = spread()
    found, _ = eigenvalues(matrix, 4, tolerance=1e-4)
    true = torch.stack([matrix.hvp(v) - value * v for v, value in zip(found.vectors, found.values, strict=True)])
    assert torch.allclose(true.norm(dim=1), found.residuals, rtol=1e-3, atol=1e-10)
    nearest = (wanted[None] - found.values[:, None]).abs().min(1).values
    assert bool((nearest <= found.residuals).all())
    assert bool((nearest <= 3 * found.errors).all())


def test_restarts_find_what_a_small_basis_cannot():
    matrix, wanted = spread()
    generator = torch.Generator().manual_seed(0)
    krylov = LanczosBasis(matrix, gaussian(matrix, generator), generator, 20)
    found = solve(krylov, 3, 1, tolerance=1e-9, products=600)
    assert krylov.products > 60  # several restarts
    assert torch.allclose(found.values, wanted[[0, 1, 2, -1]], rtol=1e-8)
    basis = krylov.vectors[: krylov.steps]
    assert torch.allclose(basis @ basis.T, torch.eye(krylov.steps, dtype=torch.float64), atol=1e-12)


def test_the_basis_stays_orthogonal_where_eigenvalues_converge_early():
    values = torch.cat([torch.logspace(12, 0, 13), torch.linspace(0, 1, 187)]).double()
    matrix, generator = of_matrix(torch.diag(values)), torch.Generator().manual_seed(0)
    krylov = LanczosBasis(matrix, gaussian(matrix, generator), generator, 60)
    for _ in range(60):
        krylov.grow()
    basis = krylov.vectors[:60]
    assert float((basis @ basis.T - torch.eye(60, dtype=torch.float64)).abs().max()) < 1e-13


def test_repeated_eigenvalues_and_a_large_null_space_are_found():
    values = torch.zeros(50, dtype=torch.float64)
    values[:5] = torch.tensor([4.0, 4.0, 4.0, 2.0, -1.0])
    found, krylov = eigenvalues(of_matrix(torch.diag(values)), 5, 1)
    assert torch.allclose(found.values, torch.tensor([4.0, 4.0, 4.0, 2.0, 0.0, -1.0], dtype=torch.float64), atol=1e-9)
    assert krylov.products <= 50


@pytest.mark.parametrize("size", [1, 2, 3])
def test_tiny_matrices(size):
    values = torch.arange(1.0, size + 1, dtype=torch.float64)
    found, _ = eigenvalues(of_matrix(torch.diag(values)), 5, 1)
    assert torch.allclose(found.values, values.flip(0))


def test_too_few_products_are_said():
    matrix, _ = spread()
    found, _ = eigenvalues(matrix, 5, tolerance=1e-12, products=8)
    assert not found.converged and found.products == 8
    assert len(eigenvalues(matrix, 5, products=3)[0].values) == 3


def test_scipy_agrees():
    linalg = pytest.importorskip("scipy.sparse.linalg")
    matrix, _ = spread(seed=3)
    wanted = linalg.eigsh(dense_matrix(matrix).numpy(), 3, which="LA", return_eigenvectors=False)
    found, _ = eigenvalues(matrix, 3, tolerance=1e-9)
    assert sorted(found.values.tolist()) == pytest.approx(sorted(wanted), 1e-8)


def test_float32_sums_keep_their_digits():
    vector = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
    assert length(vector) == pytest.approx(float(vector.double().norm()), rel=1e-12)
    matrix, wanted = spread()
    found, _ = eigenvalues(of_matrix(dense_matrix(matrix).float()), 3, tolerance=1e-6)
    assert torch.allclose(found.values, wanted[:3], rtol=3e-6)


def test_five_largest_of_a_large_network_take_25_products():
    pytest.importorskip("sklearn")
    bench = benchmark()
    row = bench.top_five("layer", "train", width=96, seeds=0)
    assert row["products, float64"] <= 25
    assert row["largest error, float64"] < 1e-6
