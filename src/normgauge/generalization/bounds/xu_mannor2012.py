"""Robustness over cells: how much the loss can change inside a cell, and what the cells cost."""

from __future__ import annotations

from normgauge.generalization.bounds.cells import tau_published, tau_xu_mannor
from normgauge.generalization.bounds.parts import Parts


def xu_mannor(loss: float, change: float, cells: int, m: int, delta: float, limit: float = 1.0) -> Parts:
    """F(P) ≤ F(D) + ε + C√((2N ln 2 + 2 ln(1/δ))/m).

    Holds:  ε is certified: in no cell does the loss of any input differ from that of a sample in it by more; a largest
            difference that was seen is an estimate. Cells fixed without D, N counts all of them.
    Source: Xu & Mannor 2012, Theorem 1, from the inequality of Bretagnolle, Huber & Carol.

    Args:
        loss: F(D).
        change: ε.
        cells: N.
        m: samples.
        delta: share of failure.
        limit: C, the range of the loss.

    Returns:
        The bound and its parts.
    """
    return Parts.added(training_loss=loss, change_in_a_cell=change, cells=limit * tau_xu_mannor(cells, m, delta))


def kawaguchi(loss: float, change: float, met: int, cells: int, m: int, delta: float, limit: float = 1.0) -> Parts:
    """F(P) ≤ F(D) + ε + C((√2+1)√(|T| ln(2N/δ)/m) + 2|T| ln(2N/δ)/m).

    Holds:  as `xu_mannor`; |T| counts the cells that D meets.
    Source: Kawaguchi, Deng, Luh & Huang 2022, Theorem 1.

    Args:
        loss: F(D).
        change: ε.
        met: |T|.
        cells: N.
        m: samples.
        delta: share of failure.
        limit: C, the range of the loss.

    Returns:
        The bound and its parts.
    """
    return Parts.added(training_loss=loss, change_in_a_cell=change, cells=limit * tau_published(met, cells, m, delta))
