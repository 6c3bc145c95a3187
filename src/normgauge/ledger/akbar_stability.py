"""Claims of Akbar on stable steps, saddles and convergence: sections 5.1, 5.2 and 7.1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.claim import Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds, moves, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import (
    Found,
    angle,
    descend,
    gradient,
    hessian,
    layer,
    size,
    standardize,
    unit,
)

claims = Family("A", "Akbar")


@claims.add(
    "smooth",
    "section 5.1, stability",
    Verdict.UNSUPPORTED,
    "Batch norm lowers the largest eigenvalue L of the Hessian, so that ηL < 2 allows larger steps",
    "No fixed L: it is L(w)/c² at c·w, without limit as c → 0. Short weights have more curvature than without "
    "batch norm.",
)
def not_smooth(draw: Draw) -> Found:
    """Largest eigenvalue at short weights, against its law and against that of the plain linear unit."""
    neuron, w = unit(draw)
    c = float(draw.uniform(1, low=1e-3, high=1e-2))
    w = w / w.norm()
    here, there = (float(torch.linalg.eigvalsh(hessian(neuron.loss, k * w))[-1]) for k in (1.0, c))
    plain = float(torch.linalg.eigvalsh(neuron.covariance)[-1])
    yield equal("largest eigenvalue at c·w", there, predicted=here / c**2)
    yield exceeds("largest eigenvalue with batch norm, short weights, against without", there, published=plain)


@claims.add(
    "E5.1",
    "example 5.1",
    Verdict.WRONG,
    "With batch norm the gradient stays of order 1 however long the weights are",
    "It falls like 1/‖w‖.",
)
def gradient_order(draw: Draw) -> Found:
    """Gradient at c·w over that at w."""
    neuron, w = unit(draw)
    c = float(draw.uniform(1, low=5.0, high=50.0))
    ratio = size(gradient(neuron.loss, c * w)) / size(gradient(neuron.loss, w))
    yield refutes("gradient at c·w over that at w", ratio, published=1.0)
    yield equal("gradient at c·w over that at w", ratio, predicted=1 / c)


@claims.add(
    "5.output",
    "section 5.1, stability",
    Verdict.HOLDS,
    "However long the weights of a layer get, what batch norm passes on keeps its variance",
    "γ²σ²/(σ²+ε), never above γ².",
)
def output_variance(draw: Draw) -> Found:
    """Variance behind batch norm at weights of any length."""
    gamma, eps, c = float(draw.uniform(1, low=0.5, high=2.0)), 1e-3, 10.0 ** float(draw.uniform(1, low=-2.0, high=6.0))
    z = draw.normal(draw.integer(5, 20))
    variance = float((gamma * standardize(c * z, eps)).square().mean())
    sigma2 = c**2 * float(z.var(unbiased=False))
    yield equal("variance behind batch norm", variance, predicted=gamma**2 * sigma2 / (sigma2 + eps))
    yield below("variance behind batch norm", variance, predicted=gamma**2)


@claims.add(
    "saddle",
    "section 5.1, saddle points",
    Verdict.UNSUPPORTED,
    "The noise of batch statistics pushes training off saddle points sooner or later",
    "No theorem. Units that start alike stay alike for every batch: this noise never leaves that saddle. SGD has "
    "noise anyway.",
)
def saddle_noise(draw: Draw) -> Found:
    """Two equal units under mini-batch descent; batch gradients at a full-batch optimum with and without batch norm."""
    net = layer(draw)
    twin = torch.arange(len(net.bias))
    twin[1] = 0
    net = net.using(
        weight=net.weight[twin], bias=net.bias[twin], gamma=net.gamma[twin], beta=net.beta[twin], head=net.head[:, twin]
    )
    start = net.weight
    for _ in range(20):
        rows = torch.randperm(len(net.x), generator=draw.generator)[:6]
        weight, head = net.using(x=net.x[rows], target=net.target[rows]).gradients("weight", "head")
        net = net.using(weight=net.weight - 0.05 * weight, head=net.head - 0.05 * head)
    apart = size(net.weight[1] - net.weight[0])
    yield equal("distance of the twin units after 20 steps", apart, predicted=0.0, scale=size(net.weight - start))
    neuron, _ = unit(draw)
    centred = neuron.x - neuron.x.mean(0)
    best = torch.linalg.solve(neuron.covariance, centred.T @ neuron.target)
    half = slice(0, len(neuron.x) // 2)
    plain = gradient(lambda w: (centred[half] @ w - neuron.target[half]).square().mean(), best / len(neuron.x))
    yield shown("a batch has a gradient at the optimum without batch norm too", size(plain) > 1e-6)


@claims.add(
    "5.saddle",
    "section 5.1, saddle points",
    Verdict.HOLDS,
    "Batch norm does not remove saddles: what is a saddle in the directions stays one",
    "With the same number of downward directions at every length; curvatures scale by 1/c².",
)
def saddle_stays(draw: Draw) -> Found:
    """A scale-invariant loss at an inner eigenvector: zero gradient, and its eigenvalues at two lengths."""
    n, c = draw.integer(4, 7), float(draw.uniform(1, low=2.0, high=6.0))
    values = torch.linspace(1, 2, n, dtype=torch.float64) * draw.uniform(n, low=0.98, high=1.02)
    basis, k = draw.orthogonal(n), draw.integer(1, n - 1)

    def loss(w: Tensor) -> Tensor:
        return -(w @ basis.T @ torch.diag(values) @ basis @ w) / (w @ w)

    order = values.sort().indices
    w = basis[order[k]]
    yield equal("gradient", size(gradient(loss, w)), predicted=0.0, scale=1.0)
    curvature = torch.linalg.eigvalsh(hessian(loss, c * w))
    yield equal("downward directions", int((curvature < -1e-9).sum()), predicted=n - 1 - k)
    steepest = 2 * float(values[order[-1]] - values[order[k]]) / c**2
    yield equal("most negative curvature at c·w", curvature[0], predicted=-steepest, rel=1e-8)


@claims.add(
    "5.dead",
    "section 5.1, saddle points",
    Verdict.WRONG,
    "Batch norm in front of a ReLU keeps its units from dying",
    "Only while |β| is small: a unit fires for some sample if β > −γ/√(m−1), and for none if β < −γ√(m−1). β is "
    "learned.",
)
def dead_units(draw: Draw) -> Found:
    """Units that fire somewhere in the batch, at shifts on either side of both thresholds; the extremes attained."""
    m, n, gamma = draw.integer(5, 20), 30, float(draw.uniform(1, low=0.5, high=2.0))
    z = draw.normal(m, n)
    z[:, 0] = torch.eye(m, dtype=torch.float64)[0]
    z[:, 1] = -z[:, 0]
    top = standardize(z).max(0).values

    def alive(beta: float) -> int:
        return int(((gamma * standardize(z) + beta).max(0).values > 0).sum())

    yield refutes("units alive at β = −1.01 γ√(m−1)", alive(-1.01 * gamma * math.sqrt(m - 1)), published=n)
    yield equal("units alive at β = −0.99 γ/√(m−1)", alive(-0.99 * gamma / math.sqrt(m - 1)), predicted=n)
    yield equal("largest normalized value, at most", top.max(), predicted=math.sqrt(m - 1))
    yield equal("largest normalized value of a unit, at least", top.min(), predicted=1 / math.sqrt(m - 1))


@claims.add(
    "5.sharp",
    "sections 2.3 and 5.1, large learning rates",
    Verdict.GAUGE,
    "A large learning rate cannot settle in a sharp minimum, so batch norm ends in wide ones",
    "Which rate settles depends on the length of the weights: η < 2‖w‖²/s with s the sharpness at length 1, same "
    "function.",
)
def largest_rate(draw: Draw) -> Found:
    """Largest rate at which descent returns to a minimum, by bisection, at two lengths."""
    neuron, w = unit(draw)
    u, c = w / w.norm(), 3.0
    neuron = neuron.solved(u)
    values, vectors = torch.linalg.eigh(hessian(neuron.loss, u))

    def returns(length: float, rate: float) -> bool:
        path = descend(neuron.loss, length * (u + 1e-5 * vectors[:, -1]), rate, 4)
        return max(angle(p, u) for p in path[1:]) < angle(path[0], u)

    def limit(length: float) -> float:
        low, high = 0.0, 20 * length**2 / float(values[-1])
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (middle, high) if returns(length, middle) else (low, middle)
        return low

    one, other = limit(1.0), limit(c)
    yield moves("largest rate that settles", one, other)
    yield equal("outputs at c·w", size(neuron.outputs(c * u)), predicted=size(neuron.outputs(u)))
    yield equal("largest rate that settles at c·w", other, predicted=2 * c**2 / float(values[-1]), rel=5e-3)


@claims.add(
    "5.2.origin",
    "section 5.2",
    Verdict.WRONG,
    "Without batch norm a linear classifier started near 0 learns slowly at first: the loss is flat there",
    "The loss is convex: towards its optimum it is steepest at 0, where the gradient is −mean(y·x)/2 for the "
    "logistic loss.",
)
def slope_at_origin(draw: Draw) -> Found:
    """Slope of the logistic loss along the way to a separating direction, at 0 and further out."""
    n = draw.integer(2, 5)
    direction = draw.normal(n)
    x = draw.normal(30, n)
    signed = x * (x @ direction).sign()[:, None]  # y·x, separated by the direction

    def loss(w: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-(signed @ w)).mean()

    u = direction / direction.norm()
    slopes = [-float(gradient(loss, r * u) @ u) for r in (0.0, 0.5, 2.0, 8.0)]
    yield refutes("slope at 0", slopes[0], published=0.0)
    yield equal("slope at 0", slopes[0], predicted=float(signed.mean(0) @ u) / 2)
    yield below("largest slope further out", max(slopes[1:]), predicted=slopes[0])
