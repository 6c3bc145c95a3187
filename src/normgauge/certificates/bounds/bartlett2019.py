"""VC dimension of piecewise-linear networks: a count of weights, blind to their values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from normgauge.certificates.bounds.parts import Parts


def vc_dimension(weights: Sequence[int], units: Sequence[int]) -> float:
    """VC ≤ L + L̄ W log2(4e s log2(2e s)), s = Σ i·k_i, L̄ = (1/W) Σ W_i.

    W_i is the number of weights up to layer i, W = W_L, so L̄ is how many layers a weight has above it on average.

    Holds:  activations with one kink, two linear pieces; weights may be shared. For K classes with k_L = K − 1: whether
            (x, y) is an error depends on x only through the signs of h_y − h_b, b ≠ y, which are K − 1 polynomials of
            the degree of the last layer, and these are all that the proof counts there. A max pool adds the signs of
            the differences it compares: a layer whose k outputs are pooled in windows of q counts as k(q+1)/2 units.
    Source: Bartlett, Harvey, Liaw & Mehrabian 2019, Theorem 7, with degree 1 and p = 1 kink.

    Args:
        weights: of each layer, biases included.
        units: k_i of each layer; for the last one the classes less 1.

    Returns:
        The upper bound of the VC dimension.

    >>> vc_dimension([3], [1])  # a half-plane has 3: 1 + 3 log2(4e log2(2e))
    15.193...
    """
    up_to, through = 0, 0
    for count in weights:
        up_to += count
        through += up_to  # Σ W_i = L̄ W
    s = sum(i * k for i, k in enumerate(units, start=1))
    return len(weights) + through * math.log2(4 * math.e * s * math.log2(2 * math.e * s))


def slack(vc: float, m: int, delta: float) -> float:
    """√((2·VC·ln(2em/VC) + ln(2/δ))/m), infinite where m ≤ VC.

    Holds:  0-1 loss, for all members of the class at once. It is at least √((VC ln(2em/VC) + ln(4/δ))/m) + 1/m
            wherever it is below 1.
    Source: Vapnik 1998, chapter 4 (the smaller form); the form printed is that of Than's slides, 2023.
    """
    if m <= vc:
        return math.inf
    return math.sqrt((2 * vc * math.log(2 * math.e * m / vc) + math.log(2 / delta)) / m)


def vc_dimension_bound(error: float, vc: float, m: int, delta: float) -> Parts:
    """R ≤ R̂ + √((2·VC·ln(2em/VC) + ln(2/δ))/m).

    Args:
        error: share of the sample that is wrong; a tie counts as wrong.
        vc: an upper bound of the VC dimension.
        m: samples.
        delta: share of failure.

    Returns:
        The bound and its parts.
    """
    return Parts.added(training_error=error, VC_dimension=slack(vc, m, delta))
