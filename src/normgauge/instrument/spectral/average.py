"""Below the twisted circulant: the average over several twists, then without the layer's own top vectors.

The layer A is a crop of every twisted circulant C_θ (`symbol`). With E the embedding of the layer's pixels, and with
C_θᴴC_θ ≼ level·I + Σ_j d_j w_j w_jᴴ from `waves`, for any set of twists

    AᵀA  ≼  mean_θ Eᵀ C_θᴴ C_θ E  ≼  level·I + H,    H = mean_θ Σ_j d_j (Eᵀw_j)(Eᵀw_j)ᴴ

A vector that is a wave for one twist jumps at the border for another, so λmax(level + H) is well below the norm of each
C_θ: the mean over all θ is the Toeplitz matrix of the symbol |K̂|². H has the eigenvalues of the small matrix
D^½ ⟨Eᵀw_j, Eᵀw_k⟩ D^½, whose entries are products of one sum of phases per axis.

Then let V be a few approximate top singular vectors of A. On their complement AᵀA ≼ level + λmax(P H P), P = I − VVᵀ,
and `ritz_upper` joins that with the exact values on V.

Source: derived here; every step is an inequality between quadratic forms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import UNIT
from normgauge.instrument.spectral.waves import Waves

MOST_DEFLATED = 4
"""Top vectors to take out at most; beyond, their residuals cost more than they bring."""


@dataclass(frozen=True, slots=True)
class Pixels:
    """The side of the layer on which the waves live.

    Attributes:
        shape: (channels, *spatial).
        step: positions of the circulant from one pixel to the next, per axis: 1 for inputs, the stride for outputs.
        groups: channel groups.
        cells: number of pixels of the circulant on this side.
    """

    shape: tuple[int, ...]
    step: tuple[int, ...]
    groups: int
    cells: int


@dataclass(frozen=True, slots=True)
class WaveSet:
    """Waves of several twists as vectors on the layer's pixels, each scaled by √(d_j / twists), conjugates included.

    Attributes:
        level: bound of everything outside the waves.
        amplitudes: (count, alias, channel), complex.
        groups: (count,).
        phases: one (count, alias, size) tensor of e^{iω·position} per axis.
    """

    level: float
    amplitudes: Tensor
    groups: Tensor
    phases: tuple[Tensor, ...]


def wave_set(parts: Sequence[Waves], pixels: Pixels, most: int) -> WaveSet:
    """The waves of several twists in one set; at least one of the twists must have waves.

    Where there are more than ``most``, the weakest are left out and the level raised to cover them.
    """
    parts = [_strongest(part, most // len(parts)) for part in parts]
    level = max(part.level for part in parts)
    share = 1.0 / len(parts)
    amplitudes, groups, angles = [], [], []
    for part in parts:
        if len(part.values) == 0:
            continue
        weight = ((part.values - part.level).clamp_min(0.0) * share * part.pairs / 2 / pixels.cells).sqrt()
        amplitudes.append(part.vectors * weight[:, None])
        groups.append(part.groups)
        angles.append(part.angles)
    vectors, angle = torch.cat(amplitudes), torch.cat(angles)
    vectors, angle = torch.cat([vectors, vectors.conj()]), torch.cat([angle, -angle])
    vectors = vectors.reshape(len(vectors), -1, pixels.shape[0] // pixels.groups)
    angle = angle[:, : vectors.shape[1]]
    phases = []
    for axis, (size, step) in enumerate(zip(pixels.shape[1:], pixels.step, strict=True)):
        place = torch.arange(size, dtype=torch.float64, device=angle.device) * step
        turn = angle[:, :, axis, None] * place
        phases.append(torch.polar(torch.ones_like(turn), turn))
    return WaveSet(level, vectors, torch.cat(groups).repeat(2), tuple(phases))


def _strongest(part: Waves, most: int) -> Waves:
    if len(part.values) <= most:
        return part
    order = part.values.argsort(descending=True)
    keep = order[:most]
    return Waves(
        max(part.level, float(part.values[order[most]])),
        part.values[keep],
        part.vectors[keep],
        part.groups[keep],
        part.angles[keep],
        part.pairs[keep],
    )


def wave_gram(waves: WaveSet) -> Tensor:
    """⟨x_j, x_k⟩ of the scaled waves on the layer's pixels, (count, count), without forming them."""
    count, aliases, _ = waves.amplitudes.shape
    flat = waves.amplitudes.reshape(count * aliases, -1)
    product = flat.conj() @ flat.T
    for line in waves.phases:
        line = line.reshape(count * aliases, -1)
        product = product * (line.conj() @ line.T)
    product = product.reshape(count, aliases, count, aliases).sum((1, 3))
    return product * (waves.groups[:, None] == waves.groups[None, :])


def wave_overlaps(waves: WaveSet, vectors: Tensor, pixels: Pixels) -> Tensor:
    """⟨x_j, v⟩ of the scaled waves with real vectors (k, dimension): (count, k)."""
    count, aliases, channels = waves.amplitudes.shape
    total = count * aliases
    part = vectors.reshape(len(vectors), pixels.groups, channels, *pixels.shape[1:]).to(waves.amplitudes.dtype)
    *others, last = (line.reshape(total, -1).conj().T for line in waves.phases)
    part = part @ last  # (k, group, channel, …, wave·alias)
    for line in reversed(others):
        part = (part * line).sum(-2)
    own = waves.groups.long().repeat_interleave(aliases)
    part = part[:, own, :, torch.arange(total, device=own.device)]  # (wave·alias, k, channel)
    amplitude = waves.amplitudes.reshape(total, 1, channels).conj()
    return (part * amplitude).sum(-1).reshape(count, aliases, -1).sum(1)


def ritz_upper(basis: Tensor, images: Tensor, rest: float) -> float:
    """Upper bound of λmax(M), M ≽ 0, from a subspace and a bound of M on its complement.

    With V orthonormal, B = VᵀMV, R = MV − VB and M ≼ rest·I on V^⊥,
        λmax(M) ≤ λmax [[B, S], [Sᵀ, rest·I]],  S Sᵀ = RᵀR,
    because M in the basis [V, V^⊥] is [[B, Rᵀ], [R, ·]] with its last block ≼ rest·I.

    Args:
        basis: (k, dimension), orthonormal rows.
        images: (k, dimension), M of each row.
        rest: the bound on the complement.
    """
    small = basis @ images.T
    small = (small + small.T) / 2
    residual = images - small @ basis
    lam, vec = torch.linalg.eigh(residual @ residual.T)
    root = (vec * lam.clamp_min(0.0).sqrt()) @ vec.T
    k = len(small)
    whole = torch.zeros(2 * k, 2 * k, dtype=basis.dtype, device=basis.device)
    whole[:k, :k] = small
    whole[:k, k:] = whole[k:, :k] = root
    whole[k:, k:].diagonal().fill_(rest)
    return float(torch.linalg.eigvalsh(whole)[-1])


def averaged_upper(waves: WaveSet, product: Tensor) -> float:
    """Bound of ‖A‖²: level + λmax(H), with the rounding of H and of its eigenvalues."""
    top = max(float(torch.linalg.eigvalsh(product)[-1]), 0.0)
    return waves.level + top + _small_slack(waves, product)


def deflated_upper(
    waves: WaveSet, product: Tensor, pixels: Pixels, tops: Tensor, tops_images: Tensor, error: float
) -> float:
    """Bound of ‖A‖² with approximate top vectors taken out one by one; the best of the first few.

    Args:
        waves: from `wave_set`.
        product: their `wave_gram`.
        pixels: the side the vectors live on.
        tops: (k, dimension), orthonormal rows, the largest first.
        tops_images: AᵀA of each row.
        error: bound of the rounding of one image.
    """
    best, most = math.inf, len(tops)
    shadows = wave_overlaps(waves, tops, pixels)
    defect = float((tops @ tops.T - torch.eye(most, dtype=tops.dtype, device=tops.device)).norm())
    for k in range(1, most + 1):
        left = product - shadows[:, :k] @ shadows[:, :k].mH
        rest = waves.level + max(float(torch.linalg.eigvalsh(left)[-1]), 0.0) + _small_slack(waves, product)
        best = min(best, ritz_upper(tops[:k], tops_images[:k], rest))
    # Each entry of B and R is a sum over the dimension; a basis off by `defect` moves both by as much.
    relative = 8 * defect + 16 * tops.shape[1] * UNIT
    return best * (1.0 + relative) + 4 * most * error


def _small_slack(waves: WaveSet, product: Tensor) -> float:
    """Rounding of the small matrix and its eigenvalues: long sums of phases, whose angles grow with the size."""
    pixels = math.prod(line.shape[-1] for line in waves.phases) * waves.amplitudes.shape[-1]
    return (1024 * len(product) + 64 * pixels) * UNIT * float(torch.linalg.matrix_norm(product))
