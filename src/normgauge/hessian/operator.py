"""What the eigenvalue methods need: a symmetric map of flat vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Operator(Protocol):
    """A symmetric matrix that is known by its products."""

    @property
    def size(self) -> int:
        """Rows."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the vectors."""

    @property
    def device(self) -> torch.device:
        """Of the vectors."""

    def hvp(self, vector: Tensor) -> Tensor:
        """The matrix times a vector."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in memory."""

    values: Tensor

    @property
    def size(self) -> int:
        """Rows."""
        return len(self.values)

    @property
    def dtype(self) -> torch.dtype:
        """Of the vectors."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Of the vectors."""
        return self.values.device

    def hvp(self, vector: Tensor) -> Tensor:
        """The matrix times a vector."""
        return self.values @ vector


@dataclass(frozen=True, slots=True)
class Scaled:
    """D H D for a diagonal D: the Hessian in coordinates that are measured in units of D."""

    inner: Operator
    diagonal: Tensor

    @property
    def size(self) -> int:
        """Rows."""
        return self.inner.size

    @property
    def dtype(self) -> torch.dtype:
        """Of the vectors."""
        return self.inner.dtype

    @property
    def device(self) -> torch.device:
        """Of the vectors."""
        return self.inner.device

    def hvp(self, vector: Tensor) -> Tensor:
        """The matrix times a vector."""
        return self.diagonal * self.inner.hvp(self.diagonal * vector)
