"""Margin bounds from an empirical Rademacher complexity, for a product of norms chosen after training."""

from __future__ import annotations

import math

from normgauge.certificates.bounds.grid import round_up
from normgauge.certificates.bounds.parts import Parts, exp_up


def rademacher_deviation(m: int, delta: float, price: float) -> float:
    """3√((ln(2/δ) + price)/(2m)): the empirical Rademacher bound, δ shared by a grid."""
    return 3 * math.sqrt((math.log(2 / delta) + price) / (2 * m))


def rademacher_bound(
    margin_error: float, log_unit: float, log_size: float, classes: int, m: int, delta: float
) -> Parts:
    """R ≤ R̂_γ + 4K·Rad + 3√(ln(2/δ_j)/(2m)), Rad = unit · 2^(j/8), 2^(j/8) ≥ size/γ.

    The class of networks is closed under scaling: h/γ has the margin 1 where h has γ, and its norms multiply to
    size/γ. So one grid over size/γ pays for the choice of the norms and of γ together.

    Holds:  positively homogeneous activations; classes may be 2 or more.
    Source: Kuznetsov, Mohri & Syed 2014, Theorem 2; Mohri, Rostamizadeh & Talwalkar 2018, Theorem 9.2, for 4K/γ.

    Args:
        margin_error: share of the sample with h_y − max_{b≠y} h_b ≤ γ.
        log_unit: ln of the Rademacher complexity of networks whose norms multiply to 1, one output.
        log_size: ln(size/γ).
        classes: K.
        m: samples.
        delta: share of failure.

    Returns:
        The bound and its parts.
    """
    log_point, price = round_up(log_size)
    capacity = exp_up(math.log(4 * classes) + log_unit + log_point)
    return Parts.added(margin_error=margin_error, capacity=capacity, deviation=rademacher_deviation(m, delta, price))
