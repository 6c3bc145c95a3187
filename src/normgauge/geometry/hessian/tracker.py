"""The largest eigenvalue followed through a training, three products a reading on average."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.core.curvature import Eigenvalue
from normgauge.core.errors import InputError
from normgauge.geometry.hessian.graph import Loss
from normgauge.geometry.hessian.lanczos import LanczosBasis, eigenvalues, length, ritz_pairs
from normgauge.geometry.hessian.product import Product

SETTLED = 0.02  # residual over value at which a reading ends: within 1 % unless two eigenvalues just crossed
LONGEST = 20  # products of one reading
LENT = 20  # products that the first readings may take in advance, since the network moves fastest then


class Tracker:
    """Reads λ_max again and again while the weights move.

    The first reading starts from a random vector and takes what it needs. Each later one starts from the vector of the
    reading before and ends when ‖Hv − λv‖ ≤ 0.02 λ. Readings that need fewer than three products leave the rest to
    later ones that need more; over a run the mean stays at three. Where that is not enough, the network moves faster
    than it is read, and the residual says so.

    Attributes:
        products: Hessian-vector products of each reading.
        readings: the eigenvalues read.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | None = None,
        *,
        objective: Callable[[nn.Module, Any], Tensor] | None = None,
        mode: str = "train",
        dtype: torch.dtype | None = None,
        products: int = 3,
        seed: int = 0,
    ) -> None:
        """Take what `Product` takes, without the batches.

        Args:
            model: the network that is trained.
            loss: ``loss(output, target)``, a scalar.
            objective: ``objective(model, batch)`` instead.
            mode: ``train`` or ``eval``.
            dtype: precision; the model's own by default.
            products: a reading, on average.
            seed: of the first vector and of dropout masks.

        Raises:
            InputError: for fewer than one product.
        """
        if products < 1:
            raise InputError(f"products: expected at least 1 a reading, got {products}")
        self._make = partial(Product, model, loss, objective=objective, mode=mode, dtype=dtype, seed=seed)
        self._each, self._left, self._seed = products, LENT, seed
        self._vector: Tensor | None = None
        self.products: list[int] = []
        self.readings: list[Eigenvalue] = []

    def read(self, batch: Any) -> Eigenvalue:
        """λ_max of the loss on a batch, or on several; best the same one every time.

        Raises:
            InputError: when the model has other parameters than before.
        """
        product = self._make(batches=batch)
        if self._vector is None:
            found, _ = eigenvalues(product, 1, tolerance=1e-4, seed=self._seed)
        elif self._vector.numel() != product.size:
            had = self._vector.numel()
            raise InputError(f"the model had {had} parameters and has {product.size}: start a new tracker")
        else:
            krylov = self._warm(product, self._vector)
            found = ritz_pairs(krylov, [0], SETTLED)
            self._left += self._each - krylov.products
        self._vector = found.vectors[0] / length(found.vectors[0])
        self.products.append(product.count)
        self.readings.append(found.eigenvalue(0))
        return self.readings[-1]

    def _warm(self, product: Product, start: Tensor) -> LanczosBasis:
        most = max(1, min(self._each + self._left, LONGEST))
        krylov = LanczosBasis(product, start, torch.Generator().manual_seed(self._seed), most)
        for _ in range(most):
            krylov.grow()
            values, residuals, _ = krylov.spectrum()
            if krylov.exhausted or residuals[0] <= SETTLED * values[0].abs():
                break
        return krylov
