"""A published bound that cannot hold for a trained network: kept to show that it fails."""

from __future__ import annotations

import math
from collections.abc import Sequence

from normgauge.certificates.bounds.cells import tau_published
from normgauge.certificates.bounds.parts import Parts

ALPHA = 100.0
GAMMA = 0.04 ** (-1 / 100)


def computable_bound(
    loss: float,
    shares: Sequence[float],
    cells: int,
    m: int,
    delta: float = 0.01,
    alpha: float = ALPHA,
    gamma: float = GAMMA,
    limit: float = 1.0,
) -> Parts:
    """F(S) + C√(û α ln γ) + C·g(δ/2), û = γ/2m + (γ²/2)Σ(m_i/m)² + γ²√((2/m) ln(2K/δ)); 1 − γ^−α − δ.

    Holds:  for a model fixed without S only, where Hoeffding's inequality is far smaller. It sees the model through its
            training loss alone, so a table of the training samples gets the same number as any other model.
    Source: Than & Phan 2025, arXiv 2503.07325, Theorem 3.2; g as in Kawaguchi et al. 2022.

    Args:
        loss: F(S).
        shares: m_i/m of the cells met.
        cells: K.
        m: samples.
        delta: δ.
        alpha: α.
        gamma: γ > 1.
        limit: C, the range of the loss.

    Returns:
        The number and its parts.
    """
    squares = math.fsum(share**2 for share in shares)
    met = sum(share > 0 for share in shares)
    spread = gamma / (2 * m) + gamma**2 / 2 * squares + gamma**2 * math.sqrt(2 / m * math.log(2 * cells / delta))
    return Parts.added(
        training_loss=loss,
        uncertainty=limit * math.sqrt(spread * alpha * math.log(gamma)),
        cells=limit * tau_published(met, cells, m, delta / 2),
    )
