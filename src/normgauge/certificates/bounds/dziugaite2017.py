"""PAC-Bayes with an optimised Gaussian: the variance of the prior is chosen on a grid and paid for."""

from __future__ import annotations

import math

from normgauge.certificates.bounds.kl import kl_inverse
from normgauge.certificates.bounds.parts import Parts
from normgauge.certificates.bounds.perez_ortiz2021 import monte_carlo

PRECISION = 100  # b: steps of the grid in one unit of ln λ
LARGEST_VARIANCE = 0.1  # c


def prior_variance(step: int, precision: int = PRECISION, largest: float = LARGEST_VARIANCE) -> float:
    """λ_j = c·exp(−j/b), j = 1, 2, ...: the variances a prior may have.

    >>> round(prior_variance(100), 6)  # 0.1/e
    0.036788
    """
    return largest * math.exp(-step / precision)


def grid_step(variance: float, precision: int = PRECISION, largest: float = LARGEST_VARIANCE) -> int:
    """The j ≥ 1 whose λ_j is nearest to ``variance`` in the logarithm."""
    return max(1, round(precision * math.log(largest / variance)))


def price(step: int) -> float:
    """ln(π²j²/6): variance λ_j gets the share 6/(π²j²) of δ, and these add up to 1."""
    return 2 * math.log(step) + math.log(math.pi**2 / 6)


def grid_exponent(kl: float, step: int, n: int, delta: float) -> float:
    """(KL + 2 ln j + ln(π²n/(6δ)))/(n − 1), where 2 ln j = 2 ln(b ln(c/λ_j)).

    Holds:  n ≥ 2: it is at least Maurer's (KL + ln(ξ(n)/δ_j))/n, since ξ(n) ≤ n for n ≥ 3 and ξ(2) = 2.5.
    """
    return (kl + price(step) + math.log(n / delta)) / (n - 1)


def grid_prior_bound(
    sampled_loss: float, draws: int, kl: float, step: int, n: int, delta: float, delta_draws: float
) -> Parts:
    """E_Q R ≤ kl⁻¹(kl⁻¹(MC, ln(2/δ′)/draws), (KL + 2 ln j + ln(π²n/(6δ)))/(n−1)), with probability 1 − δ − δ′.

    Holds:  prior N(w₀, λ_j I) with w₀ fixed without D and j on the grid; for the Gibbs predictor.
    Source: Dziugaite & Roy 2017, Computing nonvacuous generalization bounds, section 3 and Theorem 2.1.

    Args:
        sampled_loss: mean loss on the sample over independent draws from Q.
        draws: how many.
        kl: KL(Q ‖ N(w₀, λ_j I)).
        step: j.
        n: samples.
        delta: share of failure of the PAC-Bayes step.
        delta_draws: δ′, share of failure of the Monte Carlo step.

    Returns:
        The bound and its parts.
    """
    gibbs = monte_carlo(sampled_loss, draws, delta_draws)
    return Parts.reached(
        sampled_Gibbs_loss_on_D=sampled_loss,
        Monte_Carlo=gibbs,
        slack=kl_inverse(gibbs, grid_exponent(0.0, 1, n, delta)),
        choice_of_prior_variance=kl_inverse(gibbs, grid_exponent(0.0, step, n, delta)),
        divergence=kl_inverse(gibbs, grid_exponent(kl, step, n, delta)),
    )
