"""Weight-normalized networks: a score, since its constant is not given."""

from __future__ import annotations

import math

from normgauge.generalization.bounds.parts import Parts


def weight_norm(depth: int, radius: float, m: int) -> Parts:
    """ρ₁²√L/√m, without its constant.

    Holds:  as a ranking; smooth activations, rows of unit norm, weights within ρ₁ of their start.
    Source: Cisneros-Velarde et al. 2025, TMLR.

    Args:
        depth: L.
        radius: ρ₁.
        m: samples.

    Returns:
        The score.
    """
    return Parts.added(weight_norm=radius**2 * math.sqrt(depth / m))
