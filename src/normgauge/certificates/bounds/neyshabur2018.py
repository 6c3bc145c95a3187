"""Spectral norms by PAC-Bayes: how far Gaussian noise on the weights moves the outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from normgauge.certificates.bounds.margin import round_up
from normgauge.certificates.bounds.parts import Parts, exp_up


def log_divergence(log_size: float, log_ratios: Sequence[float], width: int) -> float:
    """Ln of KL ≤ 42² e² d² h ln(4dh) · (B∏s_i/γ)² Σ(F_i/s_i)² / 2.

    42 ≥ 4√2 e² makes noise of σ = γ/(42 d B β^(d−1) √(h ln 4dh)) move an output by less than γ/4 half of the time.

    Args:
        log_size: ln(B∏s_i/γ), B the largest norm of an input.
        log_ratios: ln(F_i/s_i), F_i the Frobenius norms.
        width: h, the largest number of inputs or outputs of a matrix.

    Returns:
        The logarithm of the divergence.
    """
    depth, top = len(log_ratios), max(log_ratios)
    squares = 2 * top + math.log(math.fsum(math.exp(2 * (t - top)) for t in log_ratios))
    constant = 2 * math.log(42 * math.e * depth) + math.log(width * math.log(4 * depth * width)) - math.log(2)
    return constant + 2 * log_size + squares


def spectral_pac_bayes_bound(
    margin_error: float,
    log_size: float,
    log_norm: float,
    log_ratios: Sequence[float],
    width: int,
    m: int,
    delta: float,
) -> Parts:
    """R ≤ R̂_γ + 4√((KL + ln(d·m^(1/2d)) + ln(6m/δ₁) + price)/(m−1)) + ln(1/δ₂)/m,  δ₁ = δ₂ = δ/2.

    d·m^(1/2d) priors cover all β = (B∏s_i/γ)^(1/d) for which the bound can be below 1. The theorem wants every input
    that can come inside the ball B; what is known is that those of D are. So B is rounded up to a grid, with its
    price, errors inside the ball are bounded by the theorem, and an input outside the ball of all m seen has a
    probability of at most ln(1/δ₂)/m.

    Holds:  activations and pools 1-Lipschitz with 0 ↦ 0, positively homogeneous.
    Source: Neyshabur, Bhojanapalli & Srebro 2018, Lemmas 1 and 2, Theorem 1, constants written out.

    Args:
        margin_error: share of the sample with a margin of at most γ.
        log_size: ln(∏s_i/γ).
        log_norm: ln of the largest norm in the sample.
        log_ratios: ln(F_i/s_i).
        width: h.
        m: samples, at least 2.
        delta: share of failure.

    Returns:
        The bound and its parts.
    """
    depth = len(log_ratios)
    log_ball, price = round_up(log_norm)
    kl = exp_up(log_divergence(log_size + log_ball, log_ratios, width))
    logs = math.log(depth) + math.log(m) / (2 * depth) + math.log(12 * m / delta) + price
    alone = 4 * math.sqrt(logs / (m - 1))
    return Parts.added(
        margin_error=margin_error,
        divergence=4 * math.sqrt((kl + logs) / (m - 1)) - alone,
        slack=alone,
        inputs_beyond_all_seen=math.log(2 / delta) / m,
    )
