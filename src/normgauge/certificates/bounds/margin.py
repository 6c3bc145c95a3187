"""Margin bounds from Rademacher complexities, for norms and a margin that are chosen after training.

Norms and margins are rounded up to a grid, and the points of the grid share δ.
"""

from __future__ import annotations

import math

from normgauge.certificates.bounds.parts import Parts, exp_up

STEP = math.log(2) / 8  # neighbouring grid points differ by a factor 2^(1/8)
LOWEST = -1e6  # where a norm is 0


def round_up(log_value: float) -> tuple[float, float]:
    """The logarithm of the next grid point 2^(j/8) above, j any integer, and the price of it.

    Point j gets the share (2/3)/((|j|+1)(|j|+2)) of δ: these add up to 1 over all integers, since
    Σ_{j ≥ 0} 1/((j+1)(j+2)) = 1 and the point 0 counts once.

    Args:
        log_value: ln of a norm, or of a ratio of a norm and a margin.

    Returns:
        ln of the grid point, and −ln of its share of δ.

    >>> log_point, price = round_up(math.log(1.5))
    >>> round(math.exp(log_point), 4), round(price, 4)  # 2^(5/8), ln(1.5·6·7)
    (1.5422, 4.1431)
    """
    if math.isinf(log_value) and log_value > 0:
        return math.inf, math.inf
    index = math.ceil(max(log_value, LOWEST) / STEP - 1e-12)
    point = index * STEP
    if point < log_value:  # the quotient was rounded down onto the grid point below
        index += 1
        point = index * STEP
    return point, math.log(1.5 * (abs(index) + 1) * (abs(index) + 2))


def log_rademacher(log_data: float, depth: int, m: int) -> float:
    """Ln of Rad ≤ (√(2 ln2·d) + 1) ‖X‖_F/m, for ∏‖W_j‖_F ≤ 1 and one output.

    It multiplies with the product of the norms. Parameter-free linear maps in between count with their spectral norm.

    Holds:  the empirical Rademacher complexity of this sample x₁ … x_m, ‖X‖_F² = Σ‖x_i‖²; d matrices; activations
            elementwise, 1-Lipschitz, positively homogeneous.
    Source: Golowich, Rakhlin & Shamir 2018, Theorem 1, before ‖X‖_F ≤ B√m is used.

    Args:
        log_data: ln ‖X‖_F.
        depth: d.
        m: samples.

    Returns:
        The logarithm of the complexity.
    """
    return math.log(math.sqrt(2 * math.log(2) * depth) + 1) + log_data - math.log(m)


def log_rademacher_2015(log_data: float, depth: int, m: int) -> float:
    """Ln of Rad ≤ 2^(d−1) ‖X‖_F/m, for ∏‖W_j‖_F ≤ 1 and one output.

    Each hidden layer is peeled off by E sup‖Σε_iσ(Wz_i)‖ ≤ 2‖W‖_F E sup‖Σε_i z_i‖; the last one has no activation.

    Source: Neyshabur, Tomioka & Srebro 2015, Corollary 2, with p = q = 2.
    """
    return (depth - 1) * math.log(2) + log_data - math.log(m)


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
