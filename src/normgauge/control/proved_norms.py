"""Norms of many linear maps at once from above, proved: squares of Gram matrices, everything on the maps' device."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from normgauge.control.warm_norms import MapGroup
from normgauge.core.rounding import TINY, dot_error, house_up
from normgauge.instrument.spectral.circulant import surround
from normgauge.instrument.spectral.dense import frobenius_norms, gram
from normgauge.instrument.spectral.symbol import frequencies, gram_polynomial
from normgauge.instrument.spectral.waves import is_right

SQUARINGS = 8
"""Of a Gram matrix: ‖M^256‖_F^(1/256) is at most order^(1/512) of λ_max, in σ 0.4 % for 64 channels, 0.6 % for 512."""


def largest_eigenvalue(product: Tensor, squarings: int = SQUARINGS) -> Tensor:
    """An upper bound of λ_max for each Hermitian M ≽ 0 of a batch: λ_max ≤ ‖M^(2^t)‖_F^(2^−t).

    fl(S²) differs from S² by at most `dot_error`(n)·‖S‖_F² ≤ n·`dot_error`(n)·‖S²‖ in norm, and what is lost in the
    k-th squaring counts 2^−k of itself in the result: in all less than n·`dot_error`(n).

    Holds:  for M ≽ 0 as computed; the error of M itself is the caller's.
    Source: Delattre, Barthélemy, Araujo & Allauzen 2023, for rescaled Gram iterations.
    """
    log, weight = torch.zeros(product.shape[:-2], dtype=torch.float64, device=product.device), 1.0
    for _ in range(squarings):
        size = frobenius_norms(product).clamp_min(TINY)
        log = log + weight * size.log()
        product = product / size[..., None, None]
        product, weight = product @ product, weight / 2
    log = log + weight * frobenius_norms(product).clamp_min(TINY).log()
    order = product.shape[-1]
    return house_up(log.exp()) * (1 + order * dot_error(order))


@torch.no_grad()
def norms_from_above(group: MapGroup, weights: Tensor) -> Tensor:
    """Proved upper bounds of the norms of a group's maps with these weights (maps, …), float64: one entry a map.

    A convolution is enclosed by a circulant around it (`spectral.symbol`), whose Gram matrices are one trigonometric
    polynomial for all maps of the group.
    """
    if group.spec is None:
        product, error = gram(weights)
        return house_up((largest_eigenvalue(product) + error).sqrt())
    kernel = weights.flatten(0, 1)
    around = surround(kernel, group.spec)
    base: Any = around.base
    right = is_right(kernel, base) and math.prod(base.stride) == 1
    whole = gram_polynomial(kernel, base, right=right)
    waves = frequencies(around.twists[0], base.stride, kernel.device)
    squares = largest_eigenvalue(whole.at(waves)) + whole.error
    tops = squares.reshape(len(waves), len(group.terms), -1).amax((0, 2))
    return house_up(tops.sqrt() * around.factor)
