"""PAC-Bayes in Catoni's form, with the price of choosing its parameter after the fact."""

from __future__ import annotations

import math

from normgauge.generalization.bounds.parts import Parts

GRID = 1e-4  # α: the grid is λ = (1+α)^k, k = 0, 1, 2, ...
COARSE = 200  # grid points between two tries of the first search


def catoni(loss: float, kl: float, n: int, delta: float, step: int, alpha: float = GRID) -> float:
    """(1−e^(−aq))/(1−e^(−a)), a = λ/n, q = R̂ + ((1+α)/λ)(KL + ln(1/δ) + 2 ln(2 + k)), λ = (1+α)^k.

    Holds:  for all k at once, since λ_k gets the share 1/((k+1)(k+2)) of δ; loss in [0, 1]; for the Gibbs predictor.
    Source: Catoni 2007, section 1.2; Zhou et al. 2019, Theorem 2.1, with k = ln λ / ln(1+α).

    Args:
        loss: E_Q R̂, or an upper bound of it.
        kl: KL(Q‖P) in nats.
        n: samples.
        delta: share of failure.
        step: k ≥ 0.
        alpha: α.

    Returns:
        The bound at this λ, at most 1.
    """
    weight = (1 + alpha) ** step
    q = loss + (1 + alpha) / weight * (kl + math.log(1 / delta) + 2 * math.log(2 + step))
    return min(1.0, math.expm1(-weight / n * q) / math.expm1(-weight / n) * (1 + 1e-12))


def bound(loss: float, kl: float, n: int, delta: float, alpha: float = GRID) -> Parts:
    """The smallest `catoni` over the grid: every point is paid for, so the search is free.

    Returns:
        The bound; its parts are the loss seen and the rest.

    >>> bound(0.0, 0.0, 10_000, 0.05).value < 0.01
    True
    """
    last = math.ceil(math.log(100.0 * n) / math.log1p(alpha))
    best = min(range(0, last, COARSE), key=lambda k: catoni(loss, kl, n, delta, k, alpha))
    near = range(max(0, best - COARSE), best + COARSE + 1)
    value = min(catoni(loss, kl, n, delta, k, alpha) for k in near)
    return Parts(value, (("Gibbs loss on D", loss), ("divergence and slack", value - loss)))
