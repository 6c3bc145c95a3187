"""What the eigenvalue methods need: a symmetric map of flat vectors, and small ones written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from normgauge.core.errors import InputError

LARGEST = 5000  # parameters: 200 MB in float64


class Operator(Protocol):
    """A symmetric matrix that is known by its products.

    Attributes:
        size: rows.
        dtype, device: of the vectors.
    """

    size: int
    dtype: torch.dtype
    device: torch.device

    def hvp(self, vector: Tensor) -> Tensor:
        """The matrix times a vector."""


@dataclass(slots=True)
class Mapped:
    """An `Operator` given by what it does to a vector."""

    size: int
    dtype: torch.dtype
    device: torch.device
    hvp: Callable[[Tensor], Tensor]


def of_matrix(values: Tensor) -> Mapped:
    """The operator of a matrix in memory."""
    return Mapped(len(values), values.dtype, values.device, lambda vector: values @ vector)


def scaled_operator(inner: Operator, diagonal: Tensor) -> Mapped:
    """D H D for a diagonal D: the Hessian in coordinates that are measured in units of D."""
    return Mapped(inner.size, inner.dtype, inner.device, lambda vector: diagonal * inner.hvp(diagonal * vector))


def dense_matrix(operator: Operator, symmetric: bool = True) -> Tensor:
    """The matrix of an operator, one product a column.

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
