"""Sample compression: a predictor rebuilt from a few of the training samples is tested on the rest."""

from __future__ import annotations

import math

from normgauge.certificates.bounds.holdout import clopper_pearson
from normgauge.certificates.bounds.parts import Parts


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
