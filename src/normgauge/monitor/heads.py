"""Gains of attention heads, which no rescaling inside a head changes, and how large their logits can get.

With A the rows of the weight that make a head's queries and B those of its keys, γ in front of them folded in, the
logits of a head see AᵀB alone: rescaling the queries by c and the keys by 1/c leaves it as it is. The same holds for
values and output. ‖AᵀB‖₂² is the largest eigenvalue of the small matrix AAᵀBBᵀ, whose order is the width of a head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SQUARINGS = 10  # of the small matrix: the eigenvalue is at most width^(1/1024) too large, its root 0.3 per cent


@dataclass(frozen=True, slots=True)
class HeadWeights:
    """The weights of attentions that are alike in all but their numbers, in the precision of the products, without γ.

    Attributes:
        query, key, value: (attentions, heads, width, inputs); keys and values may have fewer heads, each shared by
            several queries; queries and keys None where weights alone do not make them.
        out: (attentions, heads, width, outputs).
        gammas: (attentions, inputs): γ in front of queries, keys and values, None for ones.
        offsets: (attentions, heads, width): queries and keys where the normalized input is 0; None for zeros.
        scale: of the logits; None where they are not bounded: not known, or no normalizer in front.
        turned: whether queries and keys are rotated by their positions.
    """

    query: Tensor | None
    key: Tensor | None
    value: Tensor
    out: Tensor
    gammas: tuple[Tensor | None, Tensor | None, Tensor | None]
    offsets: tuple[Tensor | None, Tensor | None] = (None, None)
    scale: float | None = None
    turned: bool = False


@dataclass(frozen=True, slots=True)
class HeadGains:
    """What was found of attentions of one shape: (attentions, heads) each; None where it does not apply."""

    qk: Tensor | None
    ov: Tensor
    bound: Tensor | None


def product_norm(left: Tensor, right: Tensor) -> Tensor:
    """‖AᵀB‖₂ from the Gram matrices AAᵀ and BBᵀ, computed from above.

    With M = AAᵀBBᵀ, whose eigenvalues are ≥ 0, λ_max(M) ≤ (tr Mⁿ)^(1/n) ≤ r^(1/n) λ_max(M), n = 2^SQUARINGS.

    Holds:  up to rounding in float64.
    """
    power = left.double() @ right.double()
    first = _trace(power)
    alive = (first > 0) & torch.isfinite(first)
    trace = torch.where(alive, first, 1.0)
    log, power = trace.log(), power / trace[..., None, None]
    for count in range(1, SQUARINGS + 1):
        power = power @ power
        trace = torch.where(alive, _trace(power), 1.0)
        log = log + trace.log() / 2**count
        power = power / trace[..., None, None]
    return torch.where(alive, (log / 2).exp(), first.clamp_min(0.0))  # 0, or no number


def head_gains(given: HeadWeights) -> HeadGains:
    """Gains of every head, all at once."""
    heads = given.out.shape[1]
    ov = product_norm(_grams(given.value, given.gammas[2], heads), given.out @ given.out.mT)
    if given.query is None or given.key is None:
        return HeadGains(None, ov, None)
    query, key = _grams(given.query, given.gammas[0], heads), _grams(given.key, given.gammas[1], heads)
    qk = product_norm(query, key)
    return HeadGains(qk, ov, None if given.scale is None else given.scale * _bound(given, query, key, qk))


def _bound(given: HeadWeights, query: Tensor, key: Tensor, qk: Tensor) -> Tensor:
    """|q·k| ≤ ‖AᵀB‖d + √d(‖Aᵀb‖ + ‖Bᵀa‖) + |a·b| for queries Ax + a, keys By + b with |x|², |y|² ≤ d.

    Rotated by positions, AᵀRB takes the place of AᵀB, and (√d‖A‖ + |a|)(√d‖B‖ + |b|) bounds them for every R.
    """
    d = given.value.shape[-1]
    zero = query.new_zeros(query.shape[:3])
    a, b = (zero if x is None else _repeated(x, query.shape[1]) for x in given.offsets)
    if given.turned:
        one = torch.eye(query.shape[-1], dtype=torch.float64, device=query.device).expand_as(query)
        sizes = [
            math.sqrt(d) * product_norm(gram, one) + torch.linalg.vector_norm(x, dim=-1)
            for gram, x in ((query, a), (key, b))
        ]
        return sizes[0] * sizes[1]
    crossed = _quadratic(query, b) + _quadratic(key, a)
    return qk * d + math.sqrt(d) * crossed + (a * b).sum(-1).abs()


def _quadratic(gram: Tensor, vector: Tensor) -> Tensor:
    """‖Aᵀv‖ from AAᵀ."""
    vector = vector.double()
    return (vector[..., None, :] @ gram.double() @ vector[..., None]).flatten(-3).clamp_min(0).sqrt()


def _grams(rows: Tensor, gamma: Tensor | None, heads: int) -> Tensor:
    """(attentions, heads, width, width): products of the rows of each head, γ folded in."""
    folded = rows if gamma is None else rows * gamma[:, None, None]
    return _repeated(folded @ folded.mT, heads)


def _repeated(rows: Tensor, heads: int) -> Tensor:
    return rows if rows.shape[1] == heads else rows.repeat_interleave(heads // rows.shape[1], dim=1)


def _trace(square: Tensor) -> Tensor:
    return square.diagonal(dim1=-2, dim2=-1).sum(-1)
