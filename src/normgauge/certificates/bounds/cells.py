"""What a partition into cells costs: the slack of local-Lipschitz bounds, for a loss in [0, 1].

m samples fall into N cells fixed before they were drawn, m_i into cell i, |T| cells are met. With probability 1 − δ,
for every model at once, also one chosen after the samples,

    F(P) ≤ F(D) + Σ_{i∈T} (m_i/m) ε_i + τ,   ε_i = mean over s ∈ D_i of E[|f(x) − f(s)| : x in cell i]

with any ONE of the τ below, named beforehand.

Proof: F(P) − F(D) ≤ Σ a_i(p_i − m_i/m) + Σ_T (m_i/m) ε_i with a_i = E[f | cell i] in [0, 1], and the first sum is at
most the total variation between the cell frequencies and their probabilities, whatever the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from normgauge.certificates.bounds.kl import kl_inverse
from normgauge.certificates.bounds.parts import Parts
from normgauge.certificates.bounds.roots import upper_end


def tau_published(met: float, cells: float, m: float, delta: float) -> float:
    """(√2+1)√(|T|ln(2N/δ)/m) + 2|T|ln(2N/δ)/m, as printed in Theorem 20 of Than 2025; Kawaguchi et al. 2022."""
    share = met * math.log(2 * cells / delta) / m
    return (math.sqrt(2) + 1) * math.sqrt(share) + 2 * share


def tau_rademacher(counts: Sequence[int], delta: float) -> float:
    """(1/m) Σ E|S_{m_i}| + 3√(ln(2/δ)/(2m)): free of N, so N may be infinite."""
    m = sum(counts)
    return sum(mean_walk(k) for k in counts) / m + 3 * math.sqrt(math.log(2 / delta) / (2 * m))


def tau_variation(cells: float, m: float, delta: float) -> float:
    """½√((N−1)/m) + √(ln(1/δ)/(2m)): the mean of the total variation, and McDiarmid."""
    return math.sqrt((cells - 1) / m) / 2 + math.sqrt(math.log(1 / delta) / (2 * m))


def tau_chernoff(counts: Sequence[int], cells: float, delta: float) -> float:
    """Σ √(2 m_i ln(N/δ))/m: Chernoff in every cell."""
    return sum(math.sqrt(2 * k * math.log(cells / delta)) for k in counts) / sum(counts)


def tau_xu_mannor(cells: float, m: float, delta: float) -> float:
    """√((2N ln 2 + 2 ln(1/δ))/m): Xu & Mannor 2012, Theorem 1, from Bretagnolle–Huber–Carol."""
    return math.sqrt((2 * cells * math.log(2) + 2 * math.log(1 / delta)) / m)


def robust_bound(loss: float, change: float, tau: float, limit: float = 1.0) -> Parts:
    """F(P) ≤ F(D) + ε + C·τ.

    Holds:  ε is certified: in no cell does the loss of any input differ from that of a sample in it by more; a largest
            difference that was seen is an estimate. Cells fixed without D: N counts all of them, |T| those D meets.
    Source: Xu & Mannor 2012, Theorem 1, from the inequality of Bretagnolle, Huber & Carol, with
            τ = √((2N ln 2 + 2 ln(1/δ))/m), `tau_xu_mannor`; Kawaguchi, Deng, Luh & Huang 2022, Theorem 1, with
            τ = (√2+1)√(|T| ln(2N/δ)/m) + 2|T| ln(2N/δ)/m, `tau_published`.

    Args:
        loss: F(D).
        change: ε.
        tau: τ of all the cells, or of those met.
        limit: C, the range of the loss.

    Returns:
        The bound and its parts.
    """
    return Parts.added(training_loss=loss, change_in_a_cell=change, cells=limit * tau)


def entropy_radius(cells: int, m: int, delta: float) -> float:
    """e with P(KL(p̂‖p) ≥ e) ≤ δ: exp(−me)(em·e/(N−1))^(N−1) = δ, e ≥ (N−1)/m.

    Holds:  for any probabilities of the N cells; by data processing kl(Σp̂_i a_i, Σp_i a_i) ≤ KL(p̂‖p) for every a.
    Source: Agrawal 2020, Finite-sample concentration of the multinomial in relative entropy, Theorem I.2.

    >>> entropy_radius(1, 100, 0.05)
    0.0
    """
    if cells == 1:
        return 0.0
    free = cells - 1

    def above(x: float) -> bool:
        return 1 - x + math.log(x) > math.log(delta) / free

    high = 2.0
    while above(high):
        high *= 2
    return upper_end(1.0, high, above) * free / m


def kl_cells(mean: float, cells: int, m: int, delta: float) -> float:
    """kl⁻¹(F(D) + Σ(m_i/m)ε_i, e): the smallest form if the sum is small."""
    return kl_inverse(min(1.0, mean), entropy_radius(cells, m, delta))


def mean_walk(k: int) -> float:
    """E|S_k| of k signs: k·binom(k−1, ⌊(k−1)/2⌋)/2^(k−1).

    >>> [mean_walk(k) for k in range(5)]
    [0.0, 1.0, 1.0, 1.5, 1.5]
    """
    if k == 0:
        return 0.0
    half = (k - 1) // 2
    if k < 60:
        return math.ldexp(k * math.comb(k - 1, half), 1 - k)
    log_binomial = math.lgamma(k) - math.lgamma(half + 1) - math.lgamma(k - half)
    return k * math.exp(log_binomial - (k - 1) * math.log(2))
