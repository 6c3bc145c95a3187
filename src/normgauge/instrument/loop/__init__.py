"""The loop transformation: a bound from slopes in [a, b] for networks too large for matrices of multipliers.

Take every activation apart into its middle slope and what is left, φ(z') − φ(z) = m(z' − z) + w with |w| ≤ h|z' − z|
entry by entry. What remains is *linear*: one map G from (e, w) = (change of the input, all left-overs) to
(v, out) = (changes before all activations, change of the output), the network itself with its activations replaced by
their middle slopes, entered and read at every activation. For every positive diagonal D of the left-overs and γ > 0,

    ‖ diag(hD, 1) G diag(γ, D)⁻¹ ‖ ≤ 1   ⟹   ‖out‖² + ‖hDv‖² ≤ γ²‖e‖² + ‖Dw‖² ≤ γ²‖e‖² + ‖hDv‖²   ⟹   L ≤ γ,

so the whole proof is *one* norm, of a map that costs one run of the network, and any D will do. Its minimum over D is
at most the bound that adds the norms of all compositions, t_k ≤ ‖C_k‖ + Σ h_j‖H_kj‖t_j, since the Perron scaling of the
matrix of these norms is one choice of D. The D that a descent finds need not be the minimum: take the smaller of this
bound and the balanced one.

Source: the inequality is derived above; slopes in ranges as in Fazlyab et al. 2019 (LipSDP).
"""

from normgauge.instrument.loop.bound import LoopBound, LoopEffort, loop_bound
from normgauge.instrument.loop.row_loops import RowLoops

__all__ = ["LoopBound", "LoopEffort", "RowLoops", "loop_bound"]
