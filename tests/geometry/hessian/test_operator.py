"""Operators known by their products, against the matrices they are."""

from __future__ import annotations

import pytest
import torch

from normgauge.core.errors import InputError
from normgauge.geometry.hessian.operator import LARGEST, Mapped, dense_matrix, of_matrix, scaled_operator

MATRIX = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_matrix_comes_back_as_it_was_or_symmetric():
    assert torch.equal(dense_matrix(of_matrix(MATRIX), symmetric=False), MATRIX)
    assert torch.equal(dense_matrix(of_matrix(MATRIX)), (MATRIX + MATRIX.T) / 2)


def test_a_scaled_operator_is_dhd():
    d = torch.tensor([1.0, 2.0, 0.0, -3.0, 0.5], dtype=torch.float64)
    scaled = dense_matrix(scaled_operator(of_matrix(MATRIX), d), symmetric=False)
    assert torch.allclose(scaled, torch.diag(d) @ MATRIX @ torch.diag(d), rtol=1e-14)


def test_what_does_not_fit_in_memory_is_refused_before_a_product_is_made():
    def fail(vector: torch.Tensor) -> torch.Tensor:
        raise AssertionError("a product was made")

    with pytest.raises(InputError, match=f"at most {LARGEST} parameters for a dense Hessian, got {LARGEST + 1}"):
        dense_matrix(Mapped(LARGEST + 1, torch.float64, torch.device("cpu"), fail))
