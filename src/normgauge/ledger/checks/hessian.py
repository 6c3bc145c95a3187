"""Checks: the Hessian behind a normalizer, conditioning, and the appendix on gradients and curvature."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.claim import Curve
from normgauge.ledger import losses
from normgauge.ledger.claim import Found, below, equal, exceeds, moves, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian
from normgauge.ledger.losses import flatten, gradient, hessian, nullity, project, size, split, standardize, unit


def level(draw: Draw, low: float, high: float) -> float:
    return float(draw.uniform(1, low=low, high=high))


def lowest(matrix: Tensor) -> float:
    return float(torch.linalg.eigvalsh(matrix)[0])


def radial_eigenvalue(draw: Draw) -> Found:
    def at(theta: float, r: float) -> Tensor:
        point = r * torch.tensor([math.sin(theta), math.cos(theta)], dtype=torch.float64)
        return torch.linalg.eigvalsh(hessian(lambda w: w[0] / w.norm(), point))

    r = level(draw, 0.5, 2.0)
    yield refutes("smaller eigenvalue, L = w₁/‖w‖ at (0, r)", at(0.0, r)[0], published=0.0)
    yield equal("smaller eigenvalue, L = w₁/‖w‖ at (0, r)", at(0.0, r)[0], predicted=-1 / r**2)
    neuron, w = unit(draw)
    grad, H, probe = gradient(neuron.loss, w), hessian(neuron.loss, w), draw.normal(len(w))
    yield equal("H·w", project(H @ w, probe), predicted=-project(grad, probe))
    yield equal("wᵀHw", w @ H @ w, predicted=0.0, scale=size(H) * size(w) ** 2)
    turns = tuple(2 * math.pi * k / 36 for k in range(37))
    low, high = (tuple(float(at(t, 1.0)[k]) for t in turns) for k in (0, 1))
    lines = (("smaller", low), ("larger", high), ("published for the radius", (0.0,) * len(turns)))
    yield Curve("Hessian eigenvalues of a loss that depends on the angle alone", "angle", "eigenvalue", turns, lines)


def cross_terms(draw: Draw) -> Found:
    neuron, w = unit(draw)
    grad, u = gradient(neuron.loss, w), draw.normal(len(w))
    yield equal("uᵀHw", u @ hessian(neuron.loss, w) @ w, predicted=-float(u @ grad))
    solved = hessian(neuron.solved(w).loss, w)
    yield equal("uᵀHw at a minimum", u @ solved @ w, predicted=0.0, scale=size(solved))


def forced_negative(draw: Draw) -> Found:
    for n, compare, name in ((0, below, "any dimension"), (2, equal, "two dimensions")):
        neuron, w = unit(draw, n=n)
        grad, H = gradient(neuron.loss, w), hessian(neuron.loss, w)
        h, pull = float(grad @ H @ grad) / size(grad) ** 2, size(grad) / size(w)
        bound = (h - math.sqrt(h**2 + 4 * pull**2)) / 2
        yield compare(f"smallest eigenvalue, {name}", lowest(H), predicted=bound)
    yield shown("it is negative", bound < 0)


def unit_hessian(draw: Draw) -> Found:
    neuron, w = unit(draw)
    neuron, probe = neuron.solved(w), draw.normal(len(w), len(w))
    H, s, q = hessian(neuron.loss, w), neuron.covariance, float(w @ neuron.covariance @ w)
    frozen = neuron.gamma**2 / q * s
    right = frozen - neuron.gamma**2 / q**2 * torch.outer(s @ w, s @ w)
    yield equal("Hessian against a random matrix", project(H, probe), predicted=project(right, probe), rel=1e-8)
    yield below("most by which it exceeds that with fixed statistics", -lowest(frozen - H) / size(H), predicted=1e-12)
    one = hessian(lambda v: 0.5 * (neuron.outputs(v)[0] - neuron.target[0]).square(), w)
    for matrix, name, rank in ((one, "one sample", 1), (H, "the batch", len(w) - 1)):
        values = torch.linalg.eigvalsh(matrix)
        yield equal(f"rank, {name}", int((values.abs() > 1e-9 * values[-1]).sum()), predicted=rank)


def interlacing(draw: Draw) -> Found:
    neuron, w = unit(draw, n=draw.integer(3, 7))

    def spectra(w: Tensor) -> tuple[Tensor, Tensor]:
        scale = neuron.gamma**2 / float(w @ neuron.covariance @ w)
        after = torch.linalg.eigvalsh(hessian(neuron.solved(w).loss, w))[1:]
        return after, scale * torch.linalg.eigvalsh(neuron.covariance)

    after, before = spectra(w)
    yield below("condition number with batch norm", after[-1] / after[0], predicted=float(before[-1] / before[0]))
    yield below("largest shortfall below the next eigenvalue without", (before[:-1] - after).max(), predicted=0.0)
    yield below("largest excess over the same eigenvalue without", (after - before[1:]).max(), predicted=0.0)
    after, before = spectra(torch.linalg.eigh(neuron.covariance)[1][:, 1])
    kappa = float(before[-1] / before[0])
    yield equal("condition number, w along an inner axis", after[-1] / after[0], predicted=kappa, rel=1e-7)


def largest_eigenvalue(draw: Draw) -> Found:
    neuron, w = unit(draw)
    w, c = w / size(w), 10 ** level(draw, 2.0, 3.0)
    here, long, short = (float(torch.linalg.eigvalsh(hessian(neuron.loss, k * w))[-1]) for k in (1.0, c, 1 / c))
    plain = float(torch.linalg.eigvalsh(neuron.covariance)[-1])
    yield moves("largest eigenvalue", here, long)
    yield equal("outputs at c·w", size(neuron.outputs(c * w)), predicted=size(neuron.outputs(w)))
    yield equal("‖w‖² times the largest eigenvalue", c**2 * long, predicted=here)
    yield shown("above that without batch norm for short weights, below it for long ones", long < plain < short)


def trace_moves(draw: Draw) -> Found:
    neuron, w = unit(draw)
    neuron, c = neuron.solved(w), level(draw, 3.0, 10.0)
    here, there = (float(hessian(neuron.loss, k * w).trace()) for k in (1.0, c))
    yield moves("trace at the minimum", here, there)
    yield equal("loss there", neuron.loss(c * w), predicted=0.0, scale=1.0)
    yield equal("trace at c·w", there, predicted=here / c**2, rel=1e-8)


def decay_eigenvalue(draw: Draw) -> Found:
    neuron, w = unit(draw)
    neuron, decay, short = neuron.solved(w), 1e-4 * level(draw, 0.5, 2.0), level(draw, 0.05, 0.5)

    def objective(w: Tensor) -> Tensor:
        return neuron.loss(w) + decay / 2 * w.square().sum()

    yield equal("curvature along w", w @ hessian(objective, w) @ w / size(w) ** 2, predicted=decay, rel=1e-6)
    yield equal("objective at a shorter w", objective(short * w), predicted=decay / 2 * short**2 * size(w) ** 2)


def sphere_hessian(draw: Draw) -> Found:
    neuron, w = unit(draw)
    u, e = w / size(w), draw.normal(len(w))
    P = torch.eye(len(w), dtype=torch.float64) - torch.outer(u, u)
    e = P @ e / size(P @ e)
    H, solved = hessian(neuron.loss, w), hessian(neuron.solved(w).loss, w)
    bend = hessian(lambda t: neuron.loss(t.cos() * u + t.sin() * e), torch.zeros(1, dtype=torch.float64))
    yield equal("second derivative along a great circle", bend, predicted=size(w) ** 2 * float(e @ H @ e), rel=1e-8)
    apart = [size(torch.linalg.eigvalsh(P @ h @ P) - torch.linalg.eigvalsh(h)) / size(h) for h in (solved, H)]
    yield equal("change of the spectrum at a minimum", apart[0], predicted=0.0, scale=1.0)
    yield shown("another spectrum elsewhere", apart[1] > 1e-6)


def saddle_at_zero(draw: Draw) -> Found:
    n, k, m, eps = draw.integer(2, 5), draw.integer(1, 4), 12, level(draw, 1e-4, 1e-1)
    x, y, zero = draw.normal(m, n), draw.normal(m, k), torch.zeros(n + k, dtype=torch.float64)
    cross = float(torch.linalg.matrix_norm((x - x.mean(0)).T @ y / m, 2))

    def loss(flat: Tensor, norm: bool = True) -> Tensor:
        z = (x - x.mean(0)) @ flat[:n]
        return 0.5 * ((standardize(z, eps) if norm else z)[:, None] * flat[n:] - y).square().sum(1).mean()

    yield equal("smallest eigenvalue", lowest(hessian(loss, zero)), predicted=-cross / math.sqrt(eps))
    bare = lowest(hessian(lambda flat: loss(flat, False), zero))
    yield equal("smallest eigenvalue without batch norm", bare, predicted=-cross)
    yield equal("gradient", size(gradient(loss, zero)), predicted=0.0, scale=1.0)


def singular(draw: Draw) -> Found:
    n = draw.integer(2, 4)
    x, start = draw.normal(40, 2 * n), draw.normal(2 * n)

    def outputs(flat: Tensor) -> Tensor:
        return standardize(x[:, :n] @ flat[:n]) + standardize(x[:, n:] @ flat[n:])

    target = outputs(start)
    values = torch.linalg.eigvalsh(hessian(lambda p: (outputs(p) - target).square().mean(), start))
    yield equal("zero eigenvalues", int((values.abs() < 1e-9 * values[-1]).sum()), predicted=2)
    yield equal("outputs along them", size(outputs(flatten(3 * start[:n], start[n:] / 5))), predicted=size(target))


def whitening(draw: Draw) -> Found:
    rho, m = level(draw, 0.3, 0.995), draw.integer(10, 40)
    basis = torch.linalg.qr(torch.cat([torch.ones(m, 1, dtype=torch.float64), draw.normal(m, 2)], 1))[0][:, 1:]
    tilted = torch.stack([basis[:, 0], rho * basis[:, 0] + math.sqrt(1 - rho**2) * basis[:, 1]], 1)
    scales = torch.tensor([100.0, 0.1], dtype=torch.float64)

    def kappa(features: Tensor) -> float:
        values = torch.linalg.eigvalsh(features.T @ features)
        return float(values[-1] / values[0])

    yield equal("κ before batch norm, uncorrelated", kappa(basis * scales), predicted=1e6, rel=1e-6)
    yield equal("κ behind it, uncorrelated", kappa(standardize(basis * scales + 1)), predicted=1.0)
    behind = kappa(standardize(tilted * scales + 1))
    yield equal("κ behind it, correlation ρ", behind, predicted=(1 + rho) / (1 - rho), rel=1e-7)


def zero_modes(draw: Draw) -> Found:
    h = draw.integer(2, 4)
    d, k = h + draw.integer(0, 2), h + draw.integer(0, 2)
    x = draw.normal(4 * d, d)
    x, start = x - x.mean(0), [draw.normal(h, d), draw.normal(k, h), draw.uniform(h, low=0.5, high=2.0)]

    def outputs(flat: Tensor, norm: bool) -> Tensor:
        first, second, *gamma = split(flat, start if len(flat) > h * (d + k) else start[:2])
        hidden = standardize(x @ first.T) if norm else x @ first.T
        return (hidden * gamma[0] if gamma else hidden) @ second.T

    plain, batch = (nullity(lambda f, b=b: outputs(f, b), flatten(*start[:2])) for b in (False, True))  # type: ignore[misc]
    yield refutes("idle directions with batch norm", batch, published=0)
    yield equal("idle directions without", plain, predicted=h**2)
    yield equal("idle directions with batch norm", batch, predicted=h**2)
    gain = nullity(lambda f: outputs(f, True), flatten(*start))
    yield equal("idle directions with batch norm and gain", gain, predicted=h**2 + h)


def plain_pairs(draw: Draw) -> Found:
    d, h = draw.integer(2, 5), draw.integer(2, 5)
    first, second, probe = draw.normal(h, d), draw.normal(3, h), draw.normal(3, d)
    alpha, mix, truth = level(draw, 0.1, 10.0), draw.orthogonal(h) * 2, project(second @ first, probe)
    yield equal("product with α and 1/α", project((second / alpha) @ (alpha * first), probe), predicted=truth)
    mixed = project(second @ mix.T / 4 @ (mix @ first), probe)
    yield equal("product with a matrix and its inverse", mixed, predicted=truth)


def not_convex(draw: Draw) -> Found:
    neuron, w = unit(draw)
    neuron, share = neuron.solved(w), level(draw, 0.55, 0.95)  # of the way from w to −w
    top = 2 * neuron.gamma**2
    yield equal("loss at −w, 0 at w", neuron.loss(-w), predicted=top)
    middle = neuron.loss((1 - 2 * share) * w)
    yield exceeds("loss on the way from w to −w, against the chord", middle, published=top * share)


def margin_length(draw: Draw) -> Found:
    n = draw.integer(2, 5)
    w, x = draw.normal(n), draw.normal(20, n)
    signed = (x @ w).abs()
    w, nearest = w / signed.min(), x[int(signed.argmin())]  # functional margin 1
    foot = nearest - w * (w @ nearest) / (w @ w)
    yield equal("distance to the boundary", size(nearest - foot), predicted=1 / size(w))
    yield equal("the foot is on the boundary", w @ foot, predicted=0.0, scale=1.0)


def margin_of_batch_norm(draw: Draw) -> Found:
    far = level(draw, 6.0, 9.0)
    plus = torch.tensor([[1.0, 0.0]] * 10 + [[far, 3.0]] * 10, dtype=torch.float64)
    x, y = torch.cat([plus, -plus]) + 0.05 * draw.normal(40, 2), torch.ones(40, 1, dtype=torch.float64)
    y[20:] = -1
    turns = torch.linspace(-math.pi, math.pi, 2001, dtype=torch.float64)
    values = x @ torch.stack([turns.cos(), turns.sin()])  # (samples, directions)
    best = int(torch.nn.functional.softplus(-y * standardize(values)).mean(0).argmin())
    margins = (values[:20].min(0).values - values[20:].max(0).values) / 2
    yield exceeds("widest margin, against batch norm's", margins.max(), published=float(margins[best]), by=0.1)
    tilt = math.atan2(1 - far, 3.0)  # where (1, 0) and (far, 3) project alike
    yield equal("batch norm's direction", turns[best], predicted=tilt, rel=3e-2)


def normalized_derivative(draw: Draw) -> Found:
    m, eps = draw.integer(3, 9), level(draw, 0.0, 0.3)
    z, probe = draw.normal(m) * 2, draw.normal(m, m)
    truth = jacobian(lambda z: standardize(z, eps), z)
    y, sigma = z - z.mean(), math.sqrt(float(z.var(unbiased=False)) + eps)
    first = torch.eye(m, dtype=torch.float64) / sigma - 1 / (m * sigma)
    printed, right = first - torch.outer(y, y) / sigma**3, first - torch.outer(y, y) / (m * sigma**3)
    yield refutes("Jacobian: relative error of the printed form", size(truth - printed) / size(truth), published=0.0)
    yield equal("Jacobian against a random matrix", project(truth, probe), predicted=project(right, probe))


def final_gradient(draw: Draw) -> Found:
    z, delta, truth, gamma, eps = losses.batch_backward(draw)
    hat, probe = standardize(z, eps), draw.normal(len(z))
    sigma = math.sqrt(float(z.var(unbiased=False)) + eps)
    right = gamma / sigma * (delta - delta.mean() - hat * (delta * hat).mean())
    yield equal("gradient along a random direction", project(truth, probe), predicted=project(right, probe))


def weight_gradient(draw: Draw) -> Found:
    m, n, gamma = draw.integer(5, 10), draw.integer(2, 5), level(draw, 1.3, 3.0)
    x, w, slope, probe = draw.normal(m, n) + 1, draw.normal(n), draw.normal(m), draw.normal(n)

    def after(a: Tensor) -> Tensor:
        return (slope * torch.sin(a)).sum()

    hat, sigma = standardize(x @ w), float((x @ w).std(unbiased=False))
    delta, truth = gradient(after, gamma * hat), gradient(lambda w: after(gamma * standardize(x @ w)), w)
    right = gamma / sigma * (delta @ x - delta.mean() * x.sum(0) - (delta * hat).mean() * (hat @ x))
    yield equal("gradient in w", project(truth, probe), predicted=project(right, probe))
    yield equal("product with w", truth @ w, predicted=0.0, scale=size(truth) * size(w))


def in_z(draw: Draw, eps: float) -> tuple[Tensor, Tensor, float, float]:
    """ẑ of one unit, the Hessian in z of ½Σ(a − t)² where a = t, γ²/(σ²+ε), and ε/(σ²+ε)."""
    gamma, z = level(draw, 0.5, 2.0), draw.normal(draw.integer(4, 12))
    target, sigma2 = gamma * standardize(z, eps), float(z.var(unbiased=False)) + eps
    H = hessian(lambda z: 0.5 * (gamma * standardize(z, eps) - target).square().sum(), z)
    return standardize(z), H, gamma**2 / sigma2, eps / sigma2


def solution_spectrum(draw: Draw) -> Found:
    for eps in (0.0, level(draw, 0.05, 0.5)):
        hat, H, scale, share = in_z(draw, eps)
        along, printed = float(hat @ H @ hat / (hat @ hat)), scale * (1 - len(hat))
        values = torch.linalg.eigvalsh(H)
        yield equal(
            f"curvature along ẑ, ε = {eps:.2f}", along, predicted=scale * share**2, published=printed, scale=scale
        )
        yield equal("smallest eigenvalue", values[0], predicted=0.0, scale=scale)
        yield equal("third smallest eigenvalue", values[2], predicted=scale)
        yield equal("largest eigenvalue", values[-1], predicted=scale)


def gain_fixed(draw: Draw) -> Found:
    hat, H, scale, _ = in_z(draw, 0.0)
    along, (neuron, w) = float(hat @ H @ hat / (hat @ hat)), unit(draw)
    yield refutes("curvature along ẑ, γ fixed", along, published=scale * (1 - len(hat)))
    yield equal("curvature along ẑ, γ fixed", along, predicted=0.0, scale=scale)
    yield equal("loss at c·z, γ fixed", neuron.loss(level(draw, 1.5, 3.0) * w), predicted=neuron.loss(w))


def positive_count(draw: Draw) -> Found:
    n = draw.integer(6, 9)
    for m, rank, name in ((draw.integer(4, 6), 0, "small batch"), (4 * n, n, "large batch")):
        x, w = draw.normal(m, n), draw.normal(n)
        values = torch.linalg.eigvalsh(hessian(losses.Unit(x, x[:, 0]).solved(w).loss, w))
        count = int((values > 1e-8 * values[-1]).sum())
        yield equal(f"positive eigenvalues, {name}", count, predicted=(rank or m - 1) - 1)


def stationary(draw: Draw) -> Found:
    m, gamma = draw.integer(4, 12), level(draw, 0.5, 2.0)
    z, probe, delta = draw.normal(m), draw.normal(m), draw.normal(m)
    delta = delta - delta.mean() - standardize(z) * (standardize(z) @ delta) / m
    truth = gradient(lambda z: (delta * gamma * standardize(z)).sum(), z)
    yield refutes("size of the gradient", size(truth), published=0.0)
    right = gamma / float(z.std(unbiased=False)) * delta
    yield equal("gradient along a random direction", project(truth, probe), predicted=project(right, probe))
