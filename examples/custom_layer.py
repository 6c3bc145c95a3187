"""A layer of your own, and a rule for it.

A radial basis layer measures distances with `torch.cdist`, for which normgauge has no rule. The bound is then
infinite and the step is named. A rule of a dozen lines makes the network measurable, and `check_rule` tests the rule
against dense Jacobians, secants and displacements before anybody relies on it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.instrument.rules.flow import Context, Flow, Gain, Transfer, log_vector
from normgauge.instrument.trace.step import Step


class RadialBasis(nn.Module):
    """y_k = exp(−‖x − c_k‖² / 2s²) for centres c_k and one width s."""

    def __init__(self, features: int, centres: int, width: float) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(centres, features))
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        """Activations (..., centres) of vectors (..., features)."""
        return torch.exp(-torch.cdist(x, self.centres).square() / (2 * self.width**2))


def radial_basis(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Radial basis functions.

    ∇y_k has length g(r) = (r/s²)·exp(−r²/2s²) at distance r from c_k;  ‖J‖ ≤ ‖J‖_F = √Σ_k g(r_k)²,  g ≤ g(s) = e^(−½)/s

    Holds:  everywhere with g(s); within ρ of a sample with the largest g on [r_k − ρ, r_k + ρ]; at a point with g(r_k).
    Source: derivative of the Gaussian; g rises up to s and falls beyond it.
    """
    (flow,) = incoming
    s = step.module.width
    rows = ctx.rows(step.inputs[0].tensor, flow.axis)  # (samples, rows, features)
    # by differences: the default for many rows goes through a matrix product and loses half the digits
    distance = torch.cdist(rows, step.module.centres.detach().double(), compute_mode="donot_use_mm_for_euclid_dist")
    moved = torch.minimum(flow.row, flow.radius)[:, None, None]  # 0 at a point, infinite everywhere
    near, far = (distance - moved).clamp_min(0.0), distance + moved
    at_ends = torch.maximum(slope(near, s), slope(far, s).nan_to_num(0.0))
    steepest = torch.where((near <= s) & (s <= far), slope(torch.tensor(s), s), at_ends)
    bound = steepest.square().sum(2).sqrt().amax(1)  # rows do not mix, so the largest decides
    return Transfer((Gain(log_vector(bound)),), low=ctx.full(0.0), high=ctx.full(1.0))


def slope(r: Tensor, s: float) -> Tensor:
    """g(r)."""
    return r / s**2 * torch.exp(-(r**2) / (2 * s**2))


def main() -> None:
    """Measure without the rule, test the rule, measure with it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), RadialBasis(4, 12, width=1.5), nn.Linear(12, 3))
    batch = torch.randn(20, 5)

    reading = ng.gauge(model, batch, scope="point")
    for finding in reading.unknown:
        print(f"without a rule: upper {math.exp(reading.log_upper)}, {finding.name}: {finding.why}")

    rules = ng.REGISTRY.extended({RadialBasis: radial_basis})
    shares = ng.testing.check_rule(lambda: RadialBasis(4, 12, 1.5), (6, 4), rules=rules)
    print("check_rule: twelve centres, slope found / bound:", {k: round(v, 2) for k, v in shares.items()})
    shares = ng.testing.check_rule(
        lambda: RadialBasis(4, 1, 1.5), (1, 4), rules=rules, scopes=("point",), attained=True
    )
    print("check_rule: one centre, slope found / bound:", {k: round(v, 2) for k, v in shares.items()})

    for reading in ng.readings(model, batch, rules=rules):
        upper, lower = math.exp(reading.log_upper), math.exp(reading.log_lower)
        print(f"with the rule, scope {reading.scope!s:8}: between {lower:.3f} and {upper:.3f} ({reading.evidence})")
    print(reading.explain("1"))


if __name__ == "__main__":
    main()
