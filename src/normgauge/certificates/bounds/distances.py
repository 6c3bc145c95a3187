"""How far apart points of one cell are: the Lipschitz term of Theorem 20, bounded from the sample itself.

Write ρ(x, s) = min(1, t‖x − s‖) for a steepness t: what a loss in [0, 1] with slope t can change between two points
of a cell. The term to bound is E = (1/m) Σ_{s∈D} ψ(s), ψ(s) = E[ρ(x, s) : x in the cell of s].
"""

from __future__ import annotations

import math


def paired_distance(total: float, squares: float, singles: int, m: int, delta: float) -> float:
    """E from disjoint pairs and triples inside the cells.

    E ≤ (S + singles)/m + (√(2V ln(2/δ)) + ln(2/δ))/m,   √V = √(2ℓ) + √(2ℓ + Q), ℓ = ln(2/δ)

    S adds 2ρ for a pair and ρ₁₂+ρ₁₃+ρ₂₃ for a triple; Q adds 4ρ² for a pair and ρ₁₂²+ρ₁₃²+ρ₂₃² for a triple; points
    alone in their cell count 1.

    Why: given the cells of all points, the groups are independent. With ρ = μ + a + a' + ω (Hoeffding), Z = Σψ − its
    share of S is −a−a'−2ω for a pair and −Σa−Σω for a triple: mean 0, Z ≤ 3, variance at most 4Eρ² and 3Eρ². Bernstein
    bounds ΣZ; the sum of those second moments is bounded by its own lower tail, multiplicative Chernoff for variables
    in [0, 4]. Half of δ each.

    Holds:  for cells fixed before the sample and one t fixed before it; take δ/k for k values of t.

    Args:
        total: S.
        squares: Q.
        singles: points that are alone in their cell.
        m: points in all.
        delta: share of failure.

    Returns:
        The bound, never above 1.
    """
    log = math.log(2 / delta)
    root = math.sqrt(2 * log) + math.sqrt(2 * log + squares)
    slack = root * math.sqrt(2 * log) + log
    return min(1.0, (total + singles + slack) / m)


def from_holdout(
    weights: list[float], means: list[float], counts: list[int], diameters: list[float], delta: float
) -> float:
    """Λ = Σ w_i λ_i from fresh points: n_i of them in cell i, λ̂_i their mean distance to the points of D there.

    Λ ≤ Σ_{n_i>0} w_i λ̂_i + √(½ ln(1/δ) Σ_{n_i>0} w_i² B_i²/n_i) + Σ_{n_i=0} w_i B_i

    Holds:  for weights and cells independent of the fresh points (they may depend on D).
    """
    met = [i for i, n in enumerate(counts) if n > 0]
    seen = sum(weights[i] * means[i] for i in met)
    spread = sum((weights[i] * diameters[i]) ** 2 / counts[i] for i in met)
    unseen = sum(w * b for w, b, n in zip(weights, diameters, counts, strict=True) if n == 0)
    return seen + math.sqrt(math.log(1 / delta) / 2 * spread) + unseen
