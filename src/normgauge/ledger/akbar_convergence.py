"""Claims of Akbar on convergence, rates and saddles: section 7.1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.claim import Verdict
from normgauge.ledger.claim import Family, below, equal, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import (
    Found,
    descend,
    flatten,
    gradient,
    hessian,
    size,
    split,
    standardize,
)

claims = Family("A", "Akbar")


@claims.add(
    "7.1.critical",
    "section 7.1",
    Verdict.WRONG,
    "On a smooth loss with Lipschitz gradients, descent converges to a critical point",
    "It may walk for ever where there is none (logistic loss, separable data). Right: min‖∇L‖² ≤ 2L·Δ/T with η = 1/L.",
)
def no_critical_point(draw: Draw) -> Found:
    """Descent on log(1 + e^(−x)), whose gradient is 1/4-Lipschitz and nowhere 0."""
    x, rate, path, slopes = float(draw.uniform(1, low=-1.0, high=1.0)), 4.0, list[float](), list[float]()
    for _ in range(4001):
        slope = 1 / (1 + math.exp(x))
        path.append(x)
        slopes.append(slope)
        x += rate * slope
    gap = math.log1p(math.exp(-path[0]))
    yield refutes("walked between step 1000 and 4000", path[4000] - path[1000], published=0.0)
    yield equal("walked between step 1000 and 4000", path[4000] - path[1000], predicted=math.log(4.0), rel=5e-3)
    yield below("smallest squared gradient in 1000 steps", min(slopes[:1000]) ** 2, predicted=2 * 0.25 * gap / 1000)


@claims.add(
    "7.1.convex",
    "section 7.1",
    Verdict.HOLDS,
    "On convex smooth losses descent needs about κ ln(1/ε) steps, so that a smaller κ is faster",
    "For strongly convex ones: the error falls by 1 − 1/κ a step at worst with η = 1/L, and this is attained.",
)
def convex_rate(draw: Draw) -> Found:
    """Descent on a quadratic, from the slowest eigenvector and from anywhere."""
    n, kappa, steps = draw.integer(3, 7), float(draw.uniform(1, low=5.0, high=50.0)), 20
    values = torch.cat([torch.tensor([1.0, kappa]).double(), draw.uniform(n - 2, low=1.0, high=kappa)])
    basis = draw.orthogonal(n)

    def loss(w: Tensor) -> Tensor:
        return 0.5 * (values * (basis @ w).square()).sum()

    slow, start = descend(loss, basis[0], 1 / kappa, steps), draw.normal(n)
    yield equal("error after 20 steps, worst start", size(slow[-1]), predicted=(1 - 1 / kappa) ** steps)
    anywhere = size(descend(loss, start, 1 / kappa, steps)[-1])
    yield below("error after 20 steps, any start", anywhere, predicted=(1 - 1 / kappa) ** steps * size(start))


@claims.add(
    "linear",
    "section 7.1",
    Verdict.WRONG,
    "Ill-conditioning makes plain descent sublinear, and batch norm makes it linear",
    "Descent on an ill-conditioned strongly convex loss is linear: late errors fall by the same factor 1 − μ/L "
    "each step.",
)
def linear_anyway(draw: Draw) -> Found:
    """Ratio of successive errors late in a descent; sublinear would mean that it tends to 1."""
    n, kappa = draw.integer(3, 6), float(draw.uniform(1, low=20.0, high=100.0))
    values = torch.cat([torch.tensor([1.0, kappa]).double(), draw.uniform(n - 2, low=kappa / 3, high=kappa)])
    path = descend(lambda w: 0.5 * (values * w.square()).sum(), draw.normal(n), 1 / kappa, 150)
    ratio = size(path[-1]) / size(path[-2])
    yield refutes("error over the error before, late", ratio, published=1.0)
    yield equal("error over the error before, late", ratio, predicted=1 - 1 / kappa, rel=1e-6)


@claims.add(
    "7.1.strict",
    "section 7.1",
    Verdict.UNSUPPORTED,
    "With batch or layer norm, descent almost surely avoids strict saddles",
    "True without any normalizer (Lee et al. 2016): plain descent leaves a strict saddle at the rate 1 + η|λ|.",
)
def strict_saddle(draw: Draw) -> Found:
    """Plain descent from a random point near a saddle."""
    down, rate = float(draw.uniform(1, low=0.2, high=1.0)), 0.3
    start = 1e-6 * draw.normal(2)
    path = descend(lambda w: 0.5 * (w[0] ** 2 - down * w[1] ** 2), start, rate, 60)
    yield equal("distance along the downward direction", path[-1, 1] / start[1], predicted=(1 + rate * down) ** 60)
    yield shown("it leaves the saddle", abs(float(path[-1, 1])) > 10 * abs(float(start[1])))


@claims.add(
    "7.1.deep",
    "section 7.1",
    Verdict.WRONG,
    "In linear networks batch norm removes the bad saddles: every critical point is a global minimum up to scale",
    "One unit, two outputs: each generalized eigenvector of (CCᵀ, Σ) is critical; the second is a saddle (λ₁ − "
    "λ₂)/2 too high.",
)
def deep_saddle(draw: Draw) -> Found:
    """Gradient, loss gap and smallest eigenvalue at the second generalized eigenvector."""
    n, m = draw.integer(3, 6), 30
    x, y = draw.normal(m, n), draw.normal(m, 2)
    x, y = x - x.mean(0), y - y.mean(0)
    sigma, cross = x.T @ x / m, x.T @ y / m
    root = torch.linalg.cholesky(sigma)
    values, vectors = torch.linalg.eigh(torch.linalg.solve(root, cross) @ torch.linalg.solve(root, cross).T)

    def loss(flat: Tensor) -> Tensor:
        w, head = split(flat, (x[0], y[0]))
        return 0.5 * (standardize(x @ w)[:, None] * head - y).square().sum(1).mean()

    def critical(k: int) -> Tensor:
        w = torch.linalg.solve(root.T, vectors[:, k])  # wᵀΣw = 1, so that the best head is Cᵀw
        return flatten(w, cross.T @ w)

    second, gap = critical(-2), float(loss(critical(-2)) - loss(critical(-1)))
    yield refutes("loss at a critical point above the best", gap, published=0.0)
    yield equal("loss at a critical point above the best", gap, predicted=float(values[-1] - values[-2]) / 2, rel=1e-7)
    yield equal("gradient there", size(gradient(loss, second)), predicted=0.0, scale=1.0)
    yield shown("it is a saddle", float(torch.linalg.eigvalsh(hessian(loss, second))[0]) < -1e-9)


@claims.add(
    "7.1.saturate",
    "section 7.1, plateaus",
    Verdict.UNSUPPORTED,
    "Batch norm keeps units out of saturation and so avoids plateaus",
    "Its gain is learned: behind γẑ the mean slope of tanh falls like 1/γ for large γ; nothing bounds γ.",
)
def saturation(draw: Draw) -> Found:
    """Mean slope of tanh behind batch norm on a bell-shaped batch, at a gain and at ten times it."""
    m, gamma = 40_001, float(draw.uniform(1, low=20.0, high=40.0))
    z = torch.erfinv(torch.linspace(-1, 1, m + 2, dtype=torch.float64)[1:-1])

    def slope(gamma: float) -> float:
        return float((1 - torch.tanh(gamma * standardize(z)) ** 2).mean())

    yield equal("mean slope at gain γ", slope(gamma), predicted=2 / (math.sqrt(2 * math.pi) * gamma), rel=1e-2)
    yield below("mean slope at gain 10γ", slope(10 * gamma), predicted=slope(gamma) / 5)
