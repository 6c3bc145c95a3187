"""Gram matrices on a CPU for proofs by factorization: in float32, or in less time as exact sums of whole numbers.

A processor with VNNI adds up products of bytes many times as fast as those of floats, and exactly. Each row of a matrix
is split as a = d (p + q/254) + e, with whole p and q from −127 to 127 and |e| ≤ d/500; all products of p with p and
with q are taken, what is left out is measured.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

TERMS = 512  # of each sum of a Gram matrix in float32; longer ones are added up of several, each with less rounding

BANDS, BANDS_WHOLE = 8, 4  # of rows, in which a Gram matrix is made as far as the diagonal: little more than half of it

SINGLE_UNIT = 2.0**-24  # unit roundoff of float32

LARGEST, FINE = 127, 254.0  # of the whole numbers, and into how many parts the second ones split a step of the first

FULL, LEFT = 126.5, 500.0  # steps in a row's largest entry, and parts of a step above what is left of an entry

SMALLEST = 1e-9  # step of a row over the norm of the matrix, so that none underflows

WHOLE_SCALES = (1e-6, 1e6)  # norms whose rows' steps have products that float32 holds

MOST, LONGEST = 2**22, 2**15  # entries of a matrix that is split, and terms of a sum in 31 bits


class Gram(NamedTuple):
    """What was computed of AAᵀ, and how it encloses ‖A‖ ≤ √(λ(product) + lost) + apart.

    Attributes:
        product: float32, of which the lower triangle counts.
        trace: of the product.
        lost: that ‖·‖² may lie above it.
        apart: norm of what was left out of the entries.
    """

    product: Tensor
    trace: float
    lost: float
    apart: float


def gram(rows: Tensor, norm: float) -> Gram | None:
    """AAᵀ of a matrix with no more rows than columns; None where an entry is no number.

    Args:
        rows: of the matrix.
        norm: about that of the matrix.
    """
    fits = WHOLE_SCALES[0] < norm < WHOLE_SCALES[1] and rows.numel() <= MOST and rows.shape[1] <= LONGEST
    return _whole_gram(rows.float(), norm) if fits and multiplies_bytes() else _float_gram(rows.float())


def _float_gram(rows: Tensor) -> Gram | None:
    """The product as floats: |fl(G) − G| ≤ γ |A||Aᵀ| entrywise, so its norm is at most γ‖A‖_F²."""
    sums, band = rows.shape[1], -(-len(rows) // BANDS)
    made = rows.new_empty(len(rows), len(rows))
    for number, piece in enumerate(rows.split(TERMS, dim=1)):
        for first in range(0, len(rows), band):
            last = first + band
            made[first:last, :last].addmm_(piece[first:last], piece[:last].T, beta=float(number > 0))
    trace = float(made.diagonal().double().sum())
    gamma = 1.1 * (min(sums, TERMS) + -(-sums // TERMS) + 2) * SINGLE_UNIT
    return Gram(made, trace, 1.05 * gamma * trace, 0.0) if math.isfinite(trace) else None


def _whole_gram(rows: Tensor, norm: float) -> Gram | None:
    """H = D (PPᵀ + (PQᵀ + QPᵀ)/254) D from whole numbers, for A = V + E, V = D (P + Q/254) and D = diag(d).

    With W = DQ/254, VVᵀ = H + WWᵀ, so ‖A‖ ≤ √(λ(H) + ‖W‖_F²) + ‖E‖_F. The sums are exact. A term of H is rounded
    seven times at most, and Σ|terms| of an entry is at most (‖DP‖ + ‖W‖)² of its rows, in Frobenius norms together
    (‖V‖_F + 2‖W‖_F)², with ‖V‖_F² = tr H + ‖W‖_F². An entry is split by a division, off by two units of at most 127
    steps, and by two roundings to whole numbers, of which the first leaves an exact rest: |e| ≤ d (0.5001/254 + 2e-5).
    """
    steps = (rows.abs().amax(1) / FULL).clamp_min_(SMALLEST * norm)
    if not bool(torch.isfinite(steps).all()):
        return None
    places = rows / steps[:, None]
    first = places.round()
    second = places.sub_(first).mul_(FINE).round_()
    wide = steps.double()
    beside = 1.001 * float(((wide / FINE) * torch.linalg.vector_norm(second, dim=1)).square().sum())
    apart = 1.001 * math.sqrt(rows.shape[1]) * float(wide.square().sum().sqrt()) / LEFT
    whole, fine = first.to(torch.int8), second.to(torch.int8)
    pairs, turned = torch.cat([whole, fine], 1), torch.cat([fine, whole], 1)
    made, band = rows.new_empty(len(rows), len(rows)), -(-len(rows) // BANDS_WHOLE)
    for start in range(0, len(rows), band):
        end = start + band
        piece = made[start:end, :end].copy_(torch._int_mm(whole[start:end], whole[:end].T))
        piece.add_(torch._int_mm(pairs[start:end], turned[:end].T), alpha=1 / FINE)
        piece.mul_(steps[start:end, None]).mul_(steps[:end])
    trace = float(made.diagonal().double().sum())
    most = math.sqrt(max(0.0, trace) + beside) + 2 * math.sqrt(beside)
    return Gram(made, trace, beside + 8 * SINGLE_UNIT * most**2, apart)


@lru_cache(maxsize=1)
def multiplies_bytes() -> bool:
    """Whether this CPU has instructions for sums of products of bytes, and torch's take all of 32 bits of them."""
    known = getattr(torch.cpu, "_is_vnni_supported", None)
    if known is None or not known():
        return False
    largest = torch.full((64, 2048), LARGEST, dtype=torch.int8)
    largest[1::2] *= -1
    try:
        made = torch._int_mm(largest, largest.T)
    except RuntimeError:
        return False
    return bool((made.abs() == 2048 * LARGEST**2).all())
