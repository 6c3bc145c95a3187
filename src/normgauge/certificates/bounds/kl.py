"""The relative entropy of two coins and its inverse, rounded so that a bound is never too small."""

from __future__ import annotations

import math

from normgauge.certificates.bounds.roots import upper_end


def small_kl(q: float, p: float) -> float:
    """kl(q‖p) = q ln(q/p) + (1−q) ln((1−q)/(1−p)), in nats.

    >>> round(small_kl(0.1, 0.3), 6)
    0.116322
    >>> small_kl(0.2, 1.0)
    inf
    """
    if q in (0.0, 1.0):
        p = p if q == 1.0 else 1.0 - p
        return math.inf if p == 0.0 else -math.log(p)
    if p in (0.0, 1.0):
        return math.inf
    return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))


def kl_inverse(q: float, c: float) -> float:
    """The largest p with kl(q‖p) ≤ c: what a mean of q over a sample allows the true mean to be.

    Args:
        q: in [0, 1]; above 1 counts as 1.
        c: the exponent, such as ln(1/δ)/n.

    Returns:
        p in [q, 1], the upper end of the last interval of a bisection.

    >>> kl_inverse(0.0, 0.01) >= 1 - math.exp(-0.01)
    True
    >>> kl_inverse(0.02, 0.0)
    0.02
    """
    if q >= 1.0 or math.isinf(c):
        return 1.0
    q = max(q, 0.0)
    if c <= 0.0:
        return q
    return upper_end(q, 1.0, lambda p: small_kl(q, p) <= c)
