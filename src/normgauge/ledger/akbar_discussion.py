"""Claims of Akbar on implications, limits and open questions: sections 9 and 10."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.claim import Verdict
from normgauge.ledger.claim import Family, equal, exceeds, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.losses import (
    Found,
    Step,
    angle,
    gradient,
    layer,
    project,
    size,
    standardize,
    unit,
    wander,
)

claims = Family("A", "Akbar")


@claims.add(
    "9.2.noise",
    "section 9.2",
    Verdict.WRONG,
    "Mini-batch statistics break the exact invariance",
    "Every mini-batch has it exactly, with its own statistics: the loss of each is the same at c·W.",
)
def exact_per_batch(draw: Draw) -> Found:
    """Largest relative change of the loss of random batches under scaling, against that without batch norm."""
    net, c, worst, plain = layer(draw), float(draw.uniform(1, low=2.0, high=10.0)), 0.0, 0.0
    for _ in range(5):
        rows = torch.randperm(len(net.x), generator=draw.generator)[: draw.integer(3, 7)]
        batch = net.using(x=net.x[rows], target=net.target[rows])
        scaled = batch.using(weight=c * net.weight, bias=c * net.bias)
        worst = max(worst, abs(float(scaled.loss() / batch.loss()) - 1))
        bare = [torch.tanh(k * (batch.x @ net.weight.T)) @ net.head.T for k in (1.0, c)]
        plain = max(plain, size(bare[1] - bare[0]) / size(bare[0]))
    yield refutes("largest change under scaling, against without batch norm", worst, published=plain)
    yield equal("largest change under scaling", worst, predicted=0.0, scale=1.0)


claims.read(
    "9.2.local",
    "section 9.2",
    Verdict.HOLDS,
    "The analysis is local and its experiments are small and synthetic",
    "The author's own words on the limits of the paper; true by inspection, nothing to compute.",
)
claims.read(
    "9.3.shift",
    "sections 1.1 and 9.3",
    Verdict.UNSUPPORTED,
    "Internal covariate shift is not what makes batch norm work",
    "The notion has no definition here that could be measured, as the paper itself says.",
)


@claims.add(
    "9.3.fixed",
    "section 9.3",
    Verdict.WRONG,
    "Batch norm gives each layer inputs of mean 0 and variance 1 throughout training",
    "Mean β and variance γ²σ²/(σ²+ε), both learned; behind the activation something else again.",
)
def learned_moments(draw: Draw) -> Found:
    """Mean and variance of what the next layer receives."""
    gamma, beta, eps = float(draw.uniform(1, low=1.2, high=3.0)), float(draw.uniform(1, low=0.5, high=2.0)), 1e-3
    z = draw.normal(draw.integer(5, 20), 1)
    gain, shift = torch.full((1,), gamma, dtype=torch.float64), torch.full((1,), beta, dtype=torch.float64)
    out = F.batch_norm(z, None, None, gain, shift, training=True, eps=eps)
    sigma2 = float(z.var(unbiased=False))
    yield refutes("mean", out.mean(), published=0.0)
    yield refutes("variance", out.var(unbiased=False), published=1.0)
    yield equal("mean", out.mean(), predicted=beta)
    yield equal("variance", out.var(unbiased=False), predicted=gamma**2 * sigma2 / (sigma2 + eps))


@claims.add(
    "9.5.tangent",
    "section 9.5, other normalizations",
    Verdict.UNSUPPORTED,
    "An optimizer that drops the radial part of the gradient would be a new method beside batch norm",
    "Behind batch norm there is no radial part to drop; the step still lengthens the weights. Only rescaling "
    "after it differs.",
)
def tangent_step(draw: Draw) -> Found:
    """A step with the radial part removed against a plain one, and the length after it."""
    neuron, w = unit(draw)
    rate, probe, grad = float(draw.uniform(1, low=0.2, high=2.0)), draw.normal(len(w)), gradient(neuron.loss, w)
    tangent = grad - w * (w @ grad) / (w @ w)
    yield equal(
        "step without the radial part", project(w - rate * tangent, probe), predicted=project(w - rate * grad, probe)
    )
    yield equal("‖w‖² after it", size(w - rate * tangent) ** 2, predicted=size(w) ** 2 + rate**2 * size(grad) ** 2)


@claims.add(
    "9.5.conv",
    "section 9.5, convolutions",
    Verdict.HOLDS,
    "In a convolution each output channel plays the part of a unit under batch norm",
    "Its whole kernel has one scale: filter · gradient = 0 per channel, over all pixels of the batch.",
)
def convolution(draw: Draw) -> Found:
    """Loss with one filter scaled, and the radial gradient of each filter."""
    channels, c = draw.integer(2, 4), float(draw.uniform(1, low=0.1, high=10.0))
    x, weight, slope = draw.normal(3, 2, 5, 5), draw.normal(channels, 2, 3, 3), draw.normal(3, channels, 3, 3)

    def loss(weight: Tensor) -> Tensor:
        z = F.conv2d(x, weight).transpose(0, 1).reshape(channels, -1)
        hat = standardize(z, dim=1).reshape(channels, 3, 3, 3).transpose(0, 1)
        return (slope * torch.tanh(hat)).sum()

    scaled = weight.clone()
    scaled[0] *= c
    yield equal("loss with one filter scaled", loss(scaled), predicted=float(loss(weight)))
    grad = gradient(loss, weight)
    yield equal("filter · gradient", (grad[0] * weight[0]).sum(), predicted=0.0, scale=size(grad) * size(weight))


@claims.add(
    "9.5.instance",
    "section 9.5, convolutions",
    Verdict.HOLDS,
    "Instance norm removes the contrast of each image, which may be information",
    "a·x + b of any image gives the same output as x, in either mode.",
)
def contrast(draw: Draw) -> Found:
    """torch's instance norm on images of other contrast and brightness."""
    x, probe = draw.normal(2, 3, 4, 4), draw.normal(2, 3, 4, 4)
    scale, shift = draw.uniform(2, 1, 1, 1, low=1.0, high=5.0), draw.normal(2, 1, 1, 1)
    yield equal(
        "output",
        project(F.instance_norm(scale * x + shift, eps=1e-12), probe),
        predicted=project(F.instance_norm(x, eps=1e-12), probe),
    )


@claims.add(
    "9.5.dropout",
    "section 9.5, dropout",
    Verdict.UNSUPPORTED,
    "Dropout and batch norm weaken each other",
    "What can be said: in front of batch norm dropout with keep rate p raises the variance it stores to "
    "(σ²+μ²)/p − μ².",
)
def dropout_variance(draw: Draw) -> Found:
    """Variance of a feature under all masks there are, weighted by their probability, against that at test."""
    m, p = draw.integer(4, 8), float(draw.uniform(1, low=0.3, high=0.9))
    x = draw.normal(m) + 1
    mean = second = 0.0
    for mask in itertools.product((0.0, 1.0), repeat=m):
        weight = math.prod(p if kept else 1 - p for kept in mask)
        dropped = x * torch.tensor(mask, dtype=torch.float64) / p
        mean, second = mean + weight * float(dropped.mean()), second + weight * float(dropped.square().mean())
    sigma2, mu = float(x.var(unbiased=False)), float(x.mean())
    yield equal("variance in training", second - mean**2, predicted=(sigma2 + mu**2) / p - mu**2)
    yield exceeds("variance in training, against that at test", second - mean**2, published=sigma2)


@claims.add(
    "9.5.whitening",
    "section 9.5, other normalizations",
    Verdict.LOOSE,
    "Full whitening would be invariant to any orthonormal transform of the weights",
    "To any invertible one, up to a rotation of the output: the products of samples ẑ_n·ẑ_k do not change.",
)
def full_whitening(draw: Draw) -> Found:
    """Whitened batches before and after mixing the features by a rotation and by any matrix."""
    m, n = draw.integer(10, 20), draw.integer(2, 5)
    z, probe = draw.normal(m, n), draw.normal(m, m)

    def whitened(z: Tensor) -> Tensor:
        centred = z - z.mean(0)
        values, vectors = torch.linalg.eigh(centred.T @ centred / m)
        return centred @ vectors / values.sqrt() @ vectors.T

    truth = project(whitened(z) @ whitened(z).T, probe)
    for name, mix in (
        ("a rotation", draw.orthogonal(n)),
        ("any matrix", draw.normal(n, n) + 2 * torch.eye(n).double()),
    ):
        hat = whitened(z @ mix)
        yield equal(f"products of samples after {name}", project(hat @ hat.T, probe), predicted=truth, rel=1e-7)


@claims.add(
    "9.5.adversarial",
    "section 9.5, robustness",
    Verdict.UNSUPPORTED,
    "Batch norm may help or hurt against adversarial inputs: fixed statistics can be exploited through one feature",
    "Not settled. What can be said: at test it stretches by max|γ|/σ, attained along one feature.",
)
def worst_feature(draw: Draw) -> Found:
    """The Jacobian of torch's layer in eval mode."""
    n = draw.integer(2, 6)
    module = nn.BatchNorm1d(n, dtype=torch.float64).eval()
    gamma, variance = draw.normal(n), draw.uniform(n, low=0.01, high=2.0)
    module.load_state_dict({"weight": gamma, "running_var": variance}, strict=False)
    stretch = norm(jacobian(lambda x: module(x[None])[0], draw.normal(n)))
    yield equal("largest stretch", stretch, predicted=float((gamma.abs() / (variance + module.eps).sqrt()).max()))


claims.read(
    "9.5.failures",
    "section 9.5",
    Verdict.UNSUPPORTED,
    "Batch norm disturbs generative adversarial and recurrent networks by its noise and by correlated batches",
    "Reports by others, without a statement that could be computed.",
)


@claims.add(
    "9.5.momentum",
    "section 9.5, momentum",
    Verdict.WRONG,
    "Momentum may carry the weights along the radius, but this dies out by itself",
    "It lasts: the buffer keeps a radial part, and with decay directions turn by √(2ηλ/(1+α)) a step (Wan et al. "
    "2020).",
    backs=["normgauge.dynamics.equilibrium.sgd_equilibrium"],
)
def momentum(draw: Draw) -> Found:
    """Late steps of a noisy descent with momentum: their radial part, and how far they turn."""
    rate, decay, alpha = 0.1, 0.02, float(draw.uniform(1, low=0.4, high=0.7))
    start = draw.normal(400)
    path = wander(draw, 0.9 * start / start.norm(), Step(rate, decay, alpha), 0.5, 1500)
    steps = path[1:] - path[:-1]
    radial = ((steps * path[:-1]).sum(1) / steps.norm(dim=1) / path[:-1].norm(dim=1))[-200:].abs().mean()
    yield refutes("|cosine| of weights and step, late", radial, published=0.0)
    turn = sum(angle(a, b) for a, b in itertools.pairwise(path[-200:])) / 199
    yield equal("turn a step, late", turn, predicted=math.sqrt(2 * rate * decay / (1 + alpha)), rel=3e-2)


claims.read(
    "10.capacity",
    "section 10",
    Verdict.UNSUPPORTED,
    "Batch norm might lower the VC dimension by making parameters equivalent",
    "Posed as a question. Capacity is one of functions: equivalent parameters neither add nor remove any "
    "(A.9.1.capacity).",
)
claims.trained(
    "9.5.combined",
    "section 9.5",
    Verdict.UNSUPPORTED,
    "Batch norm combines with dropout, momentum and Adam to advantage",
    "Asked as an open question. Without dropout batch norm tests 1 to 7 points lower under SGD, momentum and Adam; "
    "dropout 0.5 changes that to −2 to +1.",
    "akbar2025/combined",
)
