"""Checks: the Hessian behind a normalizer, conditioning, and the appendix on gradients and curvature."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.linalg import eigvalsh

from normgauge.core.claim import Curve
from normgauge.theory import losses
from normgauge.theory.claim import Found, below, equals, exceeds, moves, refutes, shown
from normgauge.theory.draw import Draw
from normgauge.theory.jacobians import jacobian
from normgauge.theory.losses import (
    extent,
    flattened,
    grad_of,
    hessian_of,
    nullity,
    probed,
    random_unit,
    split_vector,
    standardized,
)


def radial_eigenvalue(draw: Draw) -> Found:
    def at(theta: float, r: float) -> Tensor:
        point = r * torch.tensor([math.sin(theta), math.cos(theta)], dtype=torch.float64)
        return eigvalsh(hessian_of(lambda w: w[0] / w.norm(), point))

    r = draw.number(0.5, 2.0)
    yield refutes("smaller eigenvalue, L = w₁/‖w‖ at (0, r)", at(0.0, r)[0], published=0.0)
    yield equals("smaller eigenvalue, L = w₁/‖w‖ at (0, r)", at(0.0, r)[0], predicted=-1 / r**2)
    neuron, w = random_unit(draw)
    grad, H, probe = grad_of(neuron.loss, w), hessian_of(neuron.loss, w), draw.normal(len(w))
    yield equals("H·w", probed(H @ w, probe), predicted=-probed(grad, probe))
    yield equals("wᵀHw", w @ H @ w, predicted=0.0, scale=extent(H) * extent(w) ** 2)
    turns = tuple(2 * math.pi * k / 36 for k in range(37))
    low, high = (tuple(float(at(t, 1.0)[k]) for t in turns) for k in (0, 1))
    lines = (("smaller", low), ("larger", high), ("published for the radius", (0.0,) * len(turns)))
    yield Curve("Hessian eigenvalues of a loss that depends on the angle alone", "angle", "eigenvalue", turns, lines)


def away(draw: Draw) -> Found:
    for n, compare in ((2, equals), (0, below)):
        neuron, w = random_unit(draw, n=n)
        grad, H, solved = (grad_of(neuron.loss, w), hessian_of(neuron.loss, w), hessian_of(neuron.solved(w).loss, w))
        h, pull = float(grad @ H @ grad) / extent(grad) ** 2, extent(grad) / extent(w)
        yield compare("smallest eigenvalue", eigvalsh(H)[0], predicted=(h - math.sqrt(h**2 + 4 * pull**2)) / 2)
    u, e = w / extent(w), draw.normal(len(w))
    yield equals("eᵀHw", e @ H @ w, predicted=-float(e @ grad))
    yield equals("eᵀHw at a minimum", e @ solved @ w, predicted=0.0, scale=extent(solved))
    P = torch.eye(len(w), dtype=torch.float64) - torch.outer(u, u)
    e = P @ e / extent(P @ e)
    yield equals(
        "second derivative along a great circle",
        neuron.bend(u, e),
        predicted=extent(w) ** 2 * float(e @ H @ e),
        rel=1e-8,
    )
    apart = [extent(eigvalsh(P @ h @ P) - eigvalsh(h)) / extent(h) for h in (solved, H)]
    yield equals("change of the spectrum on the sphere, at a minimum", apart[0], predicted=0.0, scale=1.0)
    yield shown("another spectrum elsewhere", apart[1] > 1e-6)


def unit_hessian(draw: Draw) -> Found:
    neuron, start = random_unit(draw)
    n, s = len(start), neuron.covariance
    for w in (start, torch.linalg.eigh(s)[1][:, 1]):
        solved, probe, scale = neuron.solved(w), draw.normal(n, n), neuron.gamma**2 / float(w @ s @ w)
        H, right = hessian_of(solved.loss, w), scale * s - scale**2 / neuron.gamma**2 * torch.outer(s @ w, s @ w)
        yield equals("Hessian against a random matrix", H, predicted=right, along=probe, rel=1e-8)
        after, before = eigvalsh(H)[1:], scale * eigvalsh(s)
        yield below("an eigenvalue over the same one without batch norm", (after / before[1:]).max(), predicted=1.0)
        yield below("an eigenvalue without it over the next one with it", (before[:-1] / after).max(), predicted=1.0)
    yield equals("κ, w along an inner axis", after[-1] / after[0], predicted=before[-1] / before[0], rel=1e-7)
    one = hessian_of(lambda v: 0.5 * (solved.outputs(v)[0] - solved.target[0]).square(), w)
    few = hessian_of(losses.Unit(neuron.x[:n], neuron.target[:n]).solved(start).loss, start)
    for matrix, name, rank in ((one, "one sample", 1), (few, f"a batch of {n}", n - 2), (H, "a large batch", n - 1)):
        values = eigvalsh(matrix)
        yield equals(f"positive eigenvalues, {name}", int((values > 1e-9 * values[-1]).sum()), predicted=rank)


def scale_moves(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    w, c, neuron = w / extent(w), draw.decade(2.0, 3.0), neuron.solved(w)
    yield equals("outputs at c·w", extent(neuron.outputs(c * w)), predicted=extent(neuron.outputs(w)))
    spectra = [eigvalsh(h) for h in (neuron.covariance, *(hessian_of(neuron.loss, k * w) for k in (1.0, c, 1 / c)))]
    tops, traces = ([float(v) for v in vs] for vs in zip(*((s[-1], s.sum()) for s in spectra), strict=True))
    for name, (plain, here, long, short) in (("largest eigenvalue", tops), ("trace", traces)):
        yield moves(name, here, long)
        yield equals(f"{name} at c·w", long, predicted=here / c**2, rel=1e-8)
        yield shown(f"{name}: under that without batch norm at c·w, over it at w/c", long < plain < short)


def singular(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    neuron, decay, c = neuron.solved(w), 1e-4 * draw.number(0.5, 2.0), draw.number(0.05, 0.5)
    values = eigvalsh(hessian_of(neuron.loss, w))
    yield equals("zero eigenvalues", int((values.abs() < 1e-9 * values[-1]).sum()), predicted=1)
    yield equals("outputs along it", extent(neuron.outputs(c * w)), predicted=extent(neuron.target))
    decayed = neuron.decayed(decay)
    yield equals("curvature with decay", w @ hessian_of(decayed, w) @ w / extent(w) ** 2, predicted=decay, rel=1e-6)
    yield equals("objective at shorter weights", decayed(c * w), predicted=decay / 2 * c**2 * extent(w) ** 2)


def saddle_at_zero(draw: Draw) -> Found:
    n, k, eps = draw.integer(2, 5), draw.integer(1, 4), draw.number(1e-4, 1e-1)
    x, y, zero = draw.normal(12, n), draw.normal(12, k), torch.zeros(n + k, dtype=torch.float64)

    def loss(flat: Tensor) -> Tensor:
        return 0.5 * (standardized(x @ flat[:n], eps)[:, None] * flat[n:] - y).square().sum(1).mean()

    cross = float(torch.linalg.matrix_norm((x - x.mean(0)).T @ y / 12, 2))  # −λ_min without batch norm
    yield equals("smallest eigenvalue", eigvalsh(hessian_of(loss, zero))[0], predicted=-cross / math.sqrt(eps))
    yield equals("gradient", extent(grad_of(loss, zero)), predicted=0.0, scale=1.0)


def whitening(draw: Draw) -> Found:
    rho, m = draw.number(0.3, 0.995), draw.integer(10, 40)
    basis = torch.linalg.qr(torch.cat([torch.ones(m, 1, dtype=torch.float64), draw.normal(m, 2)], 1))[0][:, 1:]
    tilted = torch.stack([basis[:, 0], rho * basis[:, 0] + math.sqrt(1 - rho**2) * basis[:, 1]], 1)
    scales = torch.tensor([100.0, 0.1], dtype=torch.float64)
    even, plain, skew = standardized(basis * scales + 1), basis * scales, standardized(tilted * scales + 1)
    behind, before, correlated = (float(torch.linalg.cond(f)) ** 2 for f in (even, plain, skew))
    yield equals("κ before batch norm, uncorrelated", before, predicted=1e6, rel=1e-6)
    yield equals("κ behind it, uncorrelated", behind, predicted=1.0)
    yield equals("κ behind it, correlation ρ", correlated, predicted=(1 + rho) / (1 - rho), rel=1e-7)


def zero_modes(draw: Draw) -> Found:
    h, d, k = draw.integer(2, 4), draw.integer(3, 5), draw.integer(3, 5)
    x, start = draw.normal(4 * d, d), [draw.normal(h, d), draw.normal(k, h), draw.uniform(h, low=0.5, high=2.0)]

    def outputs(flat: Tensor, norm: bool) -> Tensor:
        first, second, *gamma = split_vector(flat, start if len(flat) > h * (d + k) else start[:2])
        hidden = standardized(x @ first.T) if norm else (x - x.mean(0)) @ first.T
        return (hidden * gamma[0] if gamma else hidden) @ second.T

    alpha = draw.number(2.0, 10.0)
    pair = [outputs(flattened(c * start[0], start[1] / c), True) for c in (1.0, alpha)]
    one, both = (extent(b - a) / extent(a) for a, b in (pair, [standardized(out) for out in pair]))
    yield refutes("change under (αW_1, W_2/α), batch norm behind both", both, published=one)
    yield equals("the same", both, predicted=0.0, scale=1.0)
    yield equals("change, batch norm behind the first alone", one, predicted=1 - 1 / alpha)
    plain, batch = (nullity(lambda f, b=b: outputs(f, b), flattened(*start[:2])) for b in (False, True))  # type: ignore[misc]
    yield equals("idle directions without", plain, predicted=h**2)
    yield equals("idle directions with batch norm", batch, predicted=h**2)
    gain = nullity(lambda f: outputs(f, True), flattened(*start))
    yield equals("idle directions with batch norm and gain", gain, predicted=h**2 + h)


def plain_pairs(draw: Draw) -> Found:
    first, second, probe, mix = draw.normal(3, 4), draw.normal(5, 3), draw.normal(5, 4), draw.normal(3, 3)
    alpha, truth = draw.number(0.1, 10.0), probed(second @ first, probe)
    yield equals("product with α and 1/α", probed((second / alpha) @ (alpha * first), probe), predicted=truth)
    mixed = probed(second @ torch.linalg.inv(mix) @ (mix @ first), probe)
    yield equals("product with a matrix and its inverse", mixed, predicted=truth, rel=1e-8)


def not_convex(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    neuron, share, top = neuron.solved(w), draw.number(0.55, 0.95), 2 * neuron.gamma**2
    yield equals("loss at −w, 0 at w", neuron.loss(-w), predicted=top)
    yield exceeds("loss between w and −w, against the chord", neuron.loss((1 - 2 * share) * w), published=top * share)


def margin_length(draw: Draw) -> Found:
    w, x = draw.normal(4), draw.normal(20, 4)
    w, nearest = w / (x @ w).abs().min(), x[int((x @ w).abs().argmin())]  # functional margin 1
    foot = nearest - w * (w @ nearest) / (w @ w)
    yield equals("distance to the boundary", extent(nearest - foot), predicted=1 / extent(w))
    yield equals("the foot is on the boundary", w @ foot, predicted=0.0, scale=1.0)


def margin_of_batch_norm(draw: Draw) -> Found:
    far, sign = draw.number(6.0, 9.0), torch.tensor([[1.0]] * 20 + [[-1.0]] * 20, dtype=torch.float64)
    clusters = sign * torch.tensor([[1.0, 0.0], [far, 3.0]] * 20, dtype=torch.float64)
    turns = torch.linspace(-math.pi, math.pi, 2001, dtype=torch.float64)
    values = (clusters + 0.05 * draw.normal(40, 2)) @ torch.stack([turns.cos(), turns.sin()])  # (samples, directions)
    best = int(torch.nn.functional.softplus(-sign * standardized(values)).mean(0).argmin())
    margins = (values[:20].min(0).values - values[20:].max(0).values) / 2
    yield exceeds("widest margin, against batch norm's", margins.max(), published=float(margins[best]), by=0.1)
    tilt = math.atan2(1 - far, 3.0)  # where (1, 0) and (far, 3) project alike
    yield equals("batch norm's direction", turns[best], predicted=tilt, rel=3e-2)


def normalized_derivative(draw: Draw) -> Found:
    m, probe = draw.integer(3, 9), draw.normal(9, 9)
    z = 2 * draw.normal(m)
    truth, y, sigma = jacobian(standardized, z), z - z.mean(), float(z.std(unbiased=False))
    first, last = torch.eye(m, dtype=torch.float64) / sigma - 1 / (m * sigma), torch.outer(y, y) / sigma**3
    k = int(y.abs().argmax())
    yield refutes("∂ẑ_k/∂z_k, k the farthest sample", truth[k, k], published=(first - last)[k, k])
    yield equals("Jacobian", truth, predicted=first - last / m, along=probe[:m, :m])


def backward(draw: Draw) -> Found:
    m, n, gamma = draw.integer(5, 10), draw.integer(2, 5), draw.number(1.3, 3.0)
    x, w, slope = draw.normal(m, n) + 1, draw.normal(n), draw.normal(m)

    def behind(z: Tensor) -> Tensor:
        return (slope * torch.sin(gamma * standardized(z))).sum()

    z, in_z, in_w = x @ w, grad_of(behind, x @ w), grad_of(lambda w: behind(x @ w), w)
    hat, delta, scale = (
        standardized(z),
        slope * torch.cos(gamma * standardized(z)),
        gamma / float(z.std(unbiased=False)),
    )
    right = scale * (delta - delta.mean() - hat * (delta * hat).mean())
    yield equals("gradient in z", in_z, predicted=right, along=slope)
    right = scale * (delta @ x - delta.mean() * x.sum(0) - (delta * hat).mean() * (hat @ x))
    yield equals("gradient in w", in_w, predicted=right, along=x[0])
    yield equals("product with w", in_w @ w, predicted=0.0, scale=extent(in_w) * extent(w))


def in_z(draw: Draw, eps: float) -> tuple[Tensor, Tensor, float, float]:
    """ẑ of one unit, the Hessian in z of ½Σ(a − t)² where a = t, γ²/(σ²+ε), and ε/(σ²+ε)."""
    gamma, z = draw.number(0.5, 2.0), draw.normal(draw.integer(4, 12))
    target, sigma2 = gamma * standardized(z, eps), float(z.var(unbiased=False)) + eps
    H = hessian_of(lambda z: 0.5 * (gamma * standardized(z, eps) - target).square().sum(), z)
    return standardized(z), H, gamma**2 / sigma2, eps / sigma2


def solution_spectrum(draw: Draw) -> Found:
    for eps in (0.0, draw.number(0.05, 0.5)):
        hat, H, scale, share = in_z(draw, eps)
        along, values = hat @ H @ hat / len(hat), eigvalsh(H)
        yield equals("curvature along ẑ", along, predicted=scale * share**2, scale=scale)
        yield equals("smallest eigenvalue", values[0], predicted=0.0, scale=scale)
        yield equals("third smallest eigenvalue", values[2], predicted=scale)
        yield equals("largest eigenvalue", values[-1], predicted=scale)


def gain_fixed(draw: Draw) -> Found:
    hat, H, scale, _ = in_z(draw, 0.0)
    along, (neuron, w) = float(hat @ H @ hat / (hat @ hat)), random_unit(draw)
    yield refutes("curvature along ẑ, γ fixed", along, published=scale * (1 - len(hat)))
    yield equals("curvature along ẑ, γ fixed", along, predicted=0.0, scale=scale)
    yield equals("loss at c·z, γ fixed", neuron.loss(draw.number(1.5, 3.0) * w), predicted=neuron.loss(w))


def stationary(draw: Draw) -> Found:
    m, gamma = draw.integer(4, 12), draw.number(0.5, 2.0)
    z, probe, delta = draw.normal(m), draw.normal(m), draw.normal(m)
    delta = delta - delta.mean() - standardized(z) * (standardized(z) @ delta) / m
    truth = grad_of(lambda z: (delta * gamma * standardized(z)).sum(), z)
    yield refutes("gradient of one sample", truth[0], published=0.0)
    sigma = float(z.std(unbiased=False))
    yield equals("gradient", probed(truth, probe), predicted=gamma / sigma * probed(delta, probe))
