"""The truth that checks compare with, against known values."""

from __future__ import annotations

import pytest
import torch

from normgauge.theory.jacobians import jacobian, spectral_norm


def test_jacobians_are_flat_double_and_leave_their_point_alone():
    x = torch.tensor([[1.0, 2.0]])
    slopes = jacobian(lambda v: v.T @ v, x)
    assert slopes.dtype == torch.float64 and not slopes.requires_grad
    assert slopes.tolist() == [[2, 0], [2, 1], [2, 1], [0, 4]]
    assert x.grad is None and x.dtype == torch.float32
    assert jacobian(lambda v: torch.ones(2) + 0 * v.sum(), x).tolist() == [[0, 0], [0, 0]]


def test_norms_are_spectral():
    assert spectral_norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]])) == 4
    assert spectral_norm(torch.ones(2, 2)) == pytest.approx(2)
    assert spectral_norm(torch.tensor([3.0, 4.0])) == pytest.approx(5)
