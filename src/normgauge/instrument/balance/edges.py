"""Gains of single steps as functions of the channel weights, and which weights they came from; linear maps apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Pull = Callable[[Array], list[tuple[int, Array]]]
"""From the share of each sample in the objective to (value, what each of its log weights has in it)."""

Edge = Callable[..., tuple[Array, Pull]]
"""From the log weights, whether Frobenius norms stand in for spectral ones, and what is known of maps already, to a
log gain a sample and its pull."""


def leading_shares(terms: Array) -> Array:
    """Along the last axis, equal shares for all the largest entries: folded weights leave many of them equal."""
    top = terms == np.maximum.reduce(terms, -1, keepdims=True)
    shares: Array = top / (np.count_nonzero(top) if top.ndim == 1 else top.sum(-1, keepdims=True))
    return shares


def normalizer_edge(
    logs: Array, before: int | None, after: int, weights: dict[int, Array], *_: Any
) -> tuple[Array, Pull]:
    """log max_c d_out γ_c/σ_c, and the smallest weight before it."""
    terms = logs + weights[after]
    least = np.zeros(1) if before is None else -weights[before]

    def pull(share: Array) -> list[tuple[int, Array]]:
        found = [(after, share @ leading_shares(terms))]
        return found if before is None else [*found, (before, -share.sum() * leading_shares(least))]

    return terms.max(1) + least.max(), pull


def ratio_edge(
    log: Array, scale: Array | float, before: int, after: int, weights: dict[int, Array], *_: Any
) -> tuple[Array, Pull]:
    """log max_c scale_c d_out/d_in of a step that goes channel by channel."""
    terms = scale + weights[after] - weights[before]

    def pull(share: Array) -> list[tuple[int, Array]]:
        mass = share.sum() * leading_shares(terms)
        return [(after, mass), (before, -mass)]

    return log + terms.max(), pull


def apart_edge(
    log: Array, before: int | None, after: int | None, weights: dict[int, Array], *_: Any
) -> tuple[Array, Pull]:
    """log of the gain, the largest weight behind it and the smallest before it."""
    sides = [(index, sign, sign * weights[index]) for index, sign in ((after, 1), (before, -1)) if index is not None]
    for _index, _sign, logs in sides:
        log = log + np.maximum.reduce(logs)

    def pull(share: Array) -> list[tuple[int, Array]]:
        return [(index, sign * share.sum() * leading_shares(logs)) for index, sign, logs in sides]

    return log, pull
