"""Pick-to-learn: compression that adds the worst sample until none is wrong, without a union over choices."""

from __future__ import annotations

from normgauge.certificates.bounds.parts import Parts
from normgauge.certificates.bounds.roots import upper_end


def excess(kept: int, n: int, delta: float, eps: float) -> bool:
    """Whether (δ/n) Σ_{m=k}^{n−1} [C(m,k)/C(n,k)] (1−ε)^−(n−m) ≥ 1: the sum grows with ε.

    The terms are positive, so the sum stops as soon as it is large enough: nothing overflows.
    """
    target, total, term = n / delta, 0.0, 1.0
    for m in range(n - 1, kept - 1, -1):
        term *= (m + 1 - kept) / ((m + 1) * (1 - eps))  # C(m,k)/C(m+1,k) = (m+1−k)/(m+1)
        total += term
        if total >= target:
            return True
    return False


def pick_to_learn_bound(kept: int, n: int, delta: float) -> Parts:
    """R ≤ ε(k, δ), the root of (δ/n) Σ_{m=k}^{n−1} [C(m,k)/C(n,k)] (1−ε)^−(n−m) = 1.

    Holds:  for the predictor that pick-to-learn ends with, after picking k of n samples; 1 where k = n.
    Source: Campi & Garatti 2023, Compression, generalization and learning; Paccagnan, Campi & Garatti 2023, The
            pick-to-learn algorithm.

    Args:
        kept: k, the samples picked.
        n: training samples.
        delta: share of failure.

    Returns:
        The bound; its parts are the share picked and the slack above it.

    >>> pick_to_learn_bound(0, 1, 0.05).value  # (δ/1)/(1−ε) = 1
    0.95...
    """
    if kept >= n:
        return Parts(1.0, (("share picked", 1.0),))
    high = upper_end(0.0, 1.0, lambda eps: not excess(kept, n, delta, eps), width=1e-13)
    return Parts.reached(share_picked=kept / n, slack=min(1.0, high + 1e-12))
