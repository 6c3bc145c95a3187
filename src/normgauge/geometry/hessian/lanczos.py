"""Extreme eigenvalues by Lanczos with full reorthogonalization and thick restarts, each with its residual."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.curvature import Eigenvalue
from normgauge.geometry.hessian.operator import Operator

BASIS = 60  # vectors kept at most; a restart keeps the best third
PRODUCTS = 300  # at most, where the tolerance is not met before
SLICE = 1 << 16
NOTHING = 1e-10  # a new direction shorter than this share of the matrix's norm is rounding


@dataclass(frozen=True, slots=True)
class Ritz:
    """Approximate eigenvalues and eigenvectors.

    Attributes:
        values: in descending order.
        residuals: ‖Hv − λv‖ of each: some eigenvalue is at most that far away.
        errors: ‖Hv − λv‖²/gap, or the residual where that is smaller: the expected error. The gap is taken to the
            other values found, so this one is an estimate.
        vectors: one a row.
        products: Hessian-vector products used.
        converged: whether every error met the tolerance.
    """

    values: Tensor
    residuals: Tensor
    errors: Tensor
    vectors: Tensor
    products: int
    converged: bool

    def eigenvalue(self, place: int) -> Eigenvalue:
        """One of the values with its errors, as plain numbers."""
        return Eigenvalue(*(float(numbers[place]) for numbers in (self.values, self.residuals, self.errors)))


class LanczosBasis:
    """An orthonormal basis V with HV = VT + βv eᵀ; grows by one product a step.

    Every new vector is made orthogonal to all others twice, so no eigenvalue appears a second time as a ghost
    (Parlett 1998, §6.9 and §13).
    """

    def __init__(self, operator: Operator, start: Tensor, generator: torch.Generator, most: int = BASIS) -> None:
        self.operator = operator
        self.generator = generator
        self.most = min(most, operator.size)
        self.vectors = torch.empty(self.most + 1, operator.size, dtype=operator.dtype, device=operator.device)
        self.projected = torch.zeros(self.most + 1, self.most + 1, dtype=torch.float64)
        self.vectors[0] = start / length(start)
        self.steps = 0
        self.products = 0
        self.beta = 1.0

    @property
    def exhausted(self) -> bool:
        """Whether the basis spans the whole space."""
        return self.steps == self.operator.size

    def grow(self) -> None:
        """One product: the next column of T and the next vector."""
        if self.steps == self.most and not self.exhausted:
            self.restart(max(self.most // 3, 1))
        j = self.steps
        new = self.operator.hvp(self.vectors[j])
        self.products += 1
        known = self.vectors[: j + 1]
        column, new = orthogonal(known, new)
        again, new = orthogonal(known, new)
        column += again
        self.projected[: j + 1, j] = column
        self.projected[j, : j + 1] = column
        self.steps += 1
        self.beta = length(new)
        if self.exhausted:
            self.beta = 0.0
        elif self.beta <= NOTHING * float(self.projected[: j + 1, : j + 1].norm()):
            self.beta, self.vectors[j + 1] = 0.0, self.elsewhere()
        else:
            self.vectors[j + 1] = new / self.beta

    def elsewhere(self) -> Tensor:
        """A random direction outside the basis, for when the basis spans an invariant subspace."""
        new = gaussian(self.operator, self.generator)
        for _ in range(2):
            _, new = orthogonal(self.vectors[: self.steps], new)
        return new / length(new)

    def spectrum(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ritz values in descending order, their residuals, and their coordinates in the basis, one a column."""
        values, rotations = torch.linalg.eigh(self.projected[: self.steps, : self.steps])
        values, rotations = values.flip(0), rotations.flip(1)
        rounding = torch.finfo(self.operator.dtype).eps * values.abs().max()
        return values, (self.beta * rotations[-1]).abs().clamp_min(rounding), rotations

    def lift(self, rotations: Tensor) -> Tensor:
        """Coordinates in the basis, one a column, as vectors, one a row."""
        return rotations.T.to(self.vectors) @ self.vectors[: self.steps]

    def known(self) -> tuple[Tensor, Tensor]:
        """V, one vector a row, and T, in the precision of the vectors."""
        basis = self.vectors[: self.steps]
        return basis, self.projected[: self.steps, : self.steps].to(basis)

    def restart(self, kept: int) -> None:
        """Keep the Ritz vectors at both ends and the newest direction."""
        values, _, rotations = self.spectrum()
        ends = torch.cat([torch.arange(kept - kept // 4), torch.arange(len(values) - kept // 4, len(values))])
        newest = self.vectors[self.steps].clone()
        self.vectors[: len(ends)] = self.lift(rotations[:, ends])
        self.vectors[len(ends)] = newest
        self.projected.zero_()
        self.projected[: len(ends), : len(ends)] = torch.diag(values[ends])
        self.steps = len(ends)


def eigenvalues(
    operator: Operator,
    top: int = 5,
    bottom: int = 0,
    *,
    tolerance: float = 1e-6,
    products: int = PRODUCTS,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> tuple[Ritz, LanczosBasis]:
    """The largest and smallest eigenvalues, counted algebraically.

    Args:
        operator: a symmetric map.
        top: how many of the largest.
        bottom: how many of the smallest.
        tolerance: relative error asked of each; a value that is tiny beside the largest one is held to 1e-3 of it.
        products: at most so many products.
        seed: of the starting vector.
        progress: called with the fraction done.

    Returns:
        The pairs in descending order, and the basis they were found in.
    """
    generator = torch.Generator().manual_seed(seed)
    most = max(BASIS, 3 * (top + bottom))
    krylov = LanczosBasis(operator, gaussian(operator, generator), generator, most)
    return solve(krylov, top, bottom, tolerance=tolerance, products=products, progress=progress), krylov


def solve(
    krylov: LanczosBasis,
    top: int,
    bottom: int,
    *,
    tolerance: float,
    products: int,
    progress: Callable[[float], None] | None = None,
) -> Ritz:
    """Grow a basis until the eigenvalues asked for are known, or the products are used up.

    Args:
        krylov: the basis, new or grown before.
        top: how many of the largest.
        bottom: how many of the smallest.
        tolerance: relative error asked of each.
        products: of this call.
        progress: called with the fraction done.

    Returns:
        The pairs in descending order.
    """
    top = min(top, krylov.operator.size)
    bottom = min(bottom, krylov.operator.size - top)
    known: Tensor | None = None  # the values when an invariant subspace was complete
    for made in range(products):
        chosen = [*range(top), *range(krylov.steps - bottom, krylov.steps)]
        if krylov.exhausted or (krylov.steps >= max(top + bottom, 1) and _settled(krylov, chosen, tolerance, known)):
            break
        known = krylov.spectrum()[0] if krylov.beta == 0.0 else known
        krylov.grow()
        if progress is not None:
            progress(made / products)
    chosen = [*range(min(top, krylov.steps)), *range(max(krylov.steps - bottom, top), krylov.steps)]
    return ritz_pairs(krylov, chosen, tolerance)


def _settled(krylov: LanczosBasis, chosen: Sequence[int], tolerance: float, known: Tensor | None) -> bool:
    """Whether the eigenvalues are known.

    Once an invariant subspace is complete (β = 0) its values are exact, but further copies of them may lie elsewhere:
    the search goes on in a new direction until that finds nothing that counts.
    """
    values = krylov.spectrum()[0]
    if krylov.beta > 0.0:
        return _met(krylov, chosen, tolerance) and (known is None or krylov.steps >= len(known) + len(chosen))
    if known is None or len(known) < len(chosen):
        return False
    top = sum(1 for place, number in enumerate(chosen) if place == number)
    before = known[[*range(top), *range(len(known) - len(chosen) + top, len(known))]]
    return torch.allclose(values[list(chosen)], before, rtol=tolerance, atol=tolerance * float(values.abs().max()))


def ritz_pairs(krylov: LanczosBasis, chosen: Sequence[int], tolerance: float) -> Ritz:
    """The Ritz pairs with these numbers."""
    values, residuals, rotations = krylov.spectrum()
    errors = expected_errors(values, residuals)
    index = torch.tensor(list(chosen))
    return Ritz(
        values[index],
        residuals[index],
        errors[index],
        krylov.lift(rotations[:, index]),
        krylov.products,
        krylov.exhausted or _met(krylov, chosen, tolerance),
    )


def expected_errors(values: Tensor, residuals: Tensor) -> Tensor:
    """min(r, r²/gap) for each Ritz value, the gap to the nearest other one less its residual."""
    apart = (values[:, None] - values[None, :]).abs() - residuals[None, :]
    gaps = apart.fill_diagonal_(float("inf")).min(1).values
    bound = torch.where(gaps > residuals, residuals**2 / gaps.clamp_min(1e-300), residuals)
    return torch.minimum(bound, residuals).clamp_min(float(residuals.min()))  # no residual is below rounding


def _met(krylov: LanczosBasis, chosen: Sequence[int], tolerance: float) -> bool:
    values, residuals, _ = krylov.spectrum()
    errors = expected_errors(values, residuals)
    wanted = torch.maximum(values.abs(), 1e-3 * values.abs().max()) * tolerance
    floor = 4 * torch.finfo(krylov.operator.dtype).eps * values.abs().max()
    index = torch.tensor(list(chosen))
    return bool((errors <= wanted.clamp_min(float(floor)))[index].all())


def orthogonal(known: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """The coordinates of a vector along orthonormal rows, in float64, and the rest of the vector.

    Sums over a million entries lose digits in float32: they are taken in float64, a slice at a time.
    """
    if new.dtype == torch.float64 or new.device.type == "mps":
        column = known @ new
        return column.double().cpu(), new - column @ known
    column = torch.zeros(len(known), dtype=torch.float64, device=new.device)
    for rows, part in zip(known.split(SLICE, 1), new.split(SLICE), strict=True):
        column += rows.double() @ part.double()
    return column.cpu(), new - column.to(new.dtype) @ known


def length(vector: Tensor) -> float:
    """The Euclidean norm, summed in float64: torch's own is off by 1e-5 on a million float32 entries."""
    if vector.device.type == "mps":
        return float(vector.norm())
    return float(sum(part.double().square().sum() for part in vector.split(SLICE))) ** 0.5


def gaussian(operator: Operator, generator: torch.Generator) -> Tensor:
    """A random vector; drawn on the CPU, so that every device gets the same one."""
    return torch.randn(operator.size, generator=generator, dtype=operator.dtype).to(operator.device)
