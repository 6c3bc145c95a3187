"""Spectral norms: covering numbers of a chain of linear maps with Lipschitz activations."""

from __future__ import annotations

import math
from collections.abc import Sequence

from normgauge.certificates.bounds.margin import rademacher_deviation, round_up
from normgauge.certificates.bounds.parts import Parts, exp_up

CEILING = math.sqrt(2)  # a cover has ⌈x⌉ ≤ 2x elements to choose, x ≥ 1; below 1 the single map 0 is a cover


def log_sum(log_ratios: Sequence[float]) -> float:
    """Ln of (Σ t_i^(2/3))^(3/2), t_i = b_i/s_i."""
    top = max(log_ratios)
    if math.isinf(top):
        return top
    return top + 1.5 * math.log(math.fsum(math.exp((t - top) * 2 / 3) for t in log_ratios))


def spectral_margin_bound(
    margin_error: float,
    log_size: float,
    log_ratios: Sequence[float],
    log_data: float,
    width: int,
    m: int,
    delta: float,
) -> Parts:
    """R ≤ R̂_γ + 8/m^1.5 + 72√2 ‖X‖_F √(ln 2W²) ln(m)/m · (∏s_i/γ)(Σ(b_i/s_i)^(2/3))^(3/2) + 3√(ln(2/δ′)/(2m)).

    ln N(ε) ≤ 2·4‖X‖_F² ln(2W²) R²/(γε)² for the ramp of the margin (2/γ-Lipschitz in the outputs), R the product of
    norms; Dudley's integral from 1/m to √m of √(ln N) gives Rad ≤ 4/m^1.5 + 18 ln(m)·√(ln N(1))/m. The √2 is for the
    ceiling in Maurey's lemma, which the published form drops.

    ∏s_i/γ and every b_i/s_i are rounded up to a grid: networks are scaled to s_i = 1 and the margin γ/∏s_i first, which
    positively homogeneous activations allow. δ′ is what the grids leave of δ.

    Holds:  activations and pools 1-Lipschitz in ℓ2, positively homogeneous; reference matrices M_i = 0.
    Source: Bartlett, Foster & Telgarsky 2017, Theorem 3.3, Lemmas A.3 and A.5.

    Args:
        margin_error: share of the sample with a margin of at most γ.
        log_size: ln(∏s_i/γ), s_i upper bounds of the spectral norms.
        log_ratios: ln(b_i/s_i), b_i the sum of the ℓ2 norms of the rows of matrix i.
        log_data: ln ‖X‖_F.
        width: W, the largest number of inputs or outputs of a matrix.
        m: samples.
        delta: share of failure.

    Returns:
        The bound and its parts.
    """
    log_point, price = round_up(log_size)
    rounded = [round_up(t) for t in log_ratios]
    log_capacity = log_point + log_sum([t for t, _ in rounded]) + log_data + math.log(math.log(2 * width**2)) / 2
    capacity = exp_up(math.log(72 * CEILING * math.log(max(m, 2)) / m) + log_capacity)
    total = price + math.fsum(p for _, p in rounded)
    return Parts.added(
        margin_error=margin_error, capacity=capacity, cover=8 / m**1.5, deviation=rademacher_deviation(m, delta, total)
    )
