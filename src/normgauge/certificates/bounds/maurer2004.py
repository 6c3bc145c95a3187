"""PAC-Bayes with Maurer's constant: what a random predictor drawn from Q does on unseen data."""

from __future__ import annotations

import math


def maurer_exponent(kl: float, n: int, delta: float) -> float:
    """c = (KL(Q‖P) + ln(2√n/δ))/n, with which E_Q R ≤ kl⁻¹(E_Q R̂, c).

    Holds:  loss in [0, 1], n iid samples, prior P fixed without them, for all posteriors Q at once; for the Gibbs
            predictor, never for a single network. 2√n bounds ξ(n) = Σ C(n,k)(k/n)^k(1−k/n)^(n−k) for n ≥ 8 by Maurer;
            for n < 8 by computing ξ(n).
    Source: Maurer 2004, A note on the PAC-Bayesian theorem, Theorem 5.
    """
    return (kl + math.log(2 * math.sqrt(n) / delta)) / n
