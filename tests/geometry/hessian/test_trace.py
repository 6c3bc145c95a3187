"""Traces and their standard errors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from normgauge.core.errors import InputError
from normgauge.geometry.hessian import Product, eigenvalues, estimate_trace
from normgauge.geometry.hessian.operator import dense_matrix, of_matrix
from tests.geometry.hessian.made import data, fitted, net


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
