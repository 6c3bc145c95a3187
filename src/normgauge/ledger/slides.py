"""Claims of Than's slides of 2023: constants of normalizers, capacity, optimization."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds, moves, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.examples import EPS, BatchNormNet
from normgauge.ledger.jacobians import jacobian, norm

claims = Family("S", "Than 2023")


@claims.add(
    "approximation",
    "slide on approximation",
    Verdict.HOLDS,
    "Any continuous function is approximated well by a network, but how to find it is unclear.",
    "On a line it is explicit: the ReLU net that interpolates at distance d misses an L-Lipschitz function "
    "by Ld/2 at most.",
)
def approximation(draw: Draw) -> Iterator[Finding | Curve]:
    """A net built from the values at the knots; the worst function for it is a zigzag between them."""
    knots, slope = draw.integer(4, 12), float(draw.uniform(1, low=0.5, high=3.0))
    t = torch.linspace(0, 1, knots + 1, dtype=torch.float64)
    values = torch.cat([torch.zeros(1, dtype=torch.float64), (slope / knots * draw.uniform(knots, low=-1.0)).cumsum(0)])
    slopes = values.diff() * knots
    kinks = torch.cat([slopes[:1], slopes.diff()])
    x = torch.linspace(0, 1, 2 * knots + 1, dtype=torch.float64)
    net = values[0] + torch.relu(x[:, None] - t[:-1]) @ kinks
    yield equal("the net at the knots", float((net[::2] - values).abs().max()), predicted=0.0, scale=1.0)
    zigzag = slope * (x[:, None] - t).abs().min(1).values  # zero at every knot, steep between them
    yield equal("how far it misses a zigzag that is 0 at the knots", float(zigzag.max()), predicted=slope / knots / 2)


@claims.add(
    "optimization",
    "slide on optimization",
    Verdict.UNSUPPORTED,
    "SGD finds global solutions of overparameterized training problems.",
    "Proved for special nets, widths and starts; from a start with dead ReLUs no step is ever taken.",
)
def optimization(draw: Draw) -> Iterator[Finding | Curve]:
    """More weights than samples, a dead hidden layer: the loss stays; alive, the same net can fit."""
    m, n, width = draw.integer(3, 6), draw.integer(6, 10), 20
    x, t = draw.uniform(m, n, low=0.1), draw.normal(m)
    dead, head = -draw.uniform(width, n, low=0.1), draw.normal(width)
    tensors = [dead.clone().requires_grad_(), head.clone().requires_grad_()]
    loss = (torch.relu(x @ tensors[0].T) @ tensors[1] - t).square().mean()
    grads = torch.autograd.grad(loss, tensors)
    yield equal("gradient at the start", sum(float(g.abs().sum()) for g in grads), predicted=0.0, scale=1.0)
    alive = torch.cat([torch.eye(n, dtype=torch.float64), draw.normal(width - n, n)])  # all inputs are positive
    features = torch.relu(x @ alive.T)  # the first n features are x itself, so that their rank is m
    best = (features @ torch.linalg.lstsq(features, t[:, None], driver="gelsd").solution)[:, 0]
    yield equal(
        "best loss of the same net, over that of the start",
        float((best - t).square().mean() / loss.detach()),
        predicted=0.0,
        scale=1.0,
    )


claims.read(
    "kernels",
    "slides on neural tangent kernels, mean fields and non-vacuous bounds",
    Verdict.UNSUPPORTED,
    "Other theories exist; bounds that mean something are for stochastic or shallow nets.",
    "A list of other people's results and figures (Lotfi et al. and others); nothing in it is derived or can "
    "be recomputed.",
)


@claims.add(
    "BN.moments",
    "slide on batch normalization",
    Verdict.LOOSE,
    "After BatchNorm each signal has mean 0 and variance 1.",
    "In training the variance is exactly σ²/(σ²+ε), times γ²; in use, with running statistics, neither holds.",
)
def bn_moments(draw: Draw) -> Iterator[Finding | Curve]:
    """A batch of small and large channels."""
    m, c, eps = draw.integer(5, 30), draw.integer(2, 6), 10 ** float(draw.uniform(1, low=-3.0, high=-1.0))
    x = draw.normal(m, c) * draw.uniform(c, low=0.05, high=1.0) + draw.normal(c)
    out = F.batch_norm(x, None, None, training=True, eps=eps)
    var = x.var(0, correction=0)
    yield equal("largest mean", float(out.mean(0).abs().max()), predicted=0.0, scale=1.0)
    smallest = int(var.argmin())
    found = float(out[:, smallest].var(correction=0))
    yield equal("smallest variance", found, predicted=float(var[smallest] / (var[smallest] + eps)))
    yield below("the same, against 1", found, predicted=1.0, published=1.0)
    other = F.batch_norm(x + 1, x.mean(0), x.var(0), training=False, eps=eps)
    yield refutes("mean in use, inputs shifted by 1", float(other[:, 0].mean()), published=0.0)


@claims.add(
    "BN",
    "slide on Lipschitz continuity",
    Verdict.WRONG,
    "‖BN‖_Lip = ‖γ/σ‖, the Euclidean norm over channels.",
    "max_c |γ_c|/√(σ_c²+ε): the Jacobian is diagonal. √C too large with C equal channels.",
)
def bn(draw: Draw) -> Iterator[Finding | Curve]:
    """The Jacobian of eval-mode BatchNorm."""
    c = draw.integer(2, 9)
    var, gamma, mean = draw.uniform(c, low=0.1, high=4.0), draw.normal(c), draw.normal(c)
    found = norm(jacobian(lambda v: F.batch_norm(v[None], mean, var, gamma, eps=EPS)[0], draw.normal(c)))
    ratio = gamma.abs() / (var + EPS).sqrt()
    yield equal("constant", found, predicted=float(ratio.max()))
    even = [1 / math.sqrt(1 + EPS)] * 2
    pair = torch.ones(2, dtype=torch.float64)
    equal_channels = norm(jacobian(lambda v: F.batch_norm(v[None], 0 * pair, pair, pair, eps=EPS)[0], draw.normal(2)))
    yield refutes("constant, two equal channels", equal_channels, published=math.hypot(*even))
    yield equal("printed over true there", math.hypot(*even) / equal_channels, predicted=math.sqrt(2))
    yield below("constant, against the printed one as a bound", found, predicted=float(ratio.norm()))


def _spike(n: int, eps: float, draw: Draw, groups: int = 1) -> tuple[float, float]:
    """σ‖J‖ and σ of a normalizer with γ = e₁ at an input whose first entry is the mean of its group."""
    x = draw.normal(n * groups)
    x[0] = x[1:n].mean()
    gamma = torch.zeros(n * groups, dtype=torch.float64)
    gamma[0] = 1.0
    sigma = math.sqrt(float(x[:n].var(correction=0)) + eps)
    found = jacobian(lambda v: F.group_norm(v[None], groups, gamma, eps=eps)[0], x)
    return norm(found) * sigma, sigma


@claims.add(
    "LN",
    "slide on Lipschitz continuity",
    Verdict.WRONG,
    "‖LN‖_Lip ≤ (1 − 1/n)‖γ/σ‖.",
    "max|γ|/σ_ε is the bound, and exact for γ = 1 and n ≥ 3; with γ = e₁ the norm is √(1−1/n)/σ_ε > (1−1/n)/σ_ε.",
)
def ln(draw: Draw) -> Iterator[Finding | Curve]:
    """γ = e₁ at y₁ = 0; γ = 1; and γ at random."""
    n, eps = draw.integer(3, 40), 1e-5
    scaled, _ = _spike(n, eps, draw)
    yield exceeds("σ_ε‖J‖ for γ = e₁, y₁ = 0", scaled, published=1 - 1 / n)
    yield equal("the same", scaled, predicted=math.sqrt(1 - 1 / n))
    x, gamma = draw.normal(n), draw.normal(n)
    sigma = math.sqrt(float(x.var(correction=0)) + eps)
    plain = norm(jacobian(lambda v: F.layer_norm(v, (n,), eps=eps), x))
    yield equal("‖J‖ for γ = 1", plain, predicted=1 / sigma)
    found = norm(jacobian(lambda v: F.layer_norm(v, (n,), gamma, eps=eps), x))
    yield below("‖J‖ for any γ", found, predicted=float(gamma.abs().max()) / sigma)
    sizes = tuple(range(3, 21))
    lines = (("true, γ = e₁", tuple(math.sqrt(1 - 1 / k) for k in sizes)), ("printed", tuple(1 - 1 / k for k in sizes)))
    yield Curve("σ‖J‖ of LayerNorm with γ = e₁", "n", "σ‖J‖", sizes, lines)


@claims.add(
    "GN",
    "slide on Lipschitz continuity",
    Verdict.WRONG,
    "‖GN‖_Lip ≤ (1 − 1/n_g)‖γ/σ‖ for groups of n_g.",
    "As for LayerNorm, group by group: the largest over groups of max|γ|/σ_ε, without a factor.",
)
def gn(draw: Draw) -> Iterator[Finding | Curve]:
    """γ = e₁ inside the first of several groups; then γ = 1."""
    n, groups, eps = draw.integer(3, 10), draw.integer(2, 5), 1e-5
    scaled, _ = _spike(n, eps, draw, groups)
    yield exceeds("σ_ε‖J‖ for γ = e₁, y₁ = 0", scaled, published=1 - 1 / n)
    yield equal("the same", scaled, predicted=math.sqrt(1 - 1 / n))
    x = draw.normal(groups, n) * draw.uniform(groups, 1, low=0.2, high=3.0)
    sigmas = (x.var(1, correction=0) + eps).sqrt()
    plain = norm(jacobian(lambda v: F.group_norm(v[None], groups, eps=eps)[0], x.flatten()))
    yield equal("‖J‖ for γ = 1", plain, predicted=float((1 / sigmas).max()))


@claims.add(
    "L4",
    "Lemma 4",
    Verdict.LOOSE,
    "‖h_no‖_Lip ≤ Π s_k‖NO_k‖, for BatchNorm with ‖γ_k/σ_k‖.",
    "True; tighter with max_c|γ_c/σ_c|, and tighter again with the normalizer folded into the weights: Π‖diag(γ/σ)W‖.",
)
def l4(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobians of random BatchNorm nets under the three bounds; W = I with equal channels attains the folded one."""
    net = BatchNormNet.drawn(draw, draw.integer(2, 5), draw.integer(4, 9))
    x = draw.normal(10, net.head.shape[1])
    steepest = max(norm(jacobian(net, row)) for row in x)
    head = math.log10(norm(net.head))
    largest = sum(math.log10(float((g / s).abs().max())) for g, s in zip(net.gains, net.sigmas, strict=True))
    yield below("slope, against the folded bound", math.log10(steepest), predicted=net.log_folded)
    yield below("log10 folded, against norms and max γ/σ", net.log_folded, predicted=net.log_weights + largest + head)
    printed = net.log_weights + net.log_euclidean + head
    yield below(
        "the same, against the printed bound", net.log_weights + largest + head, predicted=printed, published=printed
    )
    depth, width, sigma = draw.integer(2, 5), draw.integer(3, 8), float(draw.uniform(1, low=0.5, high=2.0))
    even = _even_net(depth, width, sigma)
    found = norm(jacobian(even, torch.ones(width, dtype=torch.float64)))
    yield equal("slope of W = I, equal channels: folded", math.log10(found), predicted=even.log_folded)
    gap = even.log_weights + even.log_euclidean - even.log_folded
    yield equal("log10 of printed over folded there", gap, predicted=depth * math.log10(width) / 2)


def _even_net(depth: int, width: int, sigma: float) -> BatchNormNet:
    eye, ones = torch.eye(width, dtype=torch.float64), torch.ones(width, dtype=torch.float64)
    variances = ((sigma**2 - EPS) * ones,) * depth
    return BatchNormNet((eye,) * depth, (0 * ones,) * depth, variances, (ones,) * depth, (0 * ones,) * depth, eye)


@claims.add(
    "arithmetic",
    "slide after Lemma 4",
    Verdict.WRONG,
    "Π‖γ_k/σ_k‖ of ResNet-18 is 1.35·10⁻⁸ ≈ 1.35·2^(−26.5).",
    "1.35·10⁻⁸ = 1.28·2^(−26.5); 1.35·2^(−26.5) = 1.42·10⁻⁸.",
)
def arithmetic(draw: Draw) -> Iterator[Finding | Curve]:
    """Two numbers."""
    value = 1.35 * 2.0**-26 / math.sqrt(2)
    yield refutes("1.35·2^(−26.5)", value, published=1.35e-8)
    yield equal("the same", value, predicted=1.42e-8, rel=2e-3)
    yield equal("1.35·10⁻⁸ over 2^(−26.5)", 1.35e-8 * 2.0**26 * math.sqrt(2), predicted=1.28, rel=2e-3)


claims.trained(
    "product",
    "slide after Lemma 4",
    Verdict.GAUGE,
    "Π‖γ_k/σ_k‖ over ResNet-18's BatchNorm layers is about 1.35·10⁻⁸: an exponential reduction.",
    "A choice of scale. With the Euclidean norm 10^7.7 without decay and 10^19.5 with SGD; with max|γ/σ|, the true "
    "constant, 10^−9.9 and 10^1.6, passing 10^−7.9 at epoch 55 without decay.",
    "than2025/slide",
)


@claims.add(
    "exponential",
    "slides on generalization",
    Verdict.UNSUPPORTED,
    "A normalized net has exponentially smaller error and needs exponentially less data than without normalizers.",
    "Two upper bounds are compared, and the factor between them is a choice of scale: the same function, and "
    "so the same "
    "error, has any Π‖γ/σ‖.",
)
def exponential(draw: Draw) -> Iterator[Finding | Curve]:
    """One BatchNorm net in two scales, with the error on the same data."""
    depth, width = draw.integer(3, 6), draw.integer(5, 10)
    net = BatchNormNet.drawn(draw, depth, width)
    scales = [10 ** draw.uniform(width, low=1.0, high=3.0) for _ in range(depth)]
    other, x, t = net.rescaled(scales), draw.normal(30, width), draw.normal(30, 3)
    losses = [float((f(x) - t).abs().mean()) for f in (net, other)]
    yield equal("test loss in the other scale", losses[1], predicted=losses[0])
    yield moves("Π‖γ/σ‖", 10**net.log_euclidean, 10**other.log_euclidean)
    yield equal("log10 of the folded bound", other.log_folded, predicted=net.log_folded)


@claims.add(
    "flat",
    "slides on optimization",
    Verdict.GAUGE,
    "A normalizer makes the training loss exponentially flatter.",
    "Flatness in the weights before a normalizer goes as 1/‖w‖: scale them and the same function is flatter "
    "or sharper.",
)
def flat(draw: Draw) -> Iterator[Finding | Curve]:
    """Gradient of a LayerNorm net's loss in W, and in cW."""
    m, n, width = draw.integer(4, 10), draw.integer(3, 6), draw.integer(3, 7)
    x, w, t = draw.normal(m, n), draw.normal(width, n), draw.normal(m, width)
    c = float(draw.uniform(1, low=2.0, high=20.0))

    def loss(v: Tensor) -> Tensor:
        y = x @ v.reshape(width, n).T
        y = y - y.mean(1, keepdim=True)
        return (y / y.square().mean(1, keepdim=True).sqrt() - t).square().mean()

    yield equal("loss after W → cW", float(loss(c * w)), predicted=float(loss(w)))
    before, after = float(jacobian(loss, w).norm()), float(jacobian(loss, c * w).norm())
    yield moves("‖∇_W L‖", before, after)
    yield equal("‖W‖·‖∇_W L‖", c * float(w.norm()) * after, predicted=float(w.norm()) * before)


@claims.add(
    "gradient",
    "slide on optimization",
    Verdict.HOLDS,
    "∂f/∂W_i is made of ∂f/∂h, ∂h/∂y_i and h_{i−1}.",
    "As an outer product, (∂f/∂y_i)ᵀ h_{i−1}ᵀ; its norm is ‖∂f/∂y_i‖·‖h_{i−1}‖, and the second factor must be kept.",
)
def gradient(draw: Draw) -> Iterator[Finding | Curve]:
    """Autograd in W against autograd in y = Wh."""
    n, width = draw.integer(3, 7), draw.integer(3, 7)
    h, w, v, t = draw.normal(n), draw.normal(width, n), draw.normal(4, width), draw.normal(4)

    def loss(y: Tensor) -> Tensor:
        return (v @ torch.tanh(y) - t).square().sum()

    in_w = jacobian(lambda u: loss(u.reshape(width, n) @ h), w).reshape(width, n)
    in_y = jacobian(loss, w @ h).flatten()
    apart = float((in_w - torch.outer(in_y, h)).abs().max())
    yield equal("largest difference of the two", apart, predicted=0.0, scale=float(in_w.abs().max()))
    yield equal("‖∂f/∂W‖", float(in_w.norm()), predicted=float(in_y.norm() * h.norm()))
