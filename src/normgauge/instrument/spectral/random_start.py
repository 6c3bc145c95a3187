"""The largest eigenvalue of A = MᵀM from above by Lanczos with random starts: cheap, and wrong with a known chance.

With b uniform on the sphere, z₁ the top eigenvector, λ̂ the top Ritz value on span{b, Ab, …, A^(k−1)b} and
s = √(λ/λ̂ − 1) the Ritz inequality ⟨y, (A − λ̂)y⟩ ≤ 0 for y = T_{2k−1}(u)/u · b, u² = 1 − A/λ̂, reads

    |b·z₁|·sinh θ ≤ 1,   θ = (2k − 1)·arsinh s,

and |b·z₁| ≥ c but with probability √(2(n − 1)/π)·c at most. So λ ≤ λ̂(1 + s²) with sinh θ = 1/c; independent starts
multiply their probabilities, since all of them must be unlucky. It does not matter when the steps stop.

Rounding. The computed rows V satisfy A V_j ⊂ span V_{j+1} up to residuals F that are measured, so y is off by Δ with
‖Δ‖ ≤ D = 4η(k − 1)·cosh θ/(s·sinh 2φ), φ = arsinh s, η = ‖F‖_F/(λ̂ σ_min(V)), by the recurrence of T_{2k−1}(u)/u in A,
provided that 2ηk·coth 3φ/sinh 2φ ≤ ½; and the inequality becomes |b·z₁|·sinh θ ≤ 1 + D(1 + s).

Source: Kuczyński & Woźniakowski, SIAM J. Matrix Anal. Appl. 13 (1992) 1094, Theorem 3; the rounding is derived here.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import UNIT, dot_error, eigenvalue_error, house_up
from normgauge.instrument.spectral.power import EXHAUSTED, Linear, seeded_start

STARTS = 4
"""Independent starts: with one, c is so small that rounding would drown the proof; with more, each goes less deep."""

SURE = 1 + 1e-9  # what 1 becomes where the start is a unit vector up to rounding, and sums of a few terms were rounded
LARGEST = 8.0  # the largest s tried: a bound of 8 times the Ritz value says nothing worth having


@dataclass(frozen=True, slots=True)
class RandomEnds:
    """Bounds of the largest eigenvalue of each matrix of a batch.

    Attributes:
        lower: proved, whatever was drawn.
        upper: proved but for the chance.
        chance: that one of these upper ends is too small, at most; one entry a matrix.
    """

    lower: Tensor
    upper: Tensor
    chance: float


def weight_seed(weight: Tensor) -> int:
    """A seed for the starts that follows from the weight alone: the same weight gives the same numbers.

    The chance holds for weights that were not chosen against this digest.
    """
    content = weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return int.from_bytes(hashlib.blake2b(content.numpy().tobytes(), digest_size=7).digest())


def smallest_part(size: int, chance: float, starts: int = STARTS) -> float:
    """c, below which all starts lie along a given direction with this chance at most (n ≥ 3)."""
    return chance ** (1 / starts) / math.sqrt(2 * (size - 1) / math.pi)


def steps_for(size: int, chance: float, width: float, starts: int = STARTS) -> int:
    """How many steps reach log(upper/lower) = width of the norm, if the Ritz value has converged."""
    tall = math.asinh(1 / smallest_part(size, chance, starts))
    return min(size, math.ceil((tall / math.asinh(math.sqrt(math.expm1(2 * width))) + 1) / 2) + 1)


def random_start_ends(normal: Linear, start: Tensor, steps: int, chance: float, error: Tensor | float) -> RandomEnds:
    """Both ends of λ_max(A) for a batch of matrices.

    Args:
        normal: x ↦ A x on (matrices, starts, n), A symmetric with eigenvalues ≥ 0.
        start: (matrices, starts, n), Gaussian and drawn after A was fixed, float64, n ≥ 3.
        steps: products with A.
        chance: of a wrong upper end that is accepted for each matrix.
        error: bound of ‖fl(A x) − A x‖/‖x‖, one entry a matrix.
    """
    return ends_from(krylov_facts(normal, start, steps), chance, error)


@dataclass(frozen=True, slots=True)
class KrylovFacts:
    """What a proof needs of a Lanczos run on a batch of matrices: (matrices, starts) but for counts and ``ritz``.

    Attributes:
        size, steps: of the matrices, and how far it went.
        starts: for each matrix.
        ritz: VAVᵀ, (matrices, starts, steps, steps).
        skew: ‖VVᵀ − I‖, its rounding included.
        longest: the largest ‖A v‖.
        residual: ‖F‖_F of A V_j ⊂ V_{j+1}.
    """

    size: int
    steps: int
    starts: int
    ritz: Tensor
    skew: Tensor
    longest: Tensor
    residual: Tensor


def krylov_facts(normal: Linear, start: Tensor, steps: int) -> KrylovFacts:
    """Run Lanczos; arguments as for `random_start_ends`."""
    return facts_of(*batched_lanczos(normal, start, min(steps, start.shape[-1])))


def facts_of(basis: Tensor, images: Tensor, residual: Tensor) -> KrylovFacts:
    """The facts of what `batched_lanczos` gave."""
    starts, steps, size = basis.shape[1:]
    gram = basis @ basis.mT
    skew = torch.linalg.matrix_norm(gram - torch.eye(steps, dtype=gram.dtype, device=gram.device))
    skew = skew + 2 * steps * dot_error(size)
    longest = torch.linalg.vector_norm(images, dim=-1).amax(-1)
    ritz = basis @ images.mT
    return KrylovFacts(size, steps, starts, (ritz + ritz.mT) / 2, skew, longest, residual)


def top_ritz(basis: Tensor, ritz: Tensor) -> Tensor:
    """The top Ritz vector of each matrix, over all its starts, (matrices, n)."""
    values, vectors = torch.linalg.eigh(ritz)
    best, every = values[..., -1].argmax(1), torch.arange(len(basis), device=basis.device)
    return (vectors[every, best, :, -1][:, None] @ basis[every, best])[:, 0]


def ends_from(
    facts: KrylovFacts, chance: float, error: Tensor | float, steps: int | None = None, largest: float = LARGEST
) -> RandomEnds:
    """Both ends that a run proves where the products were off by ``error``, as for `random_start_ends`.

    Its first ``steps`` alone are a run too: they prove less, and bear a larger error. The chance is that of the starts,
    once for all of them. ``largest`` is the largest s tried.
    """
    size, steps, skew = facts.size, facts.steps if steps is None else min(steps, facts.steps), facts.skew
    ritz = facts.ritz[..., :steps, :steps]
    known = torch.isfinite(ritz).flatten(-2).all(-1)  # one of many that is not must not stop the others
    top = torch.linalg.eigvalsh(torch.where(known[..., None, None], ritz, 0.0))[..., -1].clamp_min(0.0)
    top = torch.where(known, top, torch.nan)
    slip = torch.as_tensor(error, dtype=torch.float64, device=top.device).reshape(-1, 1) * house_up(1 + skew)
    slack = math.sqrt(steps) * slip + (2 * steps * dot_error(size) + eigenvalue_error(steps)) * facts.longest
    upper = ((top + slack) / (1 - skew)).amax(1)  # of the starts: for each of them a larger λ̂ only makes it weaker
    lower = ((top - slack) / (1 + skew)).clamp_min(0.0).amax(1)
    off = (facts.residual + math.sqrt(steps) * slip) / (1 - skew).clamp_min(UNIT).sqrt()
    drift = off.amax(1) / lower.clamp_min(torch.finfo(torch.float64).tiny)
    drift = torch.where(skew.amax(1) < 0.5, drift, torch.inf)
    part = smallest_part(size, chance, facts.starts) - 2 * dot_error(size)
    stretch = torch.tensor([_stretch(steps, part, float(one), largest) for one in drift], dtype=torch.float64)
    return RandomEnds(lower, house_up(upper * (1 + stretch.to(upper.device) ** 2)), chance)


def batched_lanczos(normal: Linear, start: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows V, their images, both (matrices, starts, steps, n), and ‖F‖_F of the residuals of A V_j ⊂ V_{j+1}."""
    basis = start.new_empty(*start.shape[:-1], steps, start.shape[-1])  # so that the rows of one start lie together
    images = torch.empty_like(basis)
    parts = start.new_zeros(*start.shape[:-1], steps - 1, steps)  # of the images along the rows
    vector = start / torch.linalg.vector_norm(start, dim=-1, keepdim=True)
    for k in range(steps):
        basis[..., k, :] = vector
        image = images[..., k, :] = normal(vector)
        if k + 1 == steps:
            break
        known = basis[..., : k + 1, :]
        along, rest = _split(image, known)
        beta = torch.linalg.vector_norm(rest, dim=-1, keepdim=True)
        ended = beta <= EXHAUSTED * 2 * UNIT * torch.linalg.vector_norm(image, dim=-1, keepdim=True)
        parts[..., k, : k + 1] = along
        parts[..., k, k + 1 : k + 2] = beta
        if start.device.type == "cpu" and not bool(ended.any()):  # asking a device would wait for it
            vector = rest / beta
            continue
        parts[..., k, k + 1 : k + 2].masked_fill_(ended, 0.0)  # the space is invariant, and any direction
        fresh = _split(_other_direction(start, k + 1), known)[1]  # outside it may go on
        rest = torch.where(ended, fresh, rest)
        vector = rest / torch.linalg.vector_norm(rest, dim=-1, keepdim=True)
    left = torch.linalg.vector_norm(images[..., :-1, :] - parts @ basis, dim=-1)
    rounding = 8 * UNIT * torch.arange(8, steps + 7, dtype=left.dtype, device=left.device)
    off = left + rounding * torch.linalg.vector_norm(images[..., :-1, :], dim=-1)
    return basis, images, house_up(torch.linalg.vector_norm(off, dim=-1))


def _other_direction(start: Tensor, seed: int) -> Tensor:
    """A direction that has nothing to do with the starts; on a device it is made there, so that nothing waits."""
    if start.device.type == "cpu":
        return seeded_start(start.shape[-1:], start, seed).to(start.dtype).expand(start.shape)
    place = torch.arange(1, start.shape[-1] + 1, dtype=torch.float64, device=start.device)
    return torch.cos(place * place * (seed + 0.6180339887)).to(start.dtype).expand(start.shape)


def _split(vector: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Coefficients along orthonormal rows, and what is left: twice, so that it is orthogonal to rounding."""
    along, rest = torch.zeros_like(rows[..., 0]), vector[..., None, :]
    for _ in range(2):
        more = rest @ rows.mH
        rest = rest - more @ rows
        along = along + more[..., 0, :]
    return along, rest[..., 0, :]


def _stretch(steps: int, part: float, drift: float, largest: float) -> float:
    """The smallest s for which |b·z₁| ≥ part contradicts λ > λ̂(1 + s²); infinite where rounding drowns it."""

    def contradicted(s: float) -> bool:
        phi = math.asinh(s)
        theta = (2 * steps - 1) * phi
        bent = math.sinh(2 * phi)
        if theta > 300 or 2 * drift * steps / (math.tanh(3 * phi) * bent) > 0.5:
            return theta > 300 and drift < part * s * bent / (8 * steps * (1 + s))
        lost = 4 * drift * (steps - 1) * (1 + s) / (math.tanh(theta) * s * bent)
        return math.sinh(theta) * (part - lost) > SURE

    if not math.isfinite(drift) or part <= 0 or not contradicted(largest):
        return math.inf
    low, high = 0.0, largest
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if contradicted(middle) else (middle, high)
    return high
