"""The brute-force truth checks compare with: dense Jacobians by autograd and their largest singular values."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from normgauge.instrument.testing.bench import dense_jacobian


def jacobian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The Jacobian of a differentiable map at ``x``, one row an output, in float64 and without a graph.

    >>> jacobian(lambda x: x**2, torch.tensor([1.0, 3.0])).tolist()
    [[2.0, 0.0], [0.0, 6.0]]
    """
    point = x.detach().double().clone().requires_grad_()
    # one row at a time: some normalizers have no batched backward, and every matrix here is small
    return dense_jacobian(function(point), point).detach()


def jacobian_slope(function: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """‖J(x)‖, the norm of the Jacobian at ``x``."""
    return spectral_norm(jacobian(function, x))


def spectral_norm(matrix: Tensor) -> float:
    """The spectral norm of ``matrix``, its largest singular value; of a vector its length."""
    return float(torch.linalg.matrix_norm(matrix.detach().double().reshape(matrix.shape[0], -1), 2))
