"""Claims of Than 2025 on networks with LayerNorm: Corollary 11, what it is used for, and its local form."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.normalized import decade, matrices, product
from normgauge.ledger.than_local import TINY, around, parts, sideways, tangent
from normgauge.zoo import extremal

claims = Family("T", "Than 2025")

HOLDS, WRONG = Verdict.HOLDS, Verdict.WRONG


def chain(weights: Sequence[Tensor], x: Tensor, eps: float) -> Tensor:
    """h_k = ReLU(LayerNorm(W_k h_{k−1})) of one vector."""
    for weight in weights:
        x = F.layer_norm(weight @ x, weight.shape[:1], eps=eps).relu()
    return x


def entering(weights: Sequence[Tensor], x: Tensor, eps: float) -> list[Tensor]:
    """What each LayerNorm of the chain is given."""
    return [weight @ chain(weights[:k], x, eps) for k, weight in enumerate(weights)]


def at_point(weights: Sequence[Tensor], x: Tensor, eps: float) -> float:
    """P_w·Π1/σ_k with the σ_k met at x."""
    spreads = [float(v.var(unbiased=False) + eps) ** -0.5 for v in entering(weights, x, eps)]
    return product(weights) * math.prod(spreads)


@claims.add(
    "C11",
    "Corollary 11",
    HOLDS,
    "With LayerNorm the constant is at most P_w times the product of the 1/σ_k of Lemma 2.",
    "As stated σ_k is the minimum over all inputs, √ε: the factor is ε^(−K/2), an exponential increase, and it is the "
    "true one for some networks.",
)
def corollary_11(draw: Draw) -> Iterator[Finding | Curve]:
    """Random chains, and scaled identities near a constant input, which approach the bound."""
    depth, eps = draw.integer(1, 4), decade(draw, -3, -1)
    weights = matrices(draw, depth, low=3, high=8)
    found = max(
        norm(jacobian(lambda v: chain(weights, v, eps), s * draw.normal(weights[0].shape[1])))
        for s in (1.0, 1e-2, 1e-4)
    )
    yield below("largest slope of three points", found, predicted=product(weights) * eps ** (-depth / 2))
    gains, widths = [decade(draw, -1, 1) for _ in range(depth)], [draw.integer(3, 8) for _ in range(depth + 1)]
    net = extremal(gains, widths, "layer", eps=eps)
    ray = torch.full((widths[0],), -1.0).double()
    ray[:2] = 1.0
    near = norm(jacobian(lambda v: net(v[None])[0], 1e-12 * ray))
    yield equal("scaled identities near zero", near, predicted=math.prod(gains) * eps ** (-depth / 2), rel=1e-7)


@claims.add(
    "C11.reduce",
    "text after Corollary 11",
    WRONG,
    "When the variances seen are large, LayerNorm reduces the network's constant by the product of 1/σ_k.",
    "That product bounds the slope at the inputs where it was measured and at no other: near an input that the first "
    "layer makes constant the slope is far above it.",
)
def layer_norm_reduces(draw: Draw) -> Iterator[Finding | Curve]:
    """Data of large variance, and the slope at the data and at the origin."""
    depth, eps = draw.integer(1, 4), decade(draw, -5, -3)
    weights = [draw.orthogonal(6) * decade(draw, 0, 1) for _ in range(depth)]
    data = 10 * draw.normal(6, 6)
    pointwise = []
    for x in data:
        pointwise.append(at_point(weights, x, eps))
        yield below(
            "slope at a data point", norm(jacobian(lambda v: chain(weights, v, eps), x)), predicted=pointwise[-1]
        )
    near = 1e-9 * draw.normal(6)
    elsewhere = max(norm(jacobian(lambda v: chain(weights, v, eps), s * near)) for s in (1.0, -1.0))
    yield exceeds("slope near zero against the data's bound", elsewhere, published=max(pointwise))
    one = norm(jacobian(lambda v: F.layer_norm(weights[0] @ v, (6,), eps=eps), data[0]))
    yield equal("one orthogonal layer: the slope at its data point", one, predicted=at_point(weights[:1], data[0], eps))


@claims.add(
    "C11.ball",
    "Corollary 11, made local",
    HOLDS,
    "A bound by the variances of the data can be made sound on a ball around them.",
    "Carry a radius through the layers: rad ← ‖W‖·rad, s = max(0, σ − rad/√n), constant × ‖W‖/√(s² + ε), rad ← min(rad/"
    "√(s² + ε), chord, √n(1 + σ/σ_ε)). It holds, and collapses once rad/√n reaches σ somewhere.",
)
def certified_ball(draw: Draw) -> Iterator[Finding | Curve]:
    """Random chains on balls of several sizes: slopes and displacements found, and the slope at radius zero."""
    eps = decade(draw, -5, -3)
    weights = matrices(draw, draw.integer(1, 4), low=6, high=10)
    x = draw.normal(weights[0].shape[1])
    for radius in (1e-3, 1e-1, 1.0):
        constant, reach = certified(weights, x, radius, eps)
        steps = draw.normal(6, len(x))
        there = [x + radius * step / step.norm() for step in steps]
        found = max(norm(jacobian(lambda v: chain(weights, v, eps), v)) for v in there)
        yield below(f"slope within {radius:g}", found, predicted=constant)
        gone = max(float((chain(weights, v, eps) - chain(weights, x, eps)).norm()) for v in there)
        yield below(f"displacement within {radius:g}", gone, predicted=reach)
    turn, y = [3.0 * draw.orthogonal(8)], draw.normal(8)
    sigma, unit = parts(y)

    def put_through(v: Tensor, eps: float) -> Tensor:
        return F.layer_norm(turn[0] @ v, (8,), eps=eps)

    def back(v: Tensor) -> Tensor:
        return turn[0].T @ v / 9

    q = float(draw.uniform(1, low=0.1, high=0.9))
    radius = q * math.sqrt(8) * sigma  # behind the layer; a third of it before
    slope = norm(jacobian(lambda v: put_through(v, eps), back(y - radius * unit)))
    yield equal("one orthogonal layer: slope attained", slope, predicted=certified(turn, back(y), radius / 3, eps)[0])
    touching = around(y, radius, tangent(q), sideways(draw, unit))
    gone = float((put_through(back(touching), TINY) - put_through(back(y), TINY)).norm())
    yield equal("displacement attained", gone, predicted=certified(turn, back(y), radius / 3, TINY)[1])
    mirror = float((put_through(back(-1e9 * unit), eps) - put_through(back(y), eps)).norm())
    yield equal("displacement beyond the origin", mirror, predicted=certified(turn, back(y), 1e9, eps)[1])
    radii = [10 ** (k / 4) for k in range(-16, 5)]
    lines = (
        ("certified over the ball", tuple(certified(weights, there[0], r, eps)[0] for r in radii)),
        ("over all inputs", (product(weights) * eps ** (-len(weights) / 2),) * len(radii)),
    )
    yield Curve(f"{len(weights)} LayerNorms", "radius", "constant", tuple(radii), lines, log_x=True, log_y=True)


def certified(weights: Sequence[Tensor], x: Tensor, reach: float, eps: float) -> tuple[float, float]:
    """Constant and displacement of a chain over ‖x' − x‖ ≤ reach, layer by layer."""
    constant = 1.0
    for weight, v in zip(weights, entering(weights, x, eps), strict=True):
        root, sigma = math.sqrt(len(v)), float(v.var(unbiased=False).sqrt())
        size = math.sqrt(sigma**2 + eps)
        reach = norm(weight) * reach
        slope = 1 / math.sqrt(max(0.0, sigma - reach / root) ** 2 + eps)
        constant = constant * norm(weight) * slope
        q = reach / (root * size)
        chord = 2 * root * math.sin(math.asin(q) / 2) if q < 1 else math.inf
        reach = min(reach * slope, chord, root * (1 + sigma / size))
    return constant, reach
