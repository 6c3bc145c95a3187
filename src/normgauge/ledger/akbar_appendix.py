"""Claims of Akbar's appendix: derivatives of batch norm (A.1.1) and the Hessian at a solution (A.1.2)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.claim import Verdict
from normgauge.ledger.claim import Family, equal, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian
from normgauge.ledger.losses import (
    Found,
    Unit,
    batch_backward,
    gradient,
    hessian,
    project,
    size,
    standardize,
)

claims = Family("A", "Akbar")


@claims.add(
    "A.1.1",
    "appendix A.1.1",
    Verdict.WRONG,
    "The derivative of a normalized value ẑ_n in z_k is 1[n=k]/σ − 1/(mσ) − y_n y_k/σ³ with y = z − mean",
    "The last term is y_n y_k/(mσ³).",
)
def normalized_derivative(draw: Draw) -> Found:
    """The dense Jacobian of the normalization against both forms."""
    m, eps = draw.integer(3, 9), float(draw.uniform(1, high=0.3))
    z, probe = draw.normal(m) * 2, draw.normal(m, m)
    truth = jacobian(lambda z: standardize(z, eps), z)
    y, sigma = z - z.mean(), math.sqrt(float(z.var(unbiased=False)) + eps)
    first = torch.eye(m, dtype=torch.float64) / sigma - 1 / (m * sigma)
    printed, right = first - torch.outer(y, y) / sigma**3, first - torch.outer(y, y) / (m * sigma**3)
    yield refutes("Jacobian: relative error of the printed form", size(truth - printed) / size(truth), published=0.0)
    yield equal("Jacobian against a random matrix", project(truth, probe), predicted=project(right, probe))


@claims.add(
    "A.1.1.final",
    "appendix A.1.1, last display",
    Verdict.HOLDS,
    "With the gain, the gradient in front of batch norm is (γ/σ)[δ − mean δ − ẑ·mean(δẑ)]",
    "Right, though it does not follow from the line above it, which lacks a 1/m.",
)
def final_gradient(draw: Draw) -> Found:
    """Autograd against the last display."""
    z, delta, truth, gamma, eps = batch_backward(draw)
    hat, probe = standardize(z, eps), draw.normal(len(z))
    sigma = math.sqrt(float(z.var(unbiased=False)) + eps)
    right = gamma / sigma * (delta - delta.mean() - hat * (delta * hat).mean())
    yield equal("gradient along a random direction", project(truth, probe), predicted=project(right, probe))


@claims.add(
    "A.1.1.weights",
    "appendix A.1.1",
    Verdict.HOLDS,
    "The gradient in the weights is what it was without batch norm, less a mean and a correlation term, times γ/σ",
    "Exact; the mean term is 0 for centred inputs, and the product with w is 0 at ε = 0.",
)
def weight_gradient(draw: Draw) -> Found:
    """Autograd in w against the three terms; then centred inputs; then the product with w."""
    m, n, gamma = draw.integer(5, 10), draw.integer(2, 5), float(draw.uniform(1, low=1.3, high=3.0))
    x, w, slope, probe = draw.normal(m, n) + 1, draw.normal(n), draw.normal(m), draw.normal(n)

    def after(a: Tensor) -> Tensor:
        return (slope * torch.sin(a)).sum()

    for inputs, name in ((x, "any inputs"), (x - x.mean(0), "centred inputs")):
        delta = gradient(after, gamma * standardize(inputs @ w))
        truth = gradient(lambda w, i=inputs: after(gamma * standardize(i @ w)), w)  # type: ignore[misc]
        hat, sigma = standardize(inputs @ w), float((inputs @ w).std(unbiased=False))
        mean = delta.mean() * inputs.sum(0) if name == "any inputs" else 0.0
        right = gamma / sigma * (delta @ inputs - mean - (delta * hat).mean() * (hat @ inputs))
        yield equal(f"gradient in w, {name}", project(truth, probe), predicted=project(right, probe))
        yield equal(f"product with w, {name}", truth @ w, predicted=0.0, scale=size(truth) * size(w))


def _in_z(draw: Draw, eps: float) -> tuple[Tensor, Tensor, float, float]:
    """Values z of one unit, the Hessian in z of ½Σ(a − t)² where a = t, the gain, and σ²+ε."""
    m, gamma = draw.integer(4, 12), float(draw.uniform(1, low=0.5, high=2.0))
    z = draw.normal(m)
    target = gamma * standardize(z, eps)
    H = hessian(lambda z: 0.5 * (gamma * standardize(z, eps) - target).square().sum(), z)
    return z, H, gamma, float(z.var(unbiased=False)) + eps


@claims.add(
    "A.1.2",
    "appendix A.1.2",
    Verdict.WRONG,
    "At a solution, the Hessian in front of batch norm has the eigenvalue (γ²/σ²)(1 − m) along ẑ",
    "(γ²/σ_ε²)(ε/σ_ε²)² along ẑ, 0 at ε = 0; 0 along 1; γ²/σ_ε² for the m − 2 others. None is negative.",
)
def solution_spectrum(draw: Draw) -> Found:
    """Curvature along ẑ, and all eigenvalues."""
    eps = float(draw.uniform(1, low=0.05, high=0.5))
    z, H, gamma, sigma2 = _in_z(draw, eps)
    hat, m = standardize(z), len(z)
    along = float(hat @ H @ hat / (hat @ hat))
    yield refutes("curvature along ẑ", along, published=gamma**2 / sigma2 * (1 - m))
    yield equal("curvature along ẑ", along, predicted=gamma**2 / sigma2 * (eps / sigma2) ** 2)
    values = torch.linalg.eigvalsh(H)
    yield equal("smallest eigenvalue", values[0], predicted=0.0, scale=float(values[-1]))
    yield equal("third smallest eigenvalue", values[2], predicted=gamma**2 / sigma2)
    yield equal("largest eigenvalue", values[-1], predicted=gamma**2 / sigma2)


@claims.add(
    "A.1.2.gain",
    "appendix A.1.2",
    Verdict.WRONG,
    "The direction ẑ is flat only because the gain γ adjusts",
    "It is flat with γ held fixed (ε = 0). γ alone is not flat: its curvature is Σẑ² = m.",
)
def gain_fixed(draw: Draw) -> Found:
    """Curvature along ẑ with the gain fixed; curvature of the gain."""
    z, H, gamma, sigma2 = _in_z(draw, 0.0)
    hat, m = standardize(z), len(z)
    along = float(hat @ H @ hat / (hat @ hat))
    yield refutes("curvature along ẑ, γ fixed", along, published=gamma**2 / sigma2 * (1 - m))
    yield equal("curvature along ẑ, γ fixed", along, predicted=0.0, scale=gamma**2 / sigma2)
    start = torch.full((1,), gamma, dtype=torch.float64)
    own = hessian(lambda g: 0.5 * (g * hat - gamma * hat).square().sum(), start)
    yield equal("curvature of the gain", float(own), predicted=m)


@claims.add(
    "A.1.2.count",
    "appendix A.1.2",
    Verdict.WRONG,
    "In the n weights of a unit there are n − 1 positive eigenvalues",
    "rank of the centred inputs, less one: fewer for small batches, m − 2.",
)
def positive_count(draw: Draw) -> Found:
    """Positive eigenvalues with fewer samples than weights, and with more."""
    n = draw.integer(6, 9)
    for m, rank in ((draw.integer(4, 6), None), (4 * n, n)):
        x, w = draw.normal(m, n), draw.normal(n)
        values = torch.linalg.eigvalsh(hessian(Unit(x, x[:, 0]).solved(w).loss, w))
        count = int((values > 1e-8 * values[-1]).sum())
        if rank is None:
            yield refutes("positive eigenvalues, small batch", count, published=n - 1)
        yield equal(f"positive eigenvalues, {'large' if rank else 'small'} batch", count, predicted=(rank or m - 1) - 1)


@claims.add(
    "A.1.2.stationary",
    "appendix A.1.2",
    Verdict.WRONG,
    "Where Σδ = 0 and Σδẑ = 0 (optimal shift and gain) the gradient in front of batch norm is 0",
    "It is (γ/σ)δ: the two conditions only remove the corrections.",
)
def stationary(draw: Draw) -> Found:
    """A δ that satisfies both conditions, sent back through autograd."""
    m, gamma = draw.integer(4, 12), float(draw.uniform(1, low=0.5, high=2.0))
    z, probe = draw.normal(m), draw.normal(m)
    hat = standardize(z)
    delta = draw.normal(m)
    delta = delta - delta.mean() - hat * (hat @ delta) / m
    truth = gradient(lambda z: (delta * gamma * standardize(z)).sum(), z)
    yield refutes("size of the gradient", size(truth), published=0.0)
    right = gamma / float(z.std(unbiased=False)) * delta
    yield equal("gradient along a random direction", project(truth, probe), predicted=project(right, probe))
