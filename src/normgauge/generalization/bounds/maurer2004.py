"""PAC-Bayes with Maurer's constant: what a random predictor drawn from Q does on unseen data."""

from __future__ import annotations

import math

from normgauge.generalization.bounds.kl import kl_inverse
from normgauge.generalization.bounds.parts import Parts


def exponent(kl: float, n: int, delta: float) -> float:
    """(KL(Q‖P) + ln(2√n/δ))/n.

    Holds:  2√n bounds ξ(n) = Σ C(n,k)(k/n)^k(1−k/n)^(n−k) for n ≥ 8 by Maurer; for n < 8 by computing ξ(n).
    """
    return (kl + math.log(2 * math.sqrt(n) / delta)) / n


def kl_bound(gibbs_loss: float, kl: float, n: int, delta: float) -> Parts:
    """E_Q R ≤ kl⁻¹(E_Q R̂, (KL(Q‖P) + ln(2√n/δ))/n).

    Holds:  loss in [0, 1], n iid samples, prior P fixed without them, for all posteriors Q at once; for the Gibbs
            predictor, never for a single network.
    Source: Maurer 2004, A note on the PAC-Bayesian theorem, Theorem 5.

    Args:
        gibbs_loss: mean loss of the random predictor on the sample, or an upper bound of it.
        kl: KL(Q‖P) in nats.
        n: samples.
        delta: share of failure.

    Returns:
        The bound; its parts are what each ingredient adds: the loss seen, the slack at KL = 0, the divergence.

    >>> round(kl_bound(0.0, 0.0, 1000, 0.05).value, 5)  # 1 − exp(−ln(2√n/δ)/n)
    0.00712
    """
    free = kl_inverse(gibbs_loss, exponent(0.0, n, delta))
    value = kl_inverse(gibbs_loss, exponent(kl, n, delta))
    terms = (("Gibbs loss on D", gibbs_loss), ("slack", free - gibbs_loss), ("divergence", value - free))
    return Parts(value, terms)


def root_bound(gibbs_loss: float, kl: float, n: int, delta: float) -> Parts:
    """E_Q R ≤ E_Q R̂ + √((KL(Q‖P) + ln(2√n/δ))/(2n)): the kl form loosened by Pinsker's inequality.

    >>> round(root_bound(0.1, 50.0, 1000, 0.05).value, 4)
    0.269
    """
    return Parts.added(Gibbs_loss_on_D=gibbs_loss, divergence_and_slack=math.sqrt(exponent(kl, n, delta) / 2))
