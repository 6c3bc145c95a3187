"""The unit sphere, row by row, and the metric that divides lengths by ‖w‖. Tensors are (rows, n).

Tangents, angles, two ways to walk along the sphere; and the scale-invariant metric of Cho & Lee: ⟨a, b⟩_w = aᵀb/‖w‖²
makes Rⁿ∖{0} a cylinder, log‖w‖ along its axis and ŵ around it. The axis is the gauge; what is left when it is divided
out is the unit sphere with its angles.

Source: M. Cho & J. Lee, "Riemannian approach to batch normalization" 2017; THEORY 11.7.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from normgauge.core.errors import InputError

Walk = Literal["exponential", "projection"]
WALKS: tuple[str, ...] = get_args(Walk)


def unit_weights(w: Tensor) -> Tensor:
    """Each row over its norm.

    Raises:
        InputError: if a row is zero or not finite: it has no direction.
    """
    norms = w.norm(dim=-1, keepdim=True)
    bad = ~(torch.isfinite(norms) & (norms > 0)).flatten()
    if bad.any():
        rows = bad.nonzero().flatten().tolist()
        raise InputError(
            f"{len(rows)} of {len(bad)} scale-free vectors are zero or not finite and have no direction: rows "
            f"{rows[:5]}{' …' if len(rows) > 5 else ''}. Initialise them, or leave their group out."
        )
    return w / norms


def tangent(u: Tensor, a: Tensor) -> Tensor:
    """The part of ``a`` orthogonal to the unit rows ``u``: (I − uuᵀ)a."""
    return a - (u * a).sum(-1, keepdim=True) * u


def angle(a: Tensor, b: Tensor) -> Tensor:
    """Angles between the rows of ``a`` and ``b`` in radians, (rows,): 2·atan2(‖â − b̂‖, ‖â + b̂‖).

    Holds:  to rounding for every angle; arccos(â·b̂) loses all digits below 1e-8.
    Source: W. Kahan, "How futile are mindless assessments of roundoff", section 12.
    """
    a, b = unit_weights(a), unit_weights(b)
    return 2 * torch.atan2((a - b).norm(dim=-1), (a + b).norm(dim=-1))


def walk(u: Tensor, v: Tensor, carried: Tensor, how: Walk = "exponential") -> tuple[Tensor, Tensor]:
    """Leave ``u`` with velocity ``v`` and carry the tangent vector ``carried`` along.

    exponential: u' = cos‖v‖ u + sin‖v‖ v̂, along the great circle; carried by parallel transport, which keeps lengths.
    projection:  u' = (u + v)/‖u + v‖, the direction of a straight step; carried by projection on the new tangent space.

    Holds:  u' = Exp(v) exactly, or to third order: the angle is ‖v‖, or arctan‖v‖.
    Source: P.-A. Absil, R. Mahony & R. Sepulchre, "Optimization Algorithms on Matrix Manifolds" 2008, 4.1.1, 5.4, 8.1.

    Args:
        u: points, unit rows.
        v: velocities, tangent at ``u``.
        carried: what is carried along, tangent at ``u``.
        how: "exponential" or "projection".

    Returns:
        The new points, and what was carried, tangent there.
    """
    if how == "projection":
        moved = unit_weights(u + v)
    else:
        length = v.norm(dim=-1, keepdim=True)
        heading = v / length.clamp_min(torch.finfo(v.dtype).tiny)
        moved = unit_weights(length.cos() * u + length.sin() * heading)
        along = (heading * carried).sum(-1, keepdim=True)
        carried = carried - along * ((1 - length.cos()) * heading + length.sin() * u)
    return moved, tangent(moved, carried)


def inner(w: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The inner product of two tangent vectors in this metric, ⟨a, b⟩_w = aᵀb/‖w‖².

    Holds:  invariant under (w, a, b) → c(w, a, b).

    Args:
        w: points, none of them zero.
        a: tangent vectors there.
        b: tangent vectors there.

    Returns:
        One number a row.
    """
    unit_weights(w)
    return (a * b).sum(1) / w.square().sum(1)


def riemannian_gradient(w: Tensor, g: Tensor) -> Tensor:
    """The gradient in this metric, ‖w‖²∇L.

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
