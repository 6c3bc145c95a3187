"""The scale-invariant metric of Cho & Lee: lengths that do not change with ‖w‖. Tensors are (rows, n).

⟨a, b⟩_w = aᵀb/‖w‖² makes Rⁿ∖{0} a cylinder, log‖w‖ along its axis and ŵ around it. The axis is the gauge; what is left
when it is divided out is the unit sphere with its angles.

Source: M. Cho & J. Lee, "Riemannian approach to batch normalization" 2017; THEORY 11.7.
"""

from __future__ import annotations

import torch
from torch import Tensor

from normgauge.dynamics.sphere import angle, unit


def inner(w: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """⟨a, b⟩_w = aᵀb/‖w‖².

    Holds:  invariant under (w, a, b) → c(w, a, b).

    Args:
        w: points, none of them zero.
        a: tangent vectors there.
        b: tangent vectors there.

    Returns:
        One number a row.
    """
    unit(w)
    return (a * b).sum(1) / w.square().sum(1)


def riemannian_gradient(w: Tensor, g: Tensor) -> Tensor:
    """‖w‖²∇L, the gradient in this metric.

    Holds:  ⟨‖w‖²∇L, b⟩_w = ∇L·b for every b; it grows as c under w → cw, so a step along it turns ŵ by the same angle
            in every gauge, and its length is the scale-free gradient ‖w‖‖∇L‖.
    """
    return w.square().sum(1, keepdim=True) * g


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Length of the shortest curve from ``a`` to ``b``: √(log²(‖b‖/‖a‖) + angle²), one a row.

    Holds:  n ≥ 2. The metric is dρ² + dθ² with ρ = log‖w‖: geodesics are helices on the cylinder.
    """
    return torch.hypot((b.norm(dim=1) / a.norm(dim=1)).log(), angle(a, b))


def quotient_distance(a: Tensor, b: Tensor) -> Tensor:
    """Distance of the two functions' weights once scales are divided out: the angle, one a row.

    Holds:  the minimum of `distance` over all scales of both.
    """
    return angle(a, b)
