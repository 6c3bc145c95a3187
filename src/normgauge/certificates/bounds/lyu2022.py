"""Spherical sharpness of a smoothed loss: a score, since its constants are not given."""

from __future__ import annotations

import math

from normgauge.certificates.bounds.parts import Parts


def smoothed_bound(loss: float, sharpness: float, noise: float, m: int) -> Parts:
    """F(D) + τμ²/2 + ln(m)/(μ√m), the last term without its unknown constant.

    Holds:  as a ranking, and about the loss under noise N(0, μ²/n) on n weights on the unit sphere.
    Source: Lyu, Li & Arora 2022, as quoted by Than, arXiv 2511.00958.

    Args:
        loss: F(D).
        sharpness: τ, the largest eigenvalue of the Hessian times the squared norm of the scale-free weights.
        noise: μ.
        m: samples.

    Returns:
        The sum and its parts.
    """
    return Parts.added(
        training_loss=loss, sharpness=sharpness * noise**2 / 2, samples=math.log(m) / (noise * math.sqrt(m))
    )


def best_noise(sharpness: float, m: int) -> float:
    """μ = (ln(m)/(τ√m))^(1/3), where `smoothed_bound` is smallest."""
    return math.cbrt(math.log(m) / (sharpness * math.sqrt(m)))
