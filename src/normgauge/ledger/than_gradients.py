"""Claims of Than 2025 on gradients of the training loss: Theorem 15, Remarks 16 and 17."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, equal, exceeds, moves, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.normalized import Stack, decade, frozen_stack, matrices, rescaled
from normgauge.ledger.than_weights import tail
from normgauge.zoo import extremal

claims = Family("T", "Than 2025")

HOLDS, WRONG, GAUGE, UNSUPPORTED = Verdict.HOLDS, Verdict.WRONG, Verdict.GAUGE, Verdict.UNSUPPORTED


def outer(u: Tensor) -> Tensor:
    """A smooth f∘g: a squared distance to 1 behind a tanh."""
    return (u.tanh() - 1).square()


def gradient(gains: Sequence[float], widths: Sequence[int], weight: Tensor, h: Tensor, head: float) -> Tensor:
    """∂L/∂W_i by autograd: mean of f(g(c·1ᵀh_K)) over the rows of h = h_{i−1}(x), extremal layers after W_i."""
    net, leaf = extremal(gains, widths), weight.clone().requires_grad_()
    loss = outer(head * net((h @ leaf.T).relu()).sum(1)).mean()
    return torch.autograd.grad(loss, leaf)[0]


def bent(gains: Sequence[float], kept: int, weight: Tensor, h: Tensor, head: float) -> Tensor:
    """(f∘g)'(u(x)) of every sample, u written out: c·Πa_j times the sum of the passing positive entries."""
    u = (head * math.prod(gains) * (h @ weight.T)[:, :kept].clamp_min(0).sum(1)).requires_grad_()
    return torch.autograd.grad(outer(u).sum(), u)[0]


@claims.add(
    "T15",
    "Theorem 15 (12), Eqs. 60-65",
    HOLDS,
    "For the extremal network with head c·1ᵀ row t of the loss's gradient in W_i is (c·a_{i+1}···a_K/m)·Σ 1[row on]·"
    "(f∘g)'(u)·h_{i−1}ᵀ for t up to the narrowest later width, else 0.",
    "Exact, for any real c and t ≤ min(n_i, ..., n_K); the indicator has to be strict (T.T15.edge).",
    backs=("normgauge.zoo.extremal.weight_gradient",),
)
def theorem_15(draw: Draw) -> Iterator[Finding | Curve]:
    """Autograd against the formula, row by row."""
    depth, m = draw.integer(1, 4), draw.integer(2, 9)
    gains, head = [decade(draw, -0.5, 0.5) for _ in range(depth)], float(draw.normal(1))
    widths = [draw.integer(3, 7), *(draw.integer(2, 7) for _ in range(depth))]
    h = draw.normal(m, draw.integer(2, 6))
    weight = draw.normal(widths[0], h.shape[1])
    kept, way = min(widths), draw.normal(h.shape[1])
    found, slopes = gradient(gains, widths, weight, h, head), bent(gains, kept, weight, h, head)
    for t in (0, kept - 1):
        on = (h @ weight[t] > 0).double()
        row = head * math.prod(gains) / m * (on * slopes) @ h
        yield equal(f"row {t + 1}, along a random direction", found[t] @ way, predicted=row @ way, scale=found.norm())
    yield equal("rows behind the narrowest width", found[kept:].norm(), predicted=0.0, scale=1.0)


@claims.add(
    "T15.edge",
    "Theorem 15, the indicator",
    WRONG,
    "A row with W_it h = 0 counts as on.",
    "The loss has a kink there; torch takes ReLU'(0) = 0, so the indicator is strict: a zero row gets no gradient.",
)
def theorem_15_edge(draw: Draw) -> Iterator[Finding | Curve]:
    """A zero row, and the same row a hair above zero, where the printed formula is right."""
    m, n, gain, head = draw.integer(2, 9), draw.integer(2, 6), decade(draw, -0.5, 0.5), float(draw.normal(1))
    h, weight = draw.uniform(m, n, low=0.1), draw.normal(3, n)
    weight[1] = 0.0
    slopes = bent([gain], 3, weight, h, head)
    on = (h @ weight[1] >= 0).double()
    printed = (head * gain / m * (on * slopes) @ h).norm()
    found = gradient([gain], [3, 3], weight, h, head)[1].norm()
    yield refutes("gradient of a zero row", found, published=printed)
    strict = (h @ weight[1] > 0).double()
    yield equal("with a strict indicator", found, predicted=(gain * (strict * slopes) @ h).norm(), scale=printed)
    weight[1] = 1e-13
    above = gradient([gain], [3, 3], weight, h, head)[1].norm()
    yield equal("just above zero the printed one is right", above, predicted=printed)


@claims.add(
    "R16",
    "Remark 16, exploding and vanishing",
    HOLDS,
    "Uncountably many networks have gradients that grow or shrink exponentially with depth.",
    "Existence: the gradient in W_1 of the extremal network is proportional to a_2···a_K, for every choice of them.",
)
def remark_16(draw: Draw) -> Iterator[Finding | Curve]:
    """The gradient of a linear loss in the first layer, for gains above and below 1 and for random ones."""
    depth, n = draw.integer(2, 8), draw.integer(2, 5)
    x, weight = draw.uniform(n, low=0.1), draw.uniform(n, n, low=0.1)

    def size(gains: Sequence[float]) -> float:
        after = tail(list(gains), [n] * (len(gains) + 1))
        return norm(jacobian(lambda w: after(w @ x).sum()[None], weight))

    a, plain = float(draw.uniform(1, low=1.2, high=3.0)), math.sqrt(n) * float(x.norm())
    yield equal(f"gradient behind {depth} gains of {a:.2f}", size([a] * depth), predicted=plain * a**depth)
    yield equal(f"gradient behind {depth} gains of 1/{a:.2f}", size([1 / a] * depth), predicted=plain * a**-depth)
    gains = [decade(draw, -1, 1) for _ in range(depth)]
    yield equal("gradient behind random gains", size(gains), predicted=plain * math.prod(gains))


@claims.add(
    "R16.portion",
    "Remark 16, how much of the landscape",
    UNSUPPORTED,
    "Non-negligible portions of the loss landscape are extremely flat.",
    "No measure is named: the networks constructed are a set of dimension K − i, of volume zero, and how flat a random "
    "network is follows from the scale one draws it at.",
)
def how_much_is_flat(draw: Draw) -> Iterator[Finding | Curve]:
    """Dimension of the set constructed; the gradient at random networks drawn at two scales."""
    depth, n = draw.integer(2, 5), draw.integer(2, 4)
    gains = draw.uniform(depth, low=0.5, high=2.0)
    tangent = jacobian(lambda a: (a[:, None, None] * torch.eye(n)).flatten(), gains)
    dimension = int(torch.linalg.matrix_rank(tangent))
    yield equal("dimension of the networks constructed", dimension, predicted=depth)
    yield equal("directions it leaves out", len(tangent) - dimension, predicted=depth * (n**2 - 1))
    weights, x = [draw.normal(n, n).abs() for _ in range(depth + 1)], draw.uniform(n, low=0.1)

    def size(scale: float) -> float:
        def loss(w: Tensor) -> Tensor:
            y = (w @ x).relu()
            for weight in weights[1:]:
                y = (scale * weight @ y).relu()
            return y.sum()[None]

        return norm(jacobian(loss, weights[0]))

    scale = decade(draw, -2, -1)
    yield moves("gradient of a random network", size(1.0), size(scale))
    yield equal("moved by the scale it was drawn at", size(scale), predicted=size(1.0) * scale**depth)


def layered(weights: Sequence[Tensor], x: Tensor, normal: bool) -> Tensor:
    """Summed outputs of a ReLU chain for the rows of x, with a LayerNorm without ε before every ReLU or with none."""
    for weight in weights[:-1]:
        x = x @ weight.T
        x = F.layer_norm(x, x.shape[1:], eps=0.0).relu() if normal else x.relu()
    return (x @ weights[-1].T).sum()


@claims.add(
    "R16.control",
    "Remark 16, normalizers",
    HOLDS,
    "Normalizers keep gradients within a stable range.",
    "In the scale-free sense: with LayerNorm (ε = 0) the scale of any other layer drops out of a layer's gradient, and "
    "‖W‖·‖∂L/∂W‖ does not move with the layer's own. Without it every scale multiplies the gradient.",
)
def gradients_under_normalizers(draw: Draw) -> Iterator[Finding | Curve]:
    """Gradients in one layer while another, or itself, is scaled."""
    weights = matrices(draw, draw.integer(3, 6), low=6, high=10)
    x, c = draw.normal(5, weights[0].shape[1]), decade(draw, 1, 3)
    i = draw.integer(0, len(weights) - 2)

    def size(factors: Sequence[float], normal: bool) -> float:
        leaves = [(t * w).requires_grad_() for t, w in zip(factors, weights, strict=True)]
        return float(torch.autograd.grad(layered(leaves, x, normal), leaves[i])[0].norm())

    ones = [1.0] * len(weights)
    other, own = list(ones), list(ones)
    other[i + 1], own[i] = c, c
    yield equal("LayerNorm: another layer scaled", size(other, True), predicted=size(ones, True))
    yield equal("LayerNorm: the layer itself scaled", size(own, True), predicted=size(ones, True) / c)
    yield equal("without: another layer scaled", size(other, False), predicted=size(ones, False) * c)


@claims.add(
    "R17",
    "Remark 17, without normalizers",
    WRONG,
    "By Theorem 15 the training loss is O(s_{i+1}···s_K)-Lipschitz in W_i, so later layers are the smoother ones.",
    "An existence theorem gives no upper bound, and ‖h_{i−1}‖ is left out: the worst case is ‖x‖·Π_{j≠i}s_j for every "
    "layer, the same for all when the s_j are equal.",
)
def remark_17(draw: Draw) -> Iterator[Finding | Curve]:
    """The slope in each layer of an extremal network, found by autograd."""
    depth, n = draw.integer(3, 7), draw.integer(1, 5)
    gains, x = [decade(draw, 0.2, 0.8) for _ in range(depth)], draw.uniform(n, low=0.2)

    def slope(gains: Sequence[float], i: int) -> float:
        h = extremal(gains[:i], [n] * (i + 1))(x[None])[0].detach() if i else x
        after = tail(gains[i + 1 :], [n] * (depth - i)) if i + 1 < depth else torch.relu
        return norm(jacobian(lambda w: after(w @ h), gains[i] * torch.eye(n)))

    for i in (0, draw.integer(1, depth - 1), depth - 1):
        right = float(x.norm()) * math.prod(gains[:i] + gains[i + 1 :])
        printed = float(x.norm()) * math.prod(gains[i + 1 :])
        yield equal(f"slope in layer {i + 1} of {depth}", slope(gains, i), predicted=right, published=printed)
    yield exceeds("last layer against ‖x‖", slope(gains, depth - 1), published=float(x.norm()))
    even = [gains[0]] * depth
    yield equal("equal gains: last layer as the first", slope(even, depth - 1), predicted=slope(even, 0))
    layers = range(depth)
    lines = (
        ("true", tuple(slope(even, i) for i in layers)),
        ("as printed, with ‖x‖", tuple(float(x.norm()) * gains[0] ** (depth - 1 - i) for i in layers)),
    )
    yield Curve("Equal gains", "layer", "slope in W_i", tuple(i + 1.0 for i in layers), lines, log_y=True)


@claims.add(
    "R17.normalized",
    "Remark 17, with normalizers",
    GAUGE,
    "With normalizers the loss gains the factor Π_{k≥i}‖NO_k‖, which is exponentially small in practice.",
    "The factor moves with the scale of the weights; ‖W_i‖ times the slope in W_i does not, and says how much a "
    "relative change of the weights matters.",
)
def factor_of_normalizers(draw: Draw) -> Iterator[Finding | Curve]:
    """A BatchNorm stack and a rescaled copy: the factor, the function, the scale-free slope."""
    stack = frozen_stack(draw, draw.integer(2, 5), on=True)
    factors = [decade(draw, 0.5, 2) for _ in stack.weights]
    other = rescaled(stack, factors)
    k, x = draw.integer(0, len(factors)), draw.normal(stack.weights[0].shape[1])
    way = draw.normal(len(stack.weights[-1]))
    before, after = (math.prod(float(s.max()) for s in net.inverses[k:]) for net in (stack, other))
    yield moves("Π_{k≥i}‖NO_k‖", before, after)
    yield equal("moved by the factors chosen", after, predicted=before / math.prod(factors[k:]))
    yield equal("output, along a random direction", way @ other(x), predicted=way @ stack(x))

    def scale_free(net: Stack) -> float:
        h, weight = net.entering(k, x), net.weights[k]
        return norm(weight) * norm(jacobian(lambda w: net.after(k)(w @ h), weight))

    yield equal("‖W_i‖ times the slope in W_i", scale_free(other), predicted=scale_free(stack))
