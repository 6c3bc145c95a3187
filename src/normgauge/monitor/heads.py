"""Gains of attention heads, which no rescaling inside a head changes, and how large their logits can get.

With A the rows of the weight that make a head's queries and B those of its keys, γ in front of them folded in, the
logits of a head see AᵀB alone: rescaling the queries by c and the keys by 1/c leaves it as it is. The same holds for
values and output. ‖AᵀB‖₂² is the largest eigenvalue of the small matrix AAᵀBBᵀ, whose order is the width of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
class HeadGrams:
    """What gains of attentions that are alike follow from: (attentions, heads, width, width), and offsets a row less.

    Attributes:
        query, key: AAᵀ and BBᵀ, γ folded in; None where weights alone do not make them.
        value, out: the same of values and of the output.
        a, b: queries and keys where the normalized input is 0.
        scale, turned: as of the weights.
        inputs: d.
    """

    query: Tensor | None
    key: Tensor | None
    value: Tensor
    out: Tensor
    a: Tensor | None
    b: Tensor | None
    scale: float | None
    turned: bool
    inputs: int


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


def head_grams(given: HeadWeights) -> HeadGrams:
    """The small matrices that gains follow from."""
    heads = given.out.shape[1]
    value, out = _grams(given.value, given.gammas[2], heads), given.out @ given.out.mT
    if given.query is None or given.key is None:
        return HeadGrams(None, None, value, out, None, None, None, False, given.value.shape[-1])
    query, key = _grams(given.query, given.gammas[0], heads), _grams(given.key, given.gammas[1], heads)
    zero = query.new_zeros(query.shape[:3])
    a, b = (zero if x is None else _repeated(x, heads) for x in given.offsets)
    return HeadGrams(query, key, value, out, a, b, given.scale, given.turned, given.value.shape[-1])


def joined(parts: Sequence[HeadGrams]) -> HeadGrams:
    """Those of several attentions that are alike."""
    together = ([getattr(part, name) for part in parts] for name in ("query", "key", "value", "out", "a", "b"))
    query, key, value, out, a, b = (None if several[0] is None else torch.cat(several) for several in together)
    assert value is not None and out is not None
    return HeadGrams(query, key, value, out, a, b, parts[0].scale, parts[0].turned, parts[0].inputs)


def head_gains(given: HeadGrams) -> HeadGains:
    """Gains of every head, all at once."""
    if given.query is None or given.key is None:
        return HeadGains(None, product_norm(given.value, given.out), None)
    both = product_norm(torch.stack([given.query, given.value]), torch.stack([given.key, given.out]))
    qk, ov = both.unbind()
    return HeadGains(qk, ov, None if given.scale is None else given.scale * _bound(given, given.query, given.key, qk))


def _bound(given: HeadGrams, query: Tensor, key: Tensor, qk: Tensor) -> Tensor:
    """|q·k| ≤ ‖AᵀB‖d + √d(‖Aᵀb‖ + ‖Bᵀa‖) + |a·b| for queries Ax + a, keys By + b with |x|², |y|² ≤ d.

    Rotated by positions, AᵀRB takes the place of AᵀB, and (√d‖A‖ + |a|)(√d‖B‖ + |b|) bounds them for every R.
    """
    d, a, b = given.inputs, given.a, given.b
    assert a is not None and b is not None  # as queries and keys are there
    if given.turned:
        grams = torch.stack([query, key])
        one = torch.eye(query.shape[-1], dtype=torch.float64, device=query.device).expand_as(grams)
        sizes = math.sqrt(d) * product_norm(grams, one) + torch.linalg.vector_norm(torch.stack([a, b]), dim=-1)
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
