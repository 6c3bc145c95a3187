"""Claims of Than 2025 on batch normalization: Eq. 1, Lemma 1, and what Lemma 1 says of ResNet-18."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.normalized import batch_norm, decade, running
from normgauge.zoo import resnet18

claims = Family("T", "Than 2025")

HOLDS, WRONG = Verdict.HOLDS, Verdict.WRONG


@claims.add(
    "E1",
    "Eq. 1",
    HOLDS,
    "BatchNorm subtracts the population mean and divides by √(variance + ε), each signal by itself.",
    "Holds in eval mode; torch keeps the unbiased variance m/(m−1)·σ² and normalizes a batch with the biased one.",
)
def batch_norm_definition(draw: Draw) -> Iterator[Finding | Curve]:
    """Eval mode from the buffers, train mode from the batch, and which variance goes where."""
    m, n = draw.integer(3, 12), draw.integer(1, 6)
    module, x, weight = batch_norm(draw, n), draw.normal(m, n), draw.normal(m, n)
    mean, var = running(module)
    formula = (x - mean) / (var + module.eps).sqrt()
    yield equal("eval output, along a random direction", (weight * module(x)).sum(), predicted=(weight * formula).sum())
    module.train().momentum = 1.0
    centred = x - x.sum(0) / m
    biased = (centred**2).sum(0) / m
    formula = centred / (biased + module.eps).sqrt()
    yield equal("train output: the biased variance", (weight * module(x)).sum(), predicted=(weight * formula).sum())
    kept = biased * m / (m - 1)
    yield equal("variance kept: the unbiased one", running(module)[1].sum(), predicted=kept.sum())


@claims.add(
    "E1.slope",
    "text below Eq. 1",
    HOLDS,
    "The derivative of BatchNorm is 1/√(σ² + ε) and involves no other signal of the layer.",
    "Exact with frozen statistics: the Jacobian is diagonal. In training the samples couple: T.E1.train.",
)
def batch_norm_slope(draw: Draw) -> Iterator[Finding | Curve]:
    """Diagonal and off-diagonal of the Jacobian."""
    n = draw.integer(2, 8)
    module, c = batch_norm(draw, n), draw.integer(0, n)
    slopes = jacobian(lambda x: module(x[None]), draw.normal(n))
    own = 1 / math.sqrt(float(running(module)[1][c]) + module.eps)
    yield equal("slope of one signal", slopes[c, c], predicted=own)
    others = slopes - slopes.diagonal().diag()
    yield equal("largest slope across signals", others.abs().max(), predicted=0.0, scale=norm(slopes))


@claims.add(
    "E1.train",
    "section 3.2, BN against LN",
    HOLDS,
    "With statistics of the batch BatchNorm couples its samples and its slope depends on the batch.",
    "Per channel it is LayerNorm along the batch: max_c |γ_c|/σ_c for m ≥ 3 values, |γ|ε/σ³ for m = 2; a sample's own "
    "slope is (γ/σ)(1 − 1/m − z²/m).",
)
def batch_norm_training(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobian of the whole batch, for many samples and for two; the diagonal of one channel."""
    m, n, eps = draw.integer(3, 7), draw.integer(1, 4), decade(draw, -4, -1)
    gamma, x = draw.normal(n), draw.normal(m, n) * draw.normal(n).exp()

    def train(v: Tensor) -> Tensor:
        return F.batch_norm(v, None, None, gamma, training=True, eps=eps)

    sigma = ((x - x.mean(0)) ** 2).mean(0).add(eps).sqrt()
    slopes = jacobian(train, x)
    yield equal(f"slope of the batch, m = {m}", norm(slopes), predicted=float((gamma.abs() / sigma).max()))
    k, c = draw.integer(0, m), draw.integer(0, n)
    z = float((x[k, c] - x[:, c].mean()) / sigma[c])
    own = float(gamma[c] / sigma[c]) * (1 - 1 / m - z**2 / m)
    yield equal("a sample's own slope", slopes[k * n + c, k * n + c], predicted=own, scale=norm(slopes))
    pair = x[:2]
    sigma = ((pair[0] - pair[1]) ** 2 / 4 + eps).sqrt()
    slope = float((gamma.abs() * eps / sigma**3).max())
    yield equal("slope of a batch of two", norm(jacobian(train, pair)), predicted=slope, rel=1e-8)


@claims.add(
    "L1",
    "Lemma 1",
    WRONG,
    "The Lipschitz constant of BatchNorm equals the ℓ2 norm of the vector of all 1/√(σ_c² + ε).",
    "The Jacobian is diagonal: the constant is max_c |γ_c|/√(σ_c² + ε). The ℓ2 norm is its Frobenius norm, up to √C "
    "too large.",
    backs=("norm_batch.batch_norm", "norm_batch.batch_norm_function"),
)
def lemma_1(draw: Draw) -> Iterator[Finding | Curve]:
    """Random statistics, and the smallest example σ = (1/2, 1, 2)."""
    n = draw.integer(2, 10)
    module = batch_norm(draw, n)
    slopes = jacobian(lambda x: module(x[None]), draw.normal(n))
    inverse = 1 / (running(module)[1] + module.eps).sqrt()
    printed = math.sqrt(float((inverse**2).sum()))
    yield equal("slope", norm(slopes), predicted=float(inverse.max()))
    yield refutes("slope against the ℓ2 norm", norm(slopes), published=printed)
    yield equal("Frobenius norm of the Jacobian is what is printed", slopes.norm(), predicted=printed)
    sigma = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    example = norm(jacobian(lambda x: F.batch_norm(x[None], 0 * sigma, sigma**2, eps=0.0), sigma))
    yield refutes("σ = (1/2, 1, 2)", example, published=math.sqrt(2**2 + 1**2 + 0.5**2))
    yield equal("σ = (1/2, 1, 2)", example, predicted=2.0)
    x = [2.0**k for k in range(10)]
    lines = (("true constant", (1.0,) * 10), ("as printed", tuple(math.sqrt(c) for c in x)))
    yield Curve("C channels of variance 1", "channels C", "constant", tuple(x), lines, log_x=True, log_y=True)


@functools.cache
def resnet18_widths() -> tuple[int, ...]:
    """Channels of ResNet-18's BatchNorms."""
    with torch.random.fork_rng(devices=[]):  # its weights are drawn, and not used
        return tuple(m.num_features for m in resnet18(10).modules() if isinstance(m, nn.BatchNorm2d))


@claims.add(
    "L1.resnet18",
    "Lemma 1 with section 4.2",
    WRONG,
    "Over ResNet-18's 20 BatchNorms the factor of Lemma 1 and Corollary 10 is about 10^−25.",
    "If σ_k² is a layer's mean variance, the ℓ2 norm is ≥ √C_k/σ_k; Π√C_k = 10^22.58, so by the paper's own lemma the "
    "factor is ≥ 10^−2.42.",
)
def lemma_1_in_resnet18(draw: Draw) -> Iterator[Finding | Curve]:
    """The widths of the real network; random variances scaled so that Π1/σ_k is 10^−25 in the mean."""
    widths = resnet18_widths()
    yield equal("BatchNorm layers", len(widths), predicted=20)
    slack = sum(math.log10(channels) / 2 for channels in widths)
    # stem and first stage: 5 of 64; then 5 each of 128, 256 and 512 channels, the shortcut's among them
    yield equal("decades of Π√C", slack, predicted=5 / 2 * math.log10(64 * 128 * 256 * 512))
    total = 0.0
    for channels in widths:
        var = draw.normal(channels).exp()
        var = var / var.mean() * 10 ** (2 * 25 / 20)
        total += math.log10(float(var.rsqrt().norm()))
    yield exceeds("decades of Π‖1/σ_k‖₂ when Π1/rms σ_k = 10^−25", total, published=-25.0)
    yield below("at least Π√C_k more, by Jensen", -25 + slack, predicted=total)
    flat = sum(math.log10(float(torch.full((channels,), 10**-1.25).norm())) for channels in widths)
    yield equal("with equal channels exactly that", flat, predicted=-25 + 22.5772, rel=1e-4)
