"""Proved enclosure of the spectral norm of a matrix."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from normgauge.core.interval import INF, LogInterval
from normgauge.core.rounding import SQUARED, UNIT, dot_error, eigenvalue_error, house_up
from normgauge.instrument.spectral.enclosure import Enclosure, enclose, shortfall
from normgauge.instrument.spectral.power import seeded_start, top_singular
from normgauge.instrument.spectral.random_start import STARTS, random_start_ends, steps_for, weight_seed

EIGENVALUE_LIMIT = 1600
"""Above this order a Cholesky proof around a Lanczos value is cheaper than all eigenvalues."""

CHANCE_FROM, CHANCE_WIDTH = 2500, 0.01
"""From this order on a proof with random starts is taken where a chance is accepted, and the width it aims at."""

SMALL_ORDER = 160
"""Up to this order numpy's Cholesky is the faster one on a processor."""

PANEL, PANELS_FROM = 96, 640
"""Columns of a Cholesky factor that are made at a time, and the order above which they are not made all at once."""

ALIKE, BEHIND = 256, 16
"""Rows so many numbers apart fall on the same places of a cache; so many more rows and columns set them apart."""

TOGETHER = 1024
"""Rows of the matrices that it is asked of at once: where one has no factor, all of these are tried again."""

LANCZOS_STEPS = 200


def to_double(tensor: Tensor) -> Tensor:
    """The same numbers in float64 or complex128, on the CPU where the device has neither."""
    target = torch.complex128 if tensor.is_complex() else torch.float64
    tensor = tensor.detach()
    return tensor.to("cpu", target) if tensor.device.type == "mps" else tensor.to(target)


def scaled_tensor(tensor: Tensor) -> tuple[Tensor, int]:
    """tensor·2^−e with its largest entry in [½, 1], and e; powers of two lose nothing that could matter.

    An entry that becomes subnormal is wrong by at most 2^−1074 where the largest is ½: far inside the house slack.
    """
    exponent = math.frexp(largest_part(tensor))[1]
    half = exponent // 2
    return tensor.clone().mul_(2.0**-half).mul_(2.0 ** (half - exponent)), exponent  # one copy at a time


def largest_part(tensor: Tensor) -> float:
    """The largest magnitude of a real or imaginary part; not finite where an entry is not."""
    parts = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return math.nan if bool(parts.isnan().any()) else float(torch.linalg.vector_norm(parts, math.inf))


def frobenius_norms(matrix: Tensor) -> Tensor:
    """Frobenius norm of each matrix of a batch; much faster than torch's own on complex numbers."""
    parts = torch.view_as_real(matrix.resolve_conj()).flatten(-2) if matrix.is_complex() else matrix
    return torch.linalg.vector_norm(parts, dim=(-2, -1))


def gram(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """M = AᴴA over the shorter side and a bound of ‖fl(M) − AᴴA‖ for each matrix of the batch.

    |fl(AᴴA) − AᴴA| ≤ γ |A|ᴴ|A| entrywise with γ = `dot_error`(inner), and ‖|A|ᴴ|A|‖ ≤ ‖A‖_F².

    Holds:  every order of summation, fused or not.
    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., (3.13) and Lemma 3.5.
    """
    if matrix.shape[-2] < matrix.shape[-1]:
        matrix = matrix.mH
    if matrix.ndim == 2 and matrix.dtype == torch.float64 and matrix.device.type == "cpu":
        array = matrix.detach().numpy()
        product = torch.from_numpy(array.T @ array)  # numpy sees that it is symmetric and makes half of it
    else:
        product = matrix.mH @ matrix
    return product, dot_error(matrix.shape[-2]) * frobenius_norms(matrix).square()


def top_eigenvalues(product: Tensor) -> Tensor:
    """The largest eigenvalue of each Hermitian matrix of a batch; numpy's LAPACK is the faster one on a processor."""
    if product.device.type == "cpu" and bool(product.isfinite().all()):  # what is not is torch's to refuse
        return torch.from_numpy(np.linalg.eigvalsh(product.numpy())[..., -1].copy())
    return torch.linalg.eigvalsh(product)[..., -1]


def proved_below(product: Tensor, level: Tensor | float) -> Tensor:
    """Whether Cholesky proves ``product`` ≼ level·I, for each Hermitian matrix of a batch.

    If Cholesky runs to its end on M' = (level − δ) I − M in floating point, then M' ≽ −γ/(1−γ) tr(M') I with
    γ = γ_{n+1}; so δ ≥ 2γ·n·level, a bound of that trace for M ≽ 0, together with the rounding of the diagonal,
    proves M ≼ level·I.

    Holds:  for positive semidefinite ``product`` up to rounding; False proves nothing.
    Source: Rump, Verification of positive definiteness, BIT 46 (2006), Theorem 2.3.
    """
    order = product.shape[-1]
    level = torch.as_tensor(level, dtype=torch.float64, device=product.device).expand(product.shape[:-2])
    gamma = 4 * (order + 4) * UNIT
    diagonal = level * (1.0 - 2 * gamma * order - 8 * UNIT)
    shifted = -product
    shifted.diagonal(dim1=-2, dim2=-1).add_(diagonal.unsqueeze(-1))
    if shifted.device.type != "cpu":
        return torch.linalg.cholesky_ex(shifted).info == 0
    if order > SMALL_ORDER:
        each = [runs_to_its_end(one) for one in shifted.reshape(-1, order, order)]
        return torch.tensor(each).reshape(shifted.shape[:-2])
    flat = shifted.reshape(-1, order, order)
    some = max(1, TOGETHER // order)
    proved = [
        torch.ones(len(part), dtype=torch.bool) if _has_factors(part) else torch.linalg.cholesky_ex(part).info == 0
        for part in flat.split(some)
    ]
    return torch.cat(proved).reshape(shifted.shape[:-2])


def runs_to_its_end(matrix: Tensor) -> bool:
    """Whether Cholesky factorizes a Hermitian matrix on a CPU; of it, only the lower triangle is read, and overwritten.

    By panels where LAPACK's own takes twice as long: large ones. Entries are the same sums, added up in another order,
    and proofs hold in any. Smaller ones whose rows fall on the same places of a cache are made a little larger, by ones
    on the diagonal behind them, of which no other entry depends.
    """
    order = len(matrix)
    if order <= PANELS_FROM:
        if order % ALIKE == 0:
            larger = matrix.new_zeros(order + BEHIND, order + BEHIND)
            larger.diagonal()[order:] = 1
            larger[:order, :order] = matrix
            matrix = larger
        return not torch.linalg.cholesky_ex(matrix).info
    panel = PANEL
    for first in range(0, order, panel):
        last = first + panel
        factor, info = torch.linalg.cholesky_ex(matrix[first:last, first:last])
        if info:
            return False
        if last < order:
            below = torch.linalg.solve_triangular(factor.mH, matrix[last:, first:last], upper=True, left=False)
            for at in range(0, order - last, panel):
                behind = slice(last + at, last + at + panel)
                matrix[last + at :, behind].addmm_(below[at:], below[at : at + panel].mH, alpha=-1)
    return True


def _has_factors(matrices: Tensor) -> bool:
    """Whether all of them have Cholesky factors, asked of numpy, which is twice as fast on small ones."""
    try:
        factors = np.linalg.cholesky(matrices.numpy())
    except np.linalg.LinAlgError:
        return False
    return bool(np.isfinite(np.diagonal(factors, axis1=-2, axis2=-1)).all())


def norms_squared(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds of ‖A‖² for a batch, from all eigenvalues of the Gram matrices.

    Each end moves by the error of the product (`gram`) and of its eigenvalues.
    """
    product, error = gram(matrices)
    top = top_eigenvalues(product).clamp_min(0.0)
    slack = error + eigenvalue_error(product.shape[-1]) * top
    return (top - slack).clamp_min(0.0), top + slack


def dense_norm(matrix: Tensor, width: float = 1e-6, exponent: int = 0, chance: float = 0.0) -> Enclosure:
    """Encloses the spectral norm of a matrix, or the largest over a batch of matrices.

    Args:
        matrix: (..., rows, columns), real or complex, any floating type.
        width: the log(upper/lower) to reach where a cheaper proof is worth it.
        exponent: of a power of two that multiplies the matrix.
        chance: of a wrong upper end that is accepted for a matrix so large that a proof without one takes long.

    Returns:
        The enclosure. Entries that are NaN or infinite give [0, ∞] and a reason; no entries give the norm 0.
    """
    if matrix.numel() == 0:
        return Enclosure(LogInterval(-INF, -INF), "empty")
    matrix = to_double(matrix)
    largest = largest_part(matrix)
    if not math.isfinite(largest):
        return Enclosure(LogInterval.nothing_known(), "none", "the matrix has NaN or infinite entries")
    if largest == 0.0:
        return Enclosure(LogInterval(-INF, -INF), "zero")
    matrix = torch.atleast_2d(matrix)
    small = min(matrix.shape[-2:]) <= EIGENVALUE_LIMIT
    if not small or not SQUARED[0] < largest < SQUARED[1]:  # else no square leaves float64
        matrix, own = scaled_tensor(matrix)
        exponent += own
    if small:
        lower, upper = norms_squared(matrix)
        log = enclose(math.sqrt(lower.max()), math.sqrt(upper.max()), exponent)
        return Enclosure(log, "eigenvalues", shortfall(log, width, "eigenvalues"))
    if chance and matrix.ndim == 2 and min(matrix.shape) > CHANCE_FROM and matrix.device.type == "cpu":
        found = _by_chance(matrix, exponent, chance)
        if found.width < 2 * CHANCE_WIDTH:
            return found
    flat = matrix.reshape(-1, *matrix.shape[-2:])
    ends = [_large(part, width) for part in flat]
    log = enclose(max(lo for lo, _ in ends), max(hi for _, hi in ends), exponent)
    return Enclosure(log, "cholesky", shortfall(log, width, "the Cholesky proof"))


def _by_chance(matrix: Tensor, exponent: int, chance: float) -> Enclosure:
    """Lanczos from starts that are drawn anew for every matrix; Cholesky would take four times as long and longer."""
    if matrix.is_complex():
        return Enclosure(LogInterval.nothing_known(), "none")
    matrix = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    rows, size = matrix.shape
    generator = torch.Generator().manual_seed(weight_seed(matrix))
    start = torch.randn(1, STARTS, size, generator=generator, dtype=torch.float64)
    error = (dot_error(rows) + dot_error(size)) * house_up(float(matrix.norm())) ** 2
    steps = steps_for(size, chance, CHANCE_WIDTH)
    ends = random_start_ends(lambda x: (x @ matrix.T) @ matrix, start, steps, chance, error)
    log = enclose(math.sqrt(float(ends.lower)), math.sqrt(float(ends.upper)), exponent)
    return Enclosure(log, "random starts", chance=chance)


def _large(matrix: Tensor, width: float) -> tuple[float, float]:
    """Lanczos from below, then the smallest level above it that Cholesky proves."""
    start = seeded_start((matrix.shape[1],), matrix).to(matrix.dtype)
    product, error = gram(matrix)
    if matrix.is_complex():
        lower = math.sqrt(max(float(norms_squared(matrix)[0]), 0.0))
    else:
        lower, _, _ = top_singular(lambda x: matrix @ x, lambda y: matrix.T @ y, start, LANCZOS_STEPS, width / 4)
        lower -= dot_error(matrix.shape[1]) * float(matrix.norm())
    step = width / 2
    while step < 4.0:
        upper = lower * (1.0 + step)
        if bool(proved_below(product, upper**2 - float(error))):
            return lower, upper
        step *= 4.0
    return lower, float(matrix.norm()) * (1.0 + 8 * matrix.numel() * UNIT)
