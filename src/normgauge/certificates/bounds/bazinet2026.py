"""Disagreement: the error of a network through another one whose error is certified."""

from __future__ import annotations

import math

from normgauge.certificates.bounds.holdout import clopper_pearson
from normgauge.certificates.bounds.parts import Parts


def disagreement(surrogate_bound: float, apart: int, m: int, delta: float) -> Parts:
    """R(f) ≤ R(h) + P(f ≠ h) ≤ [bound of h] + Bin⁻¹(#{f ≠ h on U}, m, δ).

    Holds:  U: m inputs without labels from the same source, seen by neither f nor h; the bound of h holds with its
            own share of failure, which adds to δ.
    Source: Bazinet et al. 2026, Theorem 4; the triangle inequality of the 0-1 loss.

    Args:
        surrogate_bound: a certified error of h.
        apart: inputs of U on which f and h name different classes.
        m: inputs of U.
        delta: share of failure of the disagreement alone.

    Returns:
        The bound and its two parts.

    >>> round(disagreement(0.01, 0, 10_000, 0.025).value, 6)  # 0.01 + 1 − δ^(1/m)
    0.010369
    """
    return Parts.added(error_of_the_surrogate=surrogate_bound, disagreement=clopper_pearson(apart, m, math.log(delta)))
