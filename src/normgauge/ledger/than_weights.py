"""Claims of Than 2025 on the sensitivity to weights: Theorems 12 and 13."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.normalized import Stack, decade, equal_channels, frozen_stack
from normgauge.zoo import extremal

claims = Family("T", "Than 2025")

HOLDS, WRONG = Verdict.HOLDS, Verdict.WRONG


def tail(gains: Sequence[float], widths: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """y_i ↦ h(x) for layers of scaled truncated identities after layer i; ``widths`` begins with n_i."""
    net = extremal(gains, widths)
    return lambda y: net(y.relu()[None])[0]


def weight_slope(after: Callable[[Tensor], Tensor], h: Tensor, width: int, draw: Draw, loss: bool = False) -> float:
    """The largest slope in W_i of after(W_i h), or of its ℓ1 distance to a target; all rows along h, or random."""

    def output(weight: Tensor) -> Tensor:
        out = after(weight @ h)
        return (out + 1).abs().sum().reshape(1) if loss else out

    candidates = [h.expand(width, -1), *(draw.normal(width, len(h)) for _ in range(5))]
    return max(norm(jacobian(output, weight)) for weight in candidates)


def shape(draw: Draw) -> tuple[list[float], list[int], Tensor]:
    """Gains and widths of the layers after layer i, and h_{i−1}(x), which is wider than the narrowest of them."""
    depth = draw.integer(1, 4)
    widths = [draw.integer(2, 5) for _ in range(depth + 1)]
    return [decade(draw, -1, 1) for _ in range(depth)], widths, draw.uniform(draw.integer(5, 9), low=0.2)


def after_bound(stack: Stack, k: int) -> float:
    """‖W_{i+1}‖···‖W_K‖·Π_{k≥i}‖NO_k‖ for layer i = k + 1."""
    return math.prod(float(s.max()) for s in stack.inverses[k:]) * math.prod(norm(w) for w in stack.weights[k + 1 :])


@claims.add(
    "T12.6",
    "Theorem 12 (6)",
    HOLDS,
    "The constant in W_i is at most A_{i−1}, the largest norm entering the layer, times the constant in y_i.",
    "Exact for one input with ‖h_{i−1}(x)‖, for a batch with the spectral norm of its columns. A_0 is infinite on all "
    "of Rⁿ; behind LayerNorm A ≤ √n·max|γ| + ‖β‖ whatever the earlier weights are.",
    backs=("normgauge.records.weight_lipschitz",),
)
def theorem_12_entering(draw: Draw) -> Iterator[Finding | Curve]:
    """One input, a batch, and the size of what LayerNorm lets through."""
    stack = frozen_stack(draw, draw.integer(2, 5))
    k = draw.integer(0, len(stack.weights))
    x = draw.normal(stack.weights[0].shape[1])
    h, weight, after = stack.entering(k, x), stack.weights[k], stack.after(k)
    slope = norm(jacobian(lambda w: after(w @ h), weight))
    inner = norm(jacobian(after, weight @ h))
    yield equal("slope in W_i at one input", slope, predicted=float(h.norm()) * inner, scale=max(slope, 1e-9))
    columns = draw.normal(weight.shape[1], draw.integer(2, 6))
    yield equal("slope of W ↦ WH for a batch", norm(jacobian(lambda w: w @ columns, weight)), predicted=norm(columns))
    n, gain, shift = draw.integer(3, 9), decade(draw, -1, 1), decade(draw, -1, 1)
    v = draw.normal(n)
    z = F.layer_norm(1e9 * v, (n,))
    cap = math.sqrt(n) * gain + shift
    out = F.layer_norm(1e9 * v, (n,), torch.full_like(v, gain), shift * z / z.norm())
    yield equal("largest output of LayerNorm", out.norm(), predicted=cap)
    sizes = 10 ** draw.uniform(10, low=-6, high=6)
    gains, bias = draw.normal(n), draw.normal(n)
    longest = max(float(F.layer_norm(s * draw.normal(n, n) @ v, (n,), gains, bias).norm()) for s in sizes)
    cap = math.sqrt(n) * float(gains.abs().max()) + float(bias.norm())
    yield below("behind ten other layers of all sizes", longest, predicted=cap)


@claims.add(
    "T12.7",
    "Theorem 12 (7)",
    HOLDS,
    "The constant in y_i is at most ‖NO_K‖ for i = K and ‖W_{i+1}‖···‖W_K‖·Π_{k≥i}‖NO_k‖ before.",
    "Holds, with max_c 1/σ_c for a BatchNorm, and is attained by equal channels.",
)
def theorem_12_after(draw: Draw) -> Iterator[Finding | Curve]:
    """Random stacks, equal channels, and the last layer alone."""
    stack = frozen_stack(draw, draw.integer(2, 5))
    k = draw.integer(0, len(stack.weights))
    y = stack.weights[k] @ stack.entering(k, draw.normal(stack.weights[0].shape[1]))
    yield below("slope in y_i", norm(jacobian(stack.after(k), y)), predicted=after_bound(stack, k))
    flat, _ = equal_channels(draw, draw.integer(2, 5), draw.integer(2, 5))
    k = draw.integer(0, len(flat.weights) - 1)
    ones = torch.ones(len(flat.weights[0])).double()
    slope = norm(jacobian(flat.after(k), ones))
    yield equal("slope in y_i, equal channels", slope, predicted=after_bound(flat, k))
    last = frozen_stack(draw, 1, on=True)
    slope = norm(jacobian(last.after(0), draw.normal(len(last.weights[0]))))
    yield equal("slope in y_K", slope, predicted=after_bound(last, 0))


@claims.add(
    "T12.bn",
    "Theorem 12 with BatchNorm",
    WRONG,
    "For BatchNorm the same constants 1/σ_k hold for the sensitivity to W_i.",
    "Only with frozen statistics. σ_k follows W_i: at c·W_i the slope is 1/c times as large. In training it is, for a "
    "channel, ‖(I − 11ᵀ/m − zzᵀ/m)X‖/σ_ε of that batch and those weights.",
)
def theorem_12_moving_statistics(draw: Draw) -> Iterator[Finding | Curve]:
    """One layer on a batch: frozen statistics, statistics that follow the weights, and smaller weights."""
    m, n, outputs, eps = draw.integer(6, 10), draw.integer(3, 5), draw.integer(1, 4), decade(draw, -3, -1)
    x, weight = draw.normal(m, n), draw.normal(outputs, n)
    mean, var = (x @ weight.T).mean(0), (x @ weight.T).var(0, unbiased=False)
    frozen = norm(jacobian(lambda w: F.batch_norm(x @ w.T, mean, var, eps=eps), weight))
    printed = norm(x) * float((var + eps).rsqrt().max())
    yield equal("slope with frozen statistics", frozen, predicted=printed)

    def slope(w: Tensor, eps: float) -> float:
        return norm(jacobian(lambda v: F.batch_norm(x @ v.T, None, None, training=True, eps=eps), w))

    def formula(eps: float) -> float:
        z = (x @ weight.T - mean) / (var + eps).sqrt()
        bends = [torch.eye(m).double() - 1 / m - torch.outer(c, c) / m for c in z.T]
        return max(norm(bend @ x) / math.sqrt(float(v) + eps) for bend, v in zip(bends, var, strict=True))

    yield equal("slope when they follow the weights", slope(weight, eps), predicted=formula(eps))
    shrink = decade(draw, -4, -3)
    smaller = slope(shrink * weight, shrink**2 * eps)
    yield equal("the same for smaller weights, and ε with them", smaller, predicted=formula(eps) / shrink)
    yield exceeds("smaller weights against the frozen bound", smaller, published=printed)


@claims.add(
    "E49",
    "Eqs. 49-52",
    HOLDS,
    "Behind layer i the extremal network is a_{i+1}···a_K·ReLU(y_i cut and padded to the later widths).",
    "Exact: the entries up to the narrowest later width pass, the others are zero.",
)
def extremal_tail(draw: Draw) -> Iterator[Finding | Curve]:
    """The map from y_i to the output."""
    gains, widths, _ = shape(draw)
    y, weight = draw.normal(widths[0]), draw.normal(widths[-1])
    kept = min(widths)
    formula = math.prod(gains) * weight[:kept] @ y[:kept].clamp_min(0)
    out = tail(gains, widths)(y).detach()
    yield equal("output, along a random direction", weight @ out, predicted=formula)
    yield equal("entries behind the narrowest width", out[kept:].abs().sum(), predicted=0.0, scale=1.0)


@claims.add(
    "T13.8",
    "Theorem 13 (8), Eqs. 56-59",
    WRONG,
    "The extremal network's constant in W_i is a_{i+1}···a_K times the norm of h_{i−1}(x) cut to the later widths.",
    "Cutting acts on the rows of W_i h, not on h: the constant is a_{i+1}···a_K·‖h_{i−1}(x)‖ with the whole norm.",
    backs=("normgauge.zoo.extremal.weight_constant",),
)
def theorem_13_weights(draw: Draw) -> Iterator[Finding | Curve]:
    """Random networks, and x = (0, 1) through widths 2, 1, 1, where the printed constant is zero."""
    gains, widths, h = shape(draw)
    after, kept = tail(gains, widths), min(widths[1:])
    slope = weight_slope(after, h, widths[0], draw)
    printed = math.prod(gains) * math.sqrt(float((h[:kept] ** 2).sum()))
    yield equal("largest slope in W_i", slope, predicted=math.prod(gains) * float(h.norm()), published=printed)
    yield refutes("largest slope against the printed one", slope, published=printed)
    cut = torch.where(torch.arange(len(h)) < kept, h, 0.0)
    yield equal(
        "the printed one is that of the cut input", weight_slope(after, cut, widths[0], draw), predicted=printed
    )
    x = torch.tensor([0.0, 1.0], dtype=torch.float64)
    example = weight_slope(tail([3.0], [1, 1]), x, 1, draw)
    yield equal("x = (0, 1), widths 2, 1, 1, a_2 = 3", example, predicted=3.0, published=3.0 * float(x[:1].norm()))
    yield refutes("x = (0, 1), widths 2, 1, 1, a_2 = 3", example, published=3.0 * float(x[:1].norm()))
    h = draw.uniform(8, low=0.2)
    narrow = list(range(1, 9))
    lines = (
        ("true", tuple(weight_slope(tail([2.0], [8, k]), h, 8, draw) for k in narrow)),
        ("as printed", tuple(2 * float(h[:k].norm()) for k in narrow)),
    )
    yield Curve("Slope in W_1, 8 inputs, a_2 = 2", "width of the last layer", "slope", tuple(map(float, narrow)), lines)


@claims.add(
    "T13.9",
    "Theorem 13 (9), Eqs. 53-55",
    HOLDS,
    "The extremal network's constant in y_i is exactly a_{i+1}···a_K.",
    "Exact; attained where y_i is positive.",
)
def theorem_13_inputs(draw: Draw) -> Iterator[Finding | Curve]:
    """At a positive y_i and at random ones."""
    gains, widths, _ = shape(draw)
    after = tail(gains, widths)
    slope = norm(jacobian(after, draw.uniform(widths[0], low=0.1)))
    yield equal("slope in y_i where it is positive", slope, predicted=math.prod(gains))
    yield below("slope in y_i elsewhere", norm(jacobian(after, draw.normal(widths[0]))), predicted=math.prod(gains))
