"""PAC-Bayes with Maurer's constant and a Monte Carlo step: what a random predictor drawn from Q does on unseen data."""

from __future__ import annotations

import math

from normgauge.certificates.bounds.kl import kl_inverse
from normgauge.certificates.bounds.parts import Parts


def maurer_exponent(kl: float, n: int, delta: float) -> float:
    """c = (KL(Q‖P) + ln(2√n/δ))/n, with which E_Q R ≤ kl⁻¹(E_Q R̂, c).

    Holds:  loss in [0, 1], n iid samples, prior P fixed without them, for all posteriors Q at once; for the Gibbs
            predictor, never for a single network. 2√n bounds ξ(n) = Σ C(n,k)(k/n)^k(1−k/n)^(n−k) for n ≥ 8 by Maurer;
            for n < 8 by computing ξ(n).
    Source: Maurer 2004, A note on the PAC-Bayesian theorem, Theorem 5.
    """
    return (kl + math.log(2 * math.sqrt(n) / delta)) / n


def monte_carlo(sampled_loss: float, draws: int, delta_draws: float) -> float:
    """kl⁻¹(MC, ln(2/δ′)/V): the Gibbs loss on the sample is at most this, with probability 1 − δ′.

    Holds:  V independent draws, each one variable in [0, 1] with mean E_Q R̂: a network drawn from Q on the whole
            sample, or on a point of it drawn at random.
    Source: Langford & Caruana 2002; the 2 is theirs, 1 would do for one side.

    >>> round(monte_carlo(0.02, 150_000, 0.01), 5)
    0.0212
    """
    return kl_inverse(sampled_loss, math.log(2 / delta_draws) / draws)


def pac_bayes_kl_bound(sampled_loss: float, draws: int, kl: float, n: int, delta: float, delta_draws: float) -> Parts:
    """E_Q R ≤ kl⁻¹(kl⁻¹(MC, ln(2/δ′)/V), (KL + ln(2√n/δ))/n), with probability 1 − δ − δ′.

    Holds:  prior fixed without the n samples of the bound (it may be learnt on others); for the Gibbs predictor.
    Source: Pérez-Ortiz, Rivasplata, Shawe-Taylor & Szepesvári 2021, Tighter risk certificates, section 6.

    Args:
        sampled_loss: mean loss on the n samples over the draws.
        draws: V.
        kl: KL(Q‖P) in nats.
        n: samples the prior never saw.
        delta: share of failure of the PAC-Bayes step.
        delta_draws: δ′, share of failure of the Monte Carlo step.

    Returns:
        The bound and its parts.
    """
    gibbs = monte_carlo(sampled_loss, draws, delta_draws)
    return Parts.reached(
        sampled_Gibbs_loss_on_D=sampled_loss,
        Monte_Carlo=gibbs,
        slack=kl_inverse(gibbs, maurer_exponent(0.0, n, delta)),
        divergence=kl_inverse(gibbs, maurer_exponent(kl, n, delta)),
    )
