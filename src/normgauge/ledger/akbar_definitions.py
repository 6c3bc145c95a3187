"""Claims of Akbar on definitions and gradients: section 3 and appendix A.1.1."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.claim import Verdict
from normgauge.ledger.claim import Family, below, equal, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import Found, batch_backward, gradient, layer, project, size, standardize

claims = Family("A", "Akbar")


@claims.add(
    "D3.1.BN",
    "section 3.1",
    Verdict.HOLDS,
    "Batch norm takes off the batch mean, divides by √(batch variance + ε) and applies a gain and a shift, unit "
    "by unit",
    "As defined. torch divides by the biased variance and stores the unbiased one for evaluation.",
)
def batch_norm(draw: Draw) -> Found:
    """torch's layer in train mode is the formula; its buffer holds m/(m−1) times the variance."""
    m, n, eps = draw.integer(3, 9), draw.integer(2, 6), float(draw.uniform(1, low=1e-3, high=0.5))
    z, gamma, beta, probe = draw.normal(m, n), draw.normal(n), draw.normal(n), draw.normal(m, n)
    module = nn.BatchNorm1d(n, eps=eps, momentum=1.0, dtype=torch.float64)
    module.load_state_dict({"weight": gamma, "bias": beta}, strict=False)
    out = module(z).detach()
    mean, variance = z.mean(0), (z - z.mean(0)).square().mean(0)
    yield equal(
        "output", project(out, probe), predicted=project(gamma * (z - mean) / (variance + eps).sqrt() + beta, probe)
    )
    assert module.running_var is not None
    yield equal("stored variance", module.running_var[0], predicted=variance[0] * m / (m - 1))


@claims.add(
    "D3.1.var",
    "section 3.1",
    Verdict.LOOSE,
    "What batch norm puts out before gain and shift has mean 0 and variance 1",
    "The mean is 0; the variance is σ²/(σ²+ε), below 1.",
)
def unit_variance(draw: Draw) -> Found:
    """Variance of the output of F.batch_norm against σ²/(σ²+ε)."""
    eps = float(draw.uniform(1, low=1e-3, high=2.0))
    z = draw.normal(draw.integer(3, 9), 1) * 2
    out = F.batch_norm(z, None, None, training=True, eps=eps)
    sigma2 = float((z - z.mean()).square().mean())
    yield equal("mean", out.mean(), predicted=0.0, scale=1.0)
    yield below("variance", out.square().mean(), predicted=1.0, published=1.0)
    yield equal("variance", out.square().mean(), predicted=sigma2 / (sigma2 + eps), published=1.0)


@claims.add(
    "D3.1.LN",
    "section 3.1",
    Verdict.HOLDS,
    "Layer norm does the same over the units of one sample: no other sample matters, training and test agree",
    "As defined; exact with ε inside the root.",
)
def layer_norm(draw: Draw) -> Found:
    """torch's layer is the formula, and a sample alone gives what it gives in a batch, in either mode."""
    m, n, eps = draw.integer(2, 6), draw.integer(3, 8), float(draw.uniform(1, low=1e-3, high=0.5))
    z, gamma, beta, probe = draw.normal(m, n), draw.normal(n), draw.normal(n), draw.normal(m, n)
    module = nn.LayerNorm(n, eps=eps, dtype=torch.float64)
    module.load_state_dict({"weight": gamma, "bias": beta})
    out = module(z).detach()
    mean, variance = z.mean(1, keepdim=True), z.var(1, unbiased=False, keepdim=True)
    yield equal(
        "output", project(out, probe), predicted=project(gamma * (z - mean) / (variance + eps).sqrt() + beta, probe)
    )
    yield shown("one sample alone, in eval mode: the same", torch.allclose(module.eval()(z[:1]), out[:1], rtol=1e-12))


@claims.add(
    "D3.1.BNinv",
    "section 3.1",
    Verdict.HOLDS,
    "Scaling what enters a batch-norm unit by c > 0 leaves its output alone; a negative c turns its sign around",
    "Exact at ε = 0; with ε it is the law of A.P4.1.eps.",
)
def batch_norm_scale(draw: Draw) -> Found:
    """Output at c·z for both signs of c."""
    z, probe, c = draw.normal(draw.integer(3, 9)), draw.normal(9), float(draw.uniform(1, low=0.01, high=50.0))
    probe = probe[: len(z)]
    yield equal("output at c·z", project(standardize(c * z), probe), predicted=project(standardize(z), probe))
    yield equal("output at −c·z", project(standardize(-c * z), probe), predicted=-project(standardize(z), probe))


@claims.add(
    "D3.1.bias",
    "section 3.1",
    Verdict.HOLDS,
    "A bias in front of batch norm does nothing",
    "The loss ignores it and its gradient is exactly 0, for every batch and every ε. In eval mode it does count.",
)
def bias_is_idle(draw: Draw) -> Found:
    """Any change of the bias, and the gradient in it."""
    net = layer(draw, eps=float(draw.uniform(1, low=0.0, high=0.1)))
    moved = net.using(bias=net.bias + 10 * draw.normal(len(net.bias)))
    yield equal("loss with another bias", moved.loss(), predicted=float(net.loss()))
    weight, bias = net.gradients("weight", "bias")
    yield equal("gradient in the bias", size(bias), predicted=0.0, scale=size(weight))


@claims.add(
    "D3.1.neuron",
    "section 3.1",
    Verdict.HOLDS,
    "Batch norm lets each unit be scaled alone; layer norm only all units of a layer together",
    "Exact at ε = 0.",
)
def one_unit_alone(draw: Draw) -> Found:
    """One row scaled, under both normalizers; all rows, under layer norm."""
    c = float(draw.uniform(1, low=2.0, high=5.0))
    batch, per_sample = layer(draw), layer(draw, dim=1)
    for net, changes in ((batch, False), (per_sample, True)):
        factor = torch.ones(len(net.bias), dtype=torch.float64)
        factor[draw.integer(0, len(factor))] = c
        scaled = net.using(weight=factor[:, None] * net.weight, bias=factor * net.bias)
        if changes:
            yield shown("layer norm, one unit scaled: another loss", abs(float(scaled.loss() / net.loss()) - 1) > 1e-6)
        else:
            yield equal("batch norm, one unit scaled: loss", scaled.loss(), predicted=float(net.loss()))
    scaled = per_sample.using(weight=c * per_sample.weight, bias=c * per_sample.bias)
    yield equal("layer norm, all units scaled: loss", scaled.loss(), predicted=float(per_sample.loss()))


@claims.add(
    "E1",
    "equation (1)",
    Verdict.WRONG,
    "The gradient in front of batch norm is (1/mσ)[mδ − Σδ − ẑ Σδẑ] with δ the gradient behind it",
    "The gain is missing: γ/(mσ)[…], exact with ε inside σ and ẑ.",
)
def batch_norm_gradient(draw: Draw) -> Found:
    """Autograd against both forms."""
    z, delta, truth, gamma, eps = batch_backward(draw)
    m, hat, probe = len(z), standardize(z, eps), draw.normal(len(z))
    sigma = math.sqrt(float(z.var(unbiased=False)) + eps)
    printed = (m * delta - delta.sum() - hat * (delta * hat).sum()) / (m * sigma)
    yield refutes("gradient along a random direction", project(truth, probe), published=project(printed, probe))
    yield equal("gradient along a random direction", project(truth, probe), predicted=gamma * project(printed, probe))


@claims.add(
    "E1.sum",
    "below equation (1)",
    Verdict.HOLDS,
    "The gradients in front of a batch-norm unit sum to 0 over the batch",
    "Exact for every ε.",
)
def batch_gradient_sum(draw: Draw) -> Found:
    """Sum of autograd's gradient."""
    _, _, truth, _, _ = batch_backward(draw)
    yield equal("sum over the batch", truth.sum(), predicted=0.0, scale=size(truth))


@claims.add(
    "E1.scale",
    "below equation (1)",
    Verdict.HOLDS,
    "Under batch norm the gradient in a weight is inversely proportional to the size of the weights",
    "∇L(cw) = ∇L(w)/c at ε = 0.",
    backs=["normgauge.dynamics.motion.scale_free_gradient"],
)
def gradient_scale(draw: Draw) -> Found:
    """Gradients at W and at cW."""
    net, c = layer(draw), float(draw.uniform(1, low=0.05, high=20.0))
    (here,) = net.gradients("weight")
    (there,) = net.using(weight=c * net.weight, bias=c * net.bias).gradients("weight")
    probe = draw.normal(*here.shape)
    yield equal("gradient at c·W", project(there, probe), predicted=project(here, probe) / c)


@claims.add(
    "LNgrad",
    "section 3.2",
    Verdict.WRONG,
    "The gradient in front of layer norm is (1/dσ)[dδ_i − Σδ_j − ẑ_j Σδ_jẑ_j]",
    "(1/dσ)[d q_i − Σq_j − ẑ_i Σq_jẑ_j] with q_j = γ_jδ_j: the gains belong inside, and the outer ẑ has the index i.",
)
def layer_norm_gradient(draw: Draw) -> Found:
    """Autograd against the printed form, read in both ways its free index allows."""
    n, eps = draw.integer(3, 9), float(draw.uniform(1, high=0.3))
    z, gamma, slope, probe = draw.normal(n) * 2, draw.uniform(n, low=1.3, high=3.0), draw.normal(n), draw.normal(n)

    def after(a: Tensor) -> Tensor:
        return (slope * torch.sin(a)).sum()

    delta = gradient(after, gamma * standardize(z, eps))
    truth = gradient(lambda z: after(gamma * standardize(z, eps)), z)
    hat, sigma = standardize(z, eps), math.sqrt(float(z.var(unbiased=False)) + eps)
    outer = (n * delta - delta.sum() - hat * (delta * hat).sum()) / (n * sigma)
    inner = (n * delta - delta.sum() - (hat * delta * hat).sum()) / (n * sigma)
    q = gamma * delta
    right = (n * q - q.sum() - hat * (q * hat).sum()) / (n * sigma)
    yield refutes("gradient, index read as i", size(truth - outer) / size(truth), published=0.0)
    yield refutes("gradient, index read as j", size(truth - inner) / size(truth), published=0.0)
    yield equal("gradient along a random direction", project(truth, probe), predicted=project(right, probe))


@claims.add(
    "LNgrad.sum",
    "section 3.2",
    Verdict.HOLDS,
    "The gradients in front of layer norm sum to 0 over the units of a sample, and shrink like 1/c when all grow by c",
    "Exact; the second part at ε = 0.",
)
def layer_gradient_sum(draw: Draw) -> Found:
    """Sum, and size at c·z."""
    z, gamma, slope, c = draw.normal(6), draw.normal(6), draw.normal(6), float(draw.uniform(1, low=0.1, high=10.0))

    def loss(z: Tensor) -> Tensor:
        return (slope * torch.sin(gamma * standardize(z))).sum()

    truth = gradient(loss, z)
    yield equal("sum over the units", truth.sum(), predicted=0.0, scale=size(truth))
    yield equal("size of the gradient at c·z", size(gradient(loss, c * z)), predicted=size(truth) / c)
