"""Claims of Than 2025 on networks with BatchNorm: Theorem 9, Corollary 10, Figure 2."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds, moves
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.normalized import Stack, decade, equal_channels, frozen_stack, product, rescaled
from normgauge.zoo import extremal

claims = Family("T", "Than 2025")

HOLDS, LOOSE, WRONG, GAUGE = Verdict.HOLDS, Verdict.LOOSE, Verdict.WRONG, Verdict.GAUGE


def steepest(stack: Stack, draw: Draw) -> float:
    """The largest slope of a stack at five random points."""
    return max(norm(jacobian(stack, draw.normal(stack.weights[0].shape[1]))) for _ in range(5))


def separate(stack: Stack) -> float:
    """P_w·Π‖NO_k‖: matrices and normalizers one by one."""
    return product(stack.weights) * math.prod(float(s.max()) for s in stack.inverses)


def in_l2(stack: Stack) -> float:
    """P_w·Π‖1/σ_k‖₂."""
    return product(stack.weights) * math.prod(math.sqrt(float((s**2).sum())) for s in stack.inverses)


def by_the_worst(stack: Stack) -> float:
    """σ^−K·P_w, σ the smallest 1/‖1/σ_k‖₂."""
    sigma = min(1 / math.sqrt(float((s**2).sum())) for s in stack.inverses)
    return sigma ** -len(stack.weights) * product(stack.weights)


@claims.add(
    "T9",
    "Theorem 9, Eq. 34",
    LOOSE,
    "A normalized network's constant is at most P_w times the product of its normalizers' constants.",
    "Holds; folding each BatchNorm into the matrix before it, Π‖diag(1/σ_k)W_k‖, is never larger, exact for one layer, "
    "and does not move with the scale of the weights.",
    backs=("normgauge.balance.bounds.folded_bound",),
)
def theorem_9(draw: Draw) -> Iterator[Finding | Curve]:
    """Random stacks, one affine layer, and equal channels, where both bounds are met."""
    stack = frozen_stack(draw, draw.integer(2, 5))
    folded = math.prod(norm(s[:, None] * w) for s, w in zip(stack.inverses, stack.weights, strict=True))
    yield below("largest slope of five points", steepest(stack, draw), predicted=folded, published=separate(stack))
    yield below("folded bound against the printed one", folded, predicted=separate(stack))
    layer = frozen_stack(draw, 1, on=True)
    slope = norm(jacobian(layer, draw.normal(layer.weights[0].shape[1])))
    single = norm(layer.inverses[0][:, None] * layer.weights[0])
    yield equal("slope of one layer: the folded norm", slope, predicted=single, published=separate(layer))
    flat, slope = equal_channels(draw, 3, draw.integer(2, 6))
    yield equal("equal channels: the printed bound is met", slope, predicted=separate(flat))


@claims.add(
    "C10.1",
    "Corollary 10 (1)",
    LOOSE,
    "With BatchNorm the constant is at most P_w times the product of the ℓ2 norms ‖1/σ_k‖.",
    "Holds with the largest entry in place of the ℓ2 norm, and folded; with C equal channels each layer's factor is √C "
    "too large.",
    backs=("normgauge.records.published",),
)
def corollary_10_first(draw: Draw) -> Iterator[Finding | Curve]:
    """Random stacks; equal channels, where the slack is √C a layer; one layer, where folding is exact."""
    stack = frozen_stack(draw, draw.integer(2, 5))
    yield below("largest slope of five points", steepest(stack, draw), predicted=in_l2(stack))
    yield below("with the largest entry instead", separate(stack), predicted=in_l2(stack))
    depth, channels = draw.integer(2, 5), draw.integer(2, 7)
    flat, slope = equal_channels(draw, depth, channels)
    slack = channels ** (depth / 2)
    yield equal("equal channels: printed over slope is √C^K", slack * slope, predicted=in_l2(flat))
    yield equal("with the largest entry it is met", slope, predicted=separate(flat), published=in_l2(flat))
    widths = [2.0**k for k in range(1, 10)]
    lines = tuple((f"{k} layers", tuple(math.sqrt(c) ** k for c in widths)) for k in (1, 5, 20))
    yield Curve("Printed bound / true constant", "channels C", "ratio", tuple(widths), lines, log_x=True, log_y=True)


@claims.add(
    "C10.2",
    "Corollary 10 (2)",
    LOOSE,
    "With σ the smallest 1/‖1/σ_k‖ of all layers the constant is at most σ^−K·P_w.",
    "Holds and is looser still: every layer is charged for the worst one.",
)
def corollary_10_second(draw: Draw) -> Iterator[Finding | Curve]:
    """Random stacks against both forms; layers that are all alike, where the second meets the first."""
    depth = draw.integer(2, 5)
    stack = frozen_stack(draw, depth)
    yield below("largest slope of five points", steepest(stack, draw), predicted=by_the_worst(stack))
    yield below("first form against the second", in_l2(stack), predicted=by_the_worst(stack))
    channels = draw.integer(2, 7)
    flat, slope = equal_channels(draw, depth, channels, same=True)
    slack = channels ** (depth / 2)
    yield equal("layers all alike: printed over slope is √C^K", slack * slope, predicted=by_the_worst(flat))
    yield equal("with the largest entry it is met", slope, predicted=separate(flat), published=by_the_worst(flat))


@claims.add(
    "C10.reduce",
    "text after Corollary 10",
    WRONG,
    "BatchNorm makes a network smoother than its unnormalized version.",
    "It takes the weights' scale out of the constant: scaled identities a·I behind it have the same constant for every "
    "a, lower than a^K where a is large and higher where it is small.",
)
def batch_norm_reduces(draw: Draw) -> Iterator[Finding | Curve]:
    """Identity networks on Gaussian data, with BatchNorm's statistics taken from it, at small and large gains."""
    depth, width = draw.integer(3, 9), draw.integer(1, 4)
    batch, far = draw.normal(200, width), torch.full((width,), 1e6).double()

    def slope(gain: float) -> float:
        net = extremal([gain] * depth, [width] * (depth + 1), "batch", batch=batch, eps=1e-14)
        return norm(jacobian(lambda v: net(v[None])[0], far))

    value, passing = batch, torch.ones(width).double()
    for _ in range(depth):
        passing = passing / value.var(0, unbiased=False).sqrt()
        value = ((value - value.mean(0)) / value.var(0, unbiased=False).sqrt()).clamp_min(0)
    small, large = decade(draw, -2, -1), decade(draw, 1, 2)
    yield equal("normalized, small gains", slope(small), predicted=passing.max(), published=small**depth)
    yield equal("normalized, large gains", slope(large), predicted=passing.max(), published=large**depth)
    yield exceeds("small gains: normalized against unnormalized", slope(small), published=small**depth)
    plain = extremal([small] * depth, [width] * (depth + 1))
    yield equal("unnormalized", norm(jacobian(lambda v: plain(v[None])[0], far)), predicted=small**depth)
    gains = [10 ** (k / 4) for k in range(-4, 5)]
    lines = (
        ("without normalizers", tuple(g**depth for g in gains)),
        ("with BatchNorm", tuple(slope(g) for g in gains)),
    )
    yield Curve(f"{depth} layers of a·I", "gain a", "constant", tuple(gains), lines, log_x=True, log_y=True)


@claims.add(
    "C10.product",
    "section 4.2, the reduction factor",
    GAUGE,
    "The product of the 1/σ_k, about 10^−25 for ResNet-18, is how much BatchNorm reduces the constant.",
    "Multiplying weights and statistics by t changes nothing the network computes and divides each factor by t; only "
    "together with the weights it means something: ‖diag(1/σ_k)W_k‖.",
)
def reduction_factor(draw: Draw) -> Iterator[Finding | Curve]:
    """The product over a stack and over a rescaled copy."""
    stack = frozen_stack(draw, draw.integer(2, 5))
    factors = [decade(draw, 0.5, 2) for _ in stack.weights]
    other = rescaled(stack, factors)
    before, after = (math.prod(float(s.norm()) for s in net.inverses) for net in (stack, other))
    x = draw.normal(stack.weights[0].shape[1])
    weight = draw.normal(len(stack.weights[-1]))
    yield moves("Π‖1/σ_k‖", before, after)
    yield equal("moved by the factors chosen", after, predicted=before / math.prod(factors))
    yield equal("output, along a random direction", weight @ other(x), predicted=weight @ stack(x))
    yield equal("slope at a point", norm(jacobian(other, x)), predicted=norm(jacobian(stack, x)))
    yield equal("folded product", product(other.folded), predicted=product(stack.folded))


claims.trained(
    "C10.fig2",
    "section 4.2, Figure 2",
    GAUGE,
    "While ResNet-18 trains its variances grow far above 1 and Π1/σ_k over its 20 BatchNorms falls to about 10^−25.",
    "Not met: 10^−18 at best, without decay; 10^+14 with the optimizer stated. Which mean over channels gives σ_k is "
    "not said, and the product moves with the scale of the weights.",
    experiment="than2025/fig2",
)
