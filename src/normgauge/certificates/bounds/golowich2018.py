"""Frobenius norms: Rademacher complexity of a chain of linear maps with elementwise activations."""

from __future__ import annotations

import math

# x₁ … x_m of the sample, ‖X‖_F² = Σ‖x_i‖²; d matrices; activations elementwise, 1-Lipschitz, positively homogeneous.


def log_rademacher(log_data: float, depth: int, m: int) -> float:
    """Ln of Rad ≤ (√(2 ln2·d) + 1) ‖X‖_F/m, for ∏‖W_j‖_F ≤ 1 and one output.

    It multiplies with the product of the norms. Parameter-free linear maps in between count with their spectral norm.

    Holds:  the empirical Rademacher complexity of this sample.
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
