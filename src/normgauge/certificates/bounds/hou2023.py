"""The two transport terms of an instance-dependent bound: a score, since its constant is not given."""

from __future__ import annotations

import math
from collections.abc import Sequence

from normgauge.certificates.bounds.parts import Parts


def transport(
    shares: Sequence[float], distances: Sequence[float], slopes: Sequence[float], cells: int, m: int, delta: float
) -> Parts:
    """Σ(m_i/m)λ_i max(1, L_i) + max_i λ_iL_i √(ln(4/δ)/m) + √(N/m), without F(D) and an unknown constant.

    Holds:  as a ranking only.
    Source: Hou et al. 2023, arXiv 2211.01258, as quoted by Than, arXiv 2511.00958.

    Args:
        shares: m_i/m of the cells met.
        distances: λ_i.
        slopes: L_i.
        cells: N.
        m: samples.
        delta: share of failure.

    Returns:
        The sum and its parts.
    """
    spread = math.fsum(w * d * max(1.0, s) for w, d, s in zip(shares, distances, slopes, strict=True))
    worst = max((d * s for d, s in zip(distances, slopes, strict=True)), default=0.0)
    return Parts.added(
        transport=spread, worst_cell=worst * math.sqrt(math.log(4 / delta) / m), cells=math.sqrt(cells / m)
    )
