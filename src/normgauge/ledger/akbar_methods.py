"""Claims Akbar makes on other normalizers and their papers: sections 2.1 and 2.2."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Verdict
from normgauge.ledger.claim import Family, equal, moves, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import (
    Found,
    flatten,
    gradient,
    hessian,
    nullity,
    project,
    size,
    standardize,
    unit,
)

claims = Family("A", "Akbar")


@claims.add(
    "2.1.identity",
    "section 2.1, on Ioffe and Szegedy 2015",
    Verdict.HOLDS,
    "Gain and shift let batch norm be the identity where that is best",
    "γ = √(σ²+ε), β = mean; on one batch at a time.",
)
def identity(draw: Draw) -> Found:
    """Output with that gain and shift."""
    m, eps = draw.integer(3, 9), float(draw.uniform(1, low=1e-5, high=0.3))
    z, probe = draw.normal(m, 1) * 3, draw.normal(m, 1)
    gain, shift = (z.var(unbiased=False) + eps).sqrt(), z.mean()
    out = F.batch_norm(z, None, None, gain[None], shift[None], training=True, eps=eps)
    yield equal("output", project(out, probe), predicted=project(z, probe))


@claims.add(
    "2.1.gain",
    "section 2.1, on Ioffe and Szegedy 2015",
    Verdict.WRONG,
    "Multiplying the weights and dividing the gain by the same factor leaves the output of batch norm alone",
    "The weights alone may be multiplied; dividing the gain divides the output.",
)
def gain_too(draw: Draw) -> Found:
    """Size of the output in both cases."""
    z, c, gamma = draw.normal(8), float(draw.uniform(1, low=1.5, high=5.0)), 1.3
    printed = size(gamma / c * standardize(c * z))
    yield refutes("size of the output", printed, published=size(gamma * standardize(z)))
    yield equal("size of the output", printed, predicted=gamma / c * math.sqrt(8.0))
    yield equal("size with the gain kept", size(gamma * standardize(c * z)), predicted=gamma * math.sqrt(8.0))


@claims.add(
    "2.1.ambiguous",
    "section 2.1, on Cho and Lee 2017",
    Verdict.HOLDS,
    "Weights of different length give the same outputs and gradients of different size",
    "Relative steps η‖∇L‖/‖w‖ differ by 1/c².",
)
def ambiguous(draw: Draw) -> Found:
    """Outputs and relative steps at w and c·w."""
    neuron, w = unit(draw)
    c = float(draw.uniform(1, low=0.1, high=10.0))
    yield equal("outputs", size(neuron.outputs(c * w) - neuron.outputs(w)), predicted=0.0, scale=1.0)
    here, there = (size(gradient(neuron.loss, k * w)) / size(k * w) for k in (1.0, c))
    yield equal("relative step at c·w", there, predicted=here / c**2)


@claims.add(
    "2.2.conditioning",
    "section 2.2, on Salimans and Kingma 2016",
    Verdict.GAUGE,
    "Weight norm improves the conditioning of the problem",
    "Its condition number depends on the length of v, which is free: same weight, another κ.",
)
def weight_norm_conditioning(draw: Draw) -> Found:
    """Condition number in (v, g) at the optimum of a linear fit, for v and for c·v."""
    neuron, w = unit(draw)

    def loss(flat: Tensor) -> Tensor:
        weight = flat[-1] * flat[:-1] / flat[:-1].norm()
        return 0.5 * ((neuron.x @ (weight - w)) ** 2).mean()

    def kappa(c: float) -> float:
        values = torch.linalg.eigvalsh(hessian(loss, flatten(c * w, w.norm()[None])))
        return float(values[-1] / values[1])  # one zero, along v

    yield moves("condition number in (v, g)", kappa(1.0), kappa(12.0))
    yield equal("loss at (c·v, g)", loss(flatten(12.0 * w, w.norm()[None])), predicted=0.0, scale=1.0)


@claims.add(
    "2.2.activations",
    "section 2.2",
    Verdict.HOLDS,
    "Weight norm does not standardize activations, only the length of the weights",
    "The variance behind it is g²·v̂ᵀΣv̂, whatever the inputs give.",
)
def no_unit_variance(draw: Draw) -> Found:
    """Variance of the pre-activation."""
    neuron, v = unit(draw)
    g = float(draw.uniform(1, low=0.5, high=3.0))
    variance = float((neuron.x @ (g * v / v.norm())).var(unbiased=False))
    yield equal("variance", variance, predicted=g**2 * float(v @ neuron.covariance @ v) / float(v @ v))


@claims.add(
    "2.2.group",
    "section 2.2, on Wu and He 2018",
    Verdict.HOLDS,
    "Group norm stands between layer norm and batch norm: it is invariant to scales of whole groups",
    "Each group has its scale and n_in + 1 shifts.",
)
def group_norm(draw: Draw) -> Found:
    """Idle directions of the weights and biases in front of F.group_norm at a tiny ε."""
    groups, each, d = draw.integer(1, 4), draw.integer(3, 5), draw.integer(2, 4)
    x, start = draw.normal(25, d), draw.normal(groups * each, d + 1)

    def normalized(flat: Tensor) -> Tensor:
        p = flat.reshape(start.shape)
        z = (x @ p[:, :-1].T + p[:, -1]).reshape(len(x) * groups, each)
        return standardize(z, dim=1)

    yield equal("idle directions", nullity(normalized, start.reshape(-1)), predicted=groups * (1 + d + 1))
    z, probe = x @ start[:, :-1].T, draw.normal(25, groups * each)
    ours = standardize(z.reshape(-1, each), 1e-5, dim=1).reshape(z.shape)
    yield equal("torch's group norm", project(F.group_norm(z, groups), probe), predicted=project(ours, probe))


claims.read(
    "2.2.batch",
    "section 2.2, on Wu and He 2018",
    Verdict.UNSUPPORTED,
    "That group norm works as well shows that the effect of batch norm is geometric and not due to batches",
    "A comparison of trained networks by others; one method working does not say why another does.",
)


@claims.add(
    "2.2.instance",
    "section 2.2",
    Verdict.HOLDS,
    "Instance norm is layer norm applied to each channel of each sample",
    "Exact.",
)
def instance_norm(draw: Draw) -> Found:
    """torch's instance norm against layer norm over the pixels of a channel."""
    x = draw.normal(2, draw.integer(2, 5), draw.integer(2, 5), 3)
    probe = draw.normal(*x.shape)
    yield equal("output", project(F.instance_norm(x), probe), predicted=project(F.layer_norm(x, x.shape[2:]), probe))


@claims.add(
    "2.2.renorm",
    "section 2.2, on Ioffe 2017",
    Verdict.HOLDS,
    "Batch renormalization corrects batch statistics towards those of the population",
    "With r = σ_B/σ and d = (μ_B−μ)/σ unclipped it gives exactly the eval output on the train batch.",
)
def renormalization(draw: Draw) -> Found:
    """ẑ·r + d against (z − μ)/σ."""
    z, probe = draw.normal(draw.integer(3, 9)), draw.normal(9)
    probe, mean, sigma = probe[: len(z)], float(draw.normal(1)), float(draw.uniform(1, low=0.5, high=2.0))
    r, d = float(z.std(unbiased=False)) / sigma, (float(z.mean()) - mean) / sigma
    yield equal("output", project(standardize(z) * r + d, probe), predicted=project((z - mean) / sigma, probe))


claims.read(
    "2.2.propagation",
    "section 2.2, on Arpit et al. 2016",
    Verdict.UNSUPPORTED,
    "Normalization propagation implies how scalings cancel through layers",
    "A remark on another paper; no statement that could be computed.",
)
