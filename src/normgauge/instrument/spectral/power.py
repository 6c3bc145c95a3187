"""Top singular pair of a linear map given by its action and the action of its adjoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Linear = Callable[[Tensor], Tensor]

CHECKED, CHECKED_AFAR = 4, 16
"""Steps from one look at the residuals to the next, on the CPU and on a device that has to be waited for."""

EXHAUSTED = 450
"""A residual below so many roundings of its vector is nothing else: the space is invariant and cannot grow."""


def seeded_start(shape: tuple[int, ...], like: Tensor, seed: int = 0) -> Tensor:
    """A unit Gaussian direction from its own generator, the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(shape, generator=generator, dtype=torch.float64).to(like.device)
    return direction / direction.norm()


@dataclass(frozen=True, slots=True)
class KrylovBasis:
    """A Lanczos basis of AᵀA: orthonormal rows, AᵀA of each row, both (k, dimension), and the unit top Ritz vector."""

    basis: Tensor
    images: Tensor
    top: Tensor

    def leading(self, count: int) -> Tensor:
        """The Ritz vectors of the largest Ritz values, at most ``count`` orthonormal rows, the largest first."""
        _, vectors = torch.linalg.eigh(self.basis @ self.images.T)
        return vectors[:, -count:].flip(1).T @ self.basis


def krylov(
    normal: Linear, start: Tensor, steps: int, tolerance: float, known: KrylovBasis | None = None, pairs: int = 1
) -> KrylovBasis:
    """Lanczos basis of AᵀA with full reorthogonalization, so that no ghost copies of converged pairs appear.

    Holds:  the top Ritz value is a lower bound of ‖A‖² up to rounding, whatever the number of steps.
    Source: Golub & Van Loan, Matrix Computations, 4th ed., §10.1 and §10.4.

    Args:
        normal: x ↦ AᵀA x, on vectors (dimension,).
        start: first direction (dimension,), not zero.
        steps: most rows of the basis.
        tolerance: stop when the residuals of the top pairs are below this part of the top Ritz value.
        known: an earlier basis from the same map, to go on from.
        pairs: how many top pairs have to meet the tolerance.
    """
    size, least = start.numel(), EXHAUSTED * torch.finfo(start.dtype).eps
    steps = min(steps, size)
    basis = start.new_empty(steps, size)  # rows, so that one more vector is one contiguous write
    images = torch.empty_like(basis)
    first, vector = 0, start / start.norm()
    if known is not None:
        first = min(len(known.basis), steps)
        basis[:first], images[:first] = known.basis[:first], known.images[:first]
        vector = _orthogonal_part(images[first - 1], basis[:first])
        if first == steps or float(vector.norm()) <= least * float(images[first - 1].norm()):
            return known
        vector = vector / vector.norm()
    top, count, sizes = vector, first, start.new_empty(steps, 2)
    every = CHECKED if start.device.type == "cpu" else CHECKED_AFAR
    for k in range(first, steps):
        basis[k], images[k] = vector, normal(vector)
        count = k + 1
        residual = _orthogonal_part(images[k], basis[:count])
        sizes[k, 0], sizes[k, 1] = residual.norm(), images[k].norm()
        vector = residual / sizes[k, 0]
        if count % every and count < steps:
            continue
        betas, lengths = sizes[first:count].T.tolist()
        ended = [i for i, beta in enumerate(betas) if not beta > least * lengths[i]]
        count = first + ended[0] + 1 if ended else count  # what came behind the end of the space is rounding
        values, vectors = torch.linalg.eigh((basis[:count] @ images[:count].T).cpu())
        top = vectors[:, -1].to(basis.device) @ basis[:count]
        if ended or betas[-1] * float(vectors[-1, -pairs:].abs().max()) <= tolerance * float(values[-1]):
            break
    return KrylovBasis(basis[:count], images[:count], top / top.norm())


def _orthogonal_part(vector: Tensor, rows: Tensor) -> Tensor:
    # The two large coefficients first: then one full pass is enough.
    for row in rows[-2:]:
        vector = vector - (row @ vector) * row
    return vector - rows.T @ (rows @ vector)


def top_singular(
    forward: Linear, adjoint: Linear, start: Tensor, steps: int = 60, tolerance: float = 1e-5
) -> tuple[float, Tensor, Tensor]:
    """The largest singular value seen from ``start``, with its unit left and right vectors.

    Args:
        forward: x ↦ A x.
        adjoint: y ↦ Aᵀ y.
        start: first direction, float64, not zero; a warm start needs only few steps.
        steps: most applications of A and of Aᵀ.
        tolerance: relative residual of AᵀA v = σ² v at which to stop.

    Returns:
        σ = ‖A v‖ (a lower bound of ‖A‖ up to rounding), u = A v / σ, v. For A v = 0, σ = 0 and u = 0.
    """

    def normal(x: Tensor) -> Tensor:
        return adjoint(forward(x.reshape(start.shape))).reshape(-1)

    right = krylov(normal, start.reshape(-1), steps, tolerance).top.reshape(start.shape)
    image = forward(right)
    sigma = float(image.norm())
    return sigma, image / sigma if sigma > 0.0 else image, right
