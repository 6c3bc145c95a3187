"""A gradient that is scale-free and nothing else: known size, tangent, a fresh direction each time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normgauge.core.errors import InputError
from normgauge.geometry.dynamics.sphere import tangent


class TangentNoise:
    """Stands in for the gradient of a scale-free loss: g = (I − ŵŵᵀ)(G_i ξ_i)_i / ‖w‖, ξ fresh standard normal noise.

    With ``exact`` every g has norm √(ΣG_i²)/‖w‖ exactly: the "constant G" of THEORY 12.

    Args:
        gradients: G_i for each coordinate.
        exact: whether to fix the norm of each gradient.
        seed: of the noise.

    Raises:
        InputError: if there are fewer than two coordinates or one is negative.
    """

    def __init__(self, gradients: Sequence[float] | Tensor, *, exact: bool = False, seed: int = 0) -> None:
        self._gradients = torch.as_tensor(gradients, dtype=torch.float64)
        if self._gradients.ndim != 1 or len(self._gradients) < 2 or not bool((self._gradients >= 0).all()):
            raise InputError("expected at least two gradients, all >= 0: on a line there is no direction across w.")
        self._exact = exact
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, w: Tensor) -> Tensor:
        """The gradient at ``w``.

        Args:
            w: one vector, or one a row, float64.

        Returns:
            A fresh gradient, orthogonal to each vector.
        """
        norms = w.detach().norm(dim=-1, keepdim=True)
        noise = self._gradients * torch.randn(w.shape, generator=self._generator, dtype=torch.float64)
        across = tangent(w.detach() / norms, noise)
        if self._exact:
            across *= self._gradients.norm() / across.norm(dim=-1, keepdim=True)
        return across / norms
