"""Sample compression: a predictor rebuilt from a few of the training samples is tested on the rest.

Pick-to-learn adds the worst sample until none is wrong, and pays for no union over choices.
"""

from __future__ import annotations

import math

from normgauge.certificates.bounds.holdout import clopper_pearson
from normgauge.certificates.bounds.parts import Parts
from normgauge.certificates.bounds.roots import upper_end


def log_choose(n: int, k: int) -> float:
    """Ln C(n, k), rounded up.

    >>> round(log_choose(5, 2), 9)
    2.302585093
    """
    parts = math.lgamma(n + 1), math.lgamma(k + 1), math.lgamma(n - k + 1)
    return max(0.0, parts[0] - parts[1] - parts[2] + 1e-14 * parts[0])


def log_share(n: int, kept: int, delta: float) -> float:
    """ln(δ · 6/π² (|i|+1)⁻² / C(n, |i|)): what is left of δ for one choice of |i| samples out of n.

    The union runs over all sizes and all choices of that size.
    """
    return math.log(6 * delta / math.pi**2) - 2 * math.log(kept + 1) - log_choose(n, kept)


def sample_compression_bound(errors: int, n: int, kept: int, delta: float) -> Parts:
    """R ≤ Bin⁻¹(k, n−|i|, δ · 6/π² (|i|+1)⁻² / C(n, |i|)).

    Holds:  for the predictor that a map fixed in advance rebuilds from the kept samples, however they
            were picked; k errors are counted on the n − |i| others.
    Source: Littlestone & Warmuth 1986; Laviolette, Marchand & Shah 2005 for the binomial form.

    Args:
        errors: k.
        n: training samples.
        kept: |i|.
        delta: share of failure.

    Returns:
        The bound; its parts are the error on the others, the slack of a single test, and the price of the choice.

    >>> round(sample_compression_bound(0, 100, 0, 0.05).value, 5)  # 1 − (6δ/π²)^(1/n)
    0.03433
    """
    rest = n - kept
    if rest <= 0:
        return Parts(1.0, (("price of the choice", 1.0),))
    return Parts.reached(
        error_on_the_others=errors / rest,
        slack=clopper_pearson(errors, rest, math.log(delta)),
        price_of_the_choice=clopper_pearson(errors, rest, log_share(n, kept, delta)),
    )


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
