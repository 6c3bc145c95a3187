"""The whole Hessian of a small network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from normgauge.errors import InputError
from normgauge.hessian.operator import Operator
from normgauge.hessian.product import Loss, Product

LARGEST = 5000  # parameters: 200 MB in float64


def dense_hessian(
    model: nn.Module,
    loss: Loss,
    batches: Any,
    *,
    mode: str = "eval",
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """The Hessian as a matrix, in the order of ``named_parameters`` that have a gradient.

    Args:
        model: any module with few parameters.
        loss: ``loss(output, target)``, a scalar.
        batches: as for `Product`.
        mode: ``eval`` or ``train``.
        dtype: precision.

    Returns:
        A symmetric matrix: what rounding left of its skew part is taken out.
    """
    return dense(Product(model, loss, batches, mode=mode, dtype=dtype))


def dense(operator: Operator, symmetric: bool = True) -> Tensor:
    """Any operator as a matrix, one product a column.

    Raises:
        InputError: when it would not fit in memory.
    """
    if operator.size > LARGEST:
        raise InputError(
            f"expected at most {LARGEST} parameters for a dense Hessian, got {operator.size}; take eigenvalues instead"
        )
    units = torch.eye(operator.size, dtype=operator.dtype, device=operator.device)
    matrix = torch.stack([operator.hvp(unit) for unit in units], 1)
    return (matrix + matrix.T) / 2 if symmetric else matrix
