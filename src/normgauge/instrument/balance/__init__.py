"""The balanced bound: minimise the composed bound over channel weights that leave the function alone.

Give every value h of the graph the norm ‖D_h h‖ with a positive diagonal D_h (one weight a channel, D = 1 at the
input and the output). A step with Jacobian J from u to v then has the gain ‖D_v J D_u⁻¹‖, and the composition of
these gains bounds the whole map for *every* choice of weights. Folding a linear map with its normalizer, ReLU pairs,
residual streams and gains before a linear map are all special choices; the minimum does not depend on the gauge. It
is a convex problem in log D (log σ_max(e^X A e^−Y) is convex by Hadamard's three-lines theorem), so any descent finds
it, and the value reported is proved afresh for the weights found.
"""

from normgauge.instrument.balance.bounds import Balanced, balanced_bound, both_bounds, folded_bound, plain_bound
from normgauge.instrument.balance.narrowing import WeightedRadii

__all__ = ["Balanced", "WeightedRadii", "balanced_bound", "both_bounds", "folded_bound", "plain_bound"]
