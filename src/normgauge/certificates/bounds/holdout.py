"""Bounds from samples the training never saw: nothing with labels beats them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from normgauge.certificates.bounds.kl import kl_inverse
from normgauge.certificates.bounds.parts import Parts
from normgauge.certificates.bounds.roots import upper_end


def clopper_pearson(errors: int, n: int, log_delta: float) -> float:
    """The largest error rate p with P(Bin(n, p) ≤ k) ≥ δ: exact for any n.

    Holds:  for a predictor fixed before the n samples are drawn.
    Source: Clopper & Pearson 1934; Langford 2005, Theorem 3.3.

    Args:
        errors: k of the n samples are wrong.
        n: samples.
        log_delta: ln δ; a logarithm, since compression schemes spend δ far below the smallest float.

    Returns:
        The upper end of the last interval of a bisection.

    >>> round(clopper_pearson(0, 100, math.log(0.05)), 6)  # 1 − δ^(1/n)
    0.029513
    """
    if errors >= n:
        return 1.0
    high = upper_end(errors / n, 1.0, lambda p: log_binomial_below(errors, n, p) >= log_delta)
    return min(1.0, high * (1 + 1e-12))


def log_binomial_below(k: int, n: int, p: float) -> float:
    """Ln P(Bin(n, p) ≤ k), summed from the largest term down.

    For k below the mean np the terms shrink geometrically from k down, so the sum is short.
    """
    if k >= n or p <= 0.0:
        return 0.0
    if p >= 1.0:
        return -math.inf
    if k > n * p:  # near 1: the upper tail, where terms shrink upwards, is the small one
        above = _tail(k + 1, n, p, upward=True)
        return math.log1p(-min(math.exp(above), 1.0 - 1e-17)) if above < 0 else -math.inf
    return _tail(k, n, p, upward=False)


def _tail(k: int, n: int, p: float, *, upward: bool) -> float:
    first = (
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
    )
    odds, total, term = p / (1 - p), 1.0, 1.0
    i = k
    while (i < n) if upward else (i > 0):
        term *= (n - i) / (i + 1) * odds if upward else i / ((n - i + 1) * odds)
        total += term
        if term < 1e-18 * total:
            break
        i += 1 if upward else -1
    return first + math.log(total)


def kl_holdout(mean: float, n: int, delta: float) -> float:
    """kl⁻¹(F(V), ln(1/δ)/n): for any loss in [0, 1].

    Source: Chernoff's bound for means of [0, 1] variables (Hoeffding 1963, Theorem 1).
    """
    return kl_inverse(mean, math.log(1 / delta) / n)


def group_mean(wrong: Sequence[int], sizes: Sequence[int]) -> float:
    """F(V) for samples that come in groups: the mean over groups of the share of a group that is wrong.

    Let groups be independent draws from one source of groups; samples of one group may depend on each other. The
    shares Z_g ∈ [0, 1] of G groups are then independent with one mean, R = E Z: the error of a random sample of a
    random group, where each group weighs the same, large or small. So `kl_holdout` and `hoeffding` hold with
    F(V) = Σ Z_g / G and n = G, and nothing that counts samples does. R is the error of a random sample if all groups
    are of one size, or if their size has nothing to do with the error.

    Args:
        wrong: how many samples of each group are.
        sizes: how many each has.

    Returns:
        The mean share.

    >>> group_mean([2, 0], [2, 8])
    0.5
    """
    return math.fsum(k / size for k, size in zip(wrong, sizes, strict=True)) / len(sizes)


def hoeffding(mean: float, n: int, delta: float, limit: float = 1.0) -> float:
    """F(V) + C√(ln(1/δ)/(2n)): the plain form, for any loss in [0, C]."""
    return mean + limit * math.sqrt(math.log(1 / delta) / (2 * n))


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
