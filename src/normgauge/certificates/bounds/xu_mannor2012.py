"""Robustness over cells: how much the loss can change inside a cell, and what the cells cost."""

from __future__ import annotations

from normgauge.certificates.bounds.parts import Parts


def robust_bound(loss: float, change: float, tau: float, limit: float = 1.0) -> Parts:
    """F(P) ≤ F(D) + ε + C·τ.

    Holds:  ε is certified: in no cell does the loss of any input differ from that of a sample in it by more; a largest
            difference that was seen is an estimate. Cells fixed without D: N counts all of them, |T| those D meets.
    Source: Xu & Mannor 2012, Theorem 1, from the inequality of Bretagnolle, Huber & Carol, with
            τ = √((2N ln 2 + 2 ln(1/δ))/m), `tau_xu_mannor`; Kawaguchi, Deng, Luh & Huang 2022, Theorem 1, with
            τ = (√2+1)√(|T| ln(2N/δ)/m) + 2|T| ln(2N/δ)/m, `tau_published`.

    Args:
        loss: F(D).
        change: ε.
        tau: τ of all the cells, or of those met.
        limit: C, the range of the loss.

    Returns:
        The bound and its parts.
    """
    return Parts.added(training_loss=loss, change_in_a_cell=change, cells=limit * tau)
