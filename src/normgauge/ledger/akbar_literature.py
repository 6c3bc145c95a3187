"""Claims Akbar makes on earlier work: sections 1 and 2."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.claim import Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import (
    Found,
    angle,
    descend,
    gradient,
    hessian,
    project,
    size,
    standardize,
    unit,
)

claims = Family("A", "Akbar")


@claims.add(
    "2.3.santurkar",
    "sections 1.1 and 2.3, on Santurkar et al. 2018",
    Verdict.UNSUPPORTED,
    "Batch norm makes the loss smoother: its gradients are smaller and change less",
    "In front of it the squared gradient is (γ²/σ²)(‖δ‖² − (Σδ)²/m − (Σδẑ)²/m): smaller only where σ is large enough.",
)
def smoother(draw: Draw) -> Found:
    """Gradient in front of batch norm against that of the same signal without it, at small σ; and its law."""
    m, sigma = draw.integer(8, 14), float(draw.uniform(1, low=0.005, high=0.05))
    gamma = float(draw.uniform(1, low=0.5, high=2.0))
    z, delta = sigma * standardize(draw.normal(m)), draw.normal(m)
    hat = standardize(z)
    squared = size(gradient(lambda z: (delta * gamma * standardize(z)).sum(), z)) ** 2
    law = float(delta @ delta - delta.sum() ** 2 / m - (delta @ hat) ** 2 / m)
    yield equal("squared gradient", squared, predicted=gamma**2 / sigma**2 * law)
    yield exceeds("squared gradient, against that without batch norm", squared, published=size(delta) ** 2)


@claims.add(
    "2.3.limit",
    "section 2.3",
    Verdict.WRONG,
    "Outside the invariant directions batch norm limits the curvature",
    "There is no limit: the same directions have curvature 1/c² as large at c·w.",
)
def no_limit(draw: Draw) -> Found:
    """Curvature of a tangent direction at shorter and shorter weights."""
    neuron, w = unit(draw)
    neuron, u = neuron.solved(w), draw.normal(len(w))
    c = float(draw.uniform(1, low=1e-3, high=1e-2))
    here, there = (float(u @ hessian(neuron.loss, k * w) @ u) for k in (1.0, c))
    yield refutes("curvature at c·w over that at w", there / here, published=1.0)
    yield equal("curvature at c·w over that at w", there / here, predicted=1 / c**2, rel=1e-7)


@claims.add(
    "2.3.bjorck",
    "sections 1.1 and 2.3, on Bjorck et al. 2018",
    Verdict.HOLDS,
    "Batch norm allows learning rates at which plain descent diverges",
    "In normalized weights no rate diverges: a too large step only lengthens them, to about ηG, and so shrinks "
    "the next.",
)
def any_rate(draw: Draw) -> Found:
    """Descent at a hundred times the limit of the plain linear fit, with batch norm and without."""
    neuron, w = unit(draw)
    w = w / w.norm()
    rate = 200 / float(torch.linalg.eigvalsh(neuron.covariance)[-1])
    centred = neuron.x - neuron.x.mean(0)
    plain = descend(lambda w: 0.5 * (centred @ w - neuron.target).square().mean(), w, rate, 12)
    path = descend(neuron.loss, w, rate, 200)
    yield shown("without batch norm it diverges", size(plain[-1]) > 1e6)
    worst = float(0.5 * (neuron.gamma + neuron.target.square().mean().sqrt()) ** 2)
    yield below("largest loss with batch norm", max(float(neuron.loss(p)) for p in path), predicted=worst)
    yield below(
        "turn of the last step, against the first", angle(path[-1], path[-2]), predicted=angle(path[1], path[0]) / 2
    )
    first = math.sqrt(1 + rate**2 * size(gradient(neuron.loss, w)) ** 2)
    yield equal("length after the first step", size(path[1]), predicted=first)


claims.trained(
    "2.3.rate",
    "sections 1.1, 2.3 and 7.1, on Bjorck et al. 2018",
    Verdict.UNSUPPORTED,
    "The main benefit of batch norm is a much larger learning rate; without it the same accuracy takes far longer",
    "Largest stable rates: 0.59 with and 0.62 without, 0.9 to 2.0 times over 11 settings; what is the main benefit is "
    "an opinion.",
    "akbar2025/stable",
)


@claims.add(
    "2.3.valley",
    "section 2.3",
    Verdict.HOLDS,
    "With batch norm every minimum is part of a flat valley",
    "The whole ray of a minimum is one; across the valley the curvature can be anything, see A.6.flat.",
)
def valley(draw: Draw) -> Found:
    """Loss and gradient along the ray of a minimum, and curvature along it."""
    neuron, w = unit(draw)
    neuron, c = neuron.solved(w), float(draw.uniform(1, low=0.2, high=5.0))
    yield equal("loss on the ray", neuron.loss(c * w), predicted=0.0, scale=1.0)
    H = hessian(neuron.loss, c * w)
    yield equal("curvature along the ray", size(H @ w), predicted=0.0, scale=size(H) * size(w))
    yield shown("curvature across it", float(torch.linalg.eigvalsh(H)[-1]) > 1e-6)


@claims.add(
    "2.3.cholee",
    "section 2.3, on Cho and Lee 2017",
    Verdict.HOLDS,
    "Descent on the sphere of directions removes the ambiguity of scale",
    "One step: descent from w with rate η turns like a sphere step (add, then rescale) with rate η/‖w‖².",
    backs=["normgauge.dynamics.sphere_sgd.SphereSGD"],
)
def sphere_step(draw: Draw) -> Found:
    """Direction after a step in space and after one on the sphere."""
    neuron, w = unit(draw)
    rate, probe, u = float(draw.uniform(1, low=0.2, high=2.0)), draw.normal(len(w)), w / w.norm()
    after = w - rate * gradient(neuron.loss, w)
    sphere = u - rate / float(w @ w) * gradient(neuron.loss, u)
    yield equal(
        "direction after a step", project(after / after.norm(), probe), predicted=project(sphere / sphere.norm(), probe)
    )


@claims.add(
    "2.3.amari",
    "section 2.3, natural gradient",
    Verdict.HOLDS,
    "The natural gradient follows the geometry of the outputs instead of that of the parameters",
    "Its step, mapped back, is the same in every parametrization; a plain gradient step is not.",
)
def reparametrization(draw: Draw) -> Found:
    """One step of a linear fit in w and in p with w = A·p."""
    n = draw.integer(2, 5)
    x, y, w, mix, probe = (
        draw.normal(20, n),
        draw.normal(20),
        draw.normal(n),
        draw.normal(n, n) + 2 * torch.eye(n).double(),
        draw.normal(n),
    )
    fisher, grad = x.T @ x / 20, x.T @ (x @ w - y) / 20
    step = torch.linalg.solve(fisher, grad)
    mapped = mix @ torch.linalg.solve(mix.T @ fisher @ mix, mix.T @ grad)
    yield equal(
        "natural step through another parametrization", project(mapped, probe), predicted=project(step, probe), rel=1e-7
    )
    yield shown("a plain step differs", size(mix @ mix.T @ grad - grad) > 1e-3 * size(grad))


@claims.add(
    "2.3.kohler",
    "section 2.3, on Kohler et al. 2019",
    Verdict.UNSUPPORTED,
    "Global convergence was proved for a residual network with batch norm at infinite width",
    "Their proofs are for least squares and halfspaces with Gaussian inputs. One unit: gaps fall by (1−1/κ)² a step.",
)
def kohler(draw: Draw) -> Found:
    """Descent on the least-squares loss of one unit with its best gain, step q/(2L|ρ|).

    ρ(w) = −(u·w)²/(wᵀSw). With this step the new direction is that of a plain descent step from w scaled to its best
    length, so that the gap shrinks at least as fast as there. Derived here.
    """
    neuron, w = unit(draw)
    s, u = neuron.covariance, (neuron.x - neuron.x.mean(0)).T @ neuron.target / len(neuron.x)
    values = torch.linalg.eigvalsh(s)

    def rho(w: Tensor) -> Tensor:
        return -((u @ w) ** 2) / (w @ s @ w)

    def step(w: Tensor) -> Tensor:
        return w - float(w @ s @ w) / (2 * float(values[-1]) * abs(float(rho(w)))) * gradient(rho, w)

    scaled, after, probe = w * float(u @ w) / float(w @ s @ w), step(w), draw.normal(len(w))
    plain = scaled - (s @ scaled - u) / values[-1]
    turned = project(after / after.norm(), probe) * float((u @ w).sign())
    yield equal("direction after a step", turned, predicted=project(plain / plain.norm(), probe), rel=1e-8)
    best, start = -float(u @ torch.linalg.solve(s, u)), float(rho(w))
    for _ in range(8):
        w = step(w)
    shrink = float(1 - values[0] / values[-1]) ** (2 * 8)
    yield below("gap after 8 steps", float(rho(w)) - best, predicted=shrink * (start - best))


@claims.add(
    "2.4.partition",
    "section 2.4, on Balestriero and Baraniuk 2023",
    Verdict.HOLDS,
    "Batch norm fits the boundaries of ReLU units to the data without labels",
    "Its mean is the offset that minimizes the squared distances from the samples to the unit's hyperplane.",
)
def partition(draw: Draw) -> Found:
    """Sum of squared distances to the hyperplane w·x = μ, against that at any other offset, exactly."""
    neuron, w = unit(draw)
    z, shift = neuron.x @ w, float(draw.uniform(1, low=0.1, high=3.0))
    m = len(z)

    def distances(offset: float) -> float:
        return float(((z - offset) / w.norm()).square().sum())

    mean = float(z.mean())
    extra = m * shift**2 / float(w @ w)
    yield equal("distances at another offset", distances(mean + shift), predicted=distances(mean) + extra)
    yield below("distances at the batch mean", distances(mean), predicted=distances(mean + shift))


claims.read(
    "2.4.path",
    "section 2.4",
    Verdict.UNSUPPORTED,
    "Batch norm generalizes through the path training takes rather than through regularization of the function",
    "An explanation; it names no quantity that a small instance could decide.",
)
claims.trained(
    "2.4.noise",
    "sections 2.4 and 7.2",
    Verdict.UNSUPPORTED,
    "The noise of batch statistics acts like dropout",
    "Its variance over that of the samples is 1.1, 0.2 and 0.1 at batch 4, 32 and 256 before training, 8.9, 0.8 and "
    "0.35 after; no theorem is given.",
    "akbar2025/noise",
)
claims.read(
    "references",
    "list of references",
    Verdict.UNSUPPORTED,
    "37 references",
    "Several have wrong authors, initials or venues; they are not to be copied. Nothing to compute.",
)
