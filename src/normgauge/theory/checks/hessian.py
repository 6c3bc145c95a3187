"""Checks: the Hessian behind a normalizer, conditioning, and the appendix on gradients and curvature."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.linalg import eigvalsh

from normgauge.core.claim import Curve
from normgauge.theory import losses
from normgauge.theory.claim import (
    Found,
    expect_below,
    expect_change,
    expect_equal,
    expect_exceeded,
    expect_fact,
    expect_refuted,
)
from normgauge.theory.draw import RandomDraw
from normgauge.theory.jacobians import jacobian
from normgauge.theory.losses import (
    flatten_tensors,
    loss_gradient,
    loss_hessian,
    nullity,
    probe_product,
    random_unit,
    split_vector,
    standardize_values,
    vector_length,
)


def radial_eigenvalue(draw: RandomDraw) -> Found:
    def at(theta: float, r: float) -> Tensor:
        point = r * torch.tensor([math.sin(theta), math.cos(theta)], dtype=torch.float64)
        return eigvalsh(loss_hessian(lambda w: w[0] / w.norm(), point))

    r = draw.number(0.5, 2.0)
    yield expect_refuted("smaller eigenvalue, L = w₁/‖w‖ at (0, r)", at(0.0, r)[0], published=0.0)
    yield expect_equal("smaller eigenvalue, L = w₁/‖w‖ at (0, r)", at(0.0, r)[0], predicted=-1 / r**2)
    neuron, w = random_unit(draw)
    grad, H, probe = loss_gradient(neuron.loss, w), loss_hessian(neuron.loss, w), draw.normal(len(w))
    yield expect_equal("H·w", probe_product(H @ w, probe), predicted=-probe_product(grad, probe))
    yield expect_equal("wᵀHw", w @ H @ w, predicted=0.0, scale=vector_length(H) * vector_length(w) ** 2)
    turns = tuple(2 * math.pi * k / 36 for k in range(37))
    low, high = (tuple(float(at(t, 1.0)[k]) for t in turns) for k in (0, 1))
    lines = (("smaller", low), ("larger", high), ("published for the radius", (0.0,) * len(turns)))
    yield Curve("Hessian eigenvalues of a loss that depends on the angle alone", "angle", "eigenvalue", turns, lines)


def away(draw: RandomDraw) -> Found:
    for n, compare in ((2, expect_equal), (0, expect_below)):
        neuron, w = random_unit(draw, n=n)
        grad, H, solved = (
            loss_gradient(neuron.loss, w),
            loss_hessian(neuron.loss, w),
            loss_hessian(neuron.solved(w).loss, w),
        )
        h, pull = float(grad @ H @ grad) / vector_length(grad) ** 2, vector_length(grad) / vector_length(w)
        yield compare("smallest eigenvalue", eigvalsh(H)[0], predicted=(h - math.sqrt(h**2 + 4 * pull**2)) / 2)
    u, e = w / vector_length(w), draw.normal(len(w))
    yield expect_equal("eᵀHw", e @ H @ w, predicted=-float(e @ grad))
    yield expect_equal("eᵀHw at a minimum", e @ solved @ w, predicted=0.0, scale=vector_length(solved))
    P = torch.eye(len(w), dtype=torch.float64) - torch.outer(u, u)
    e = P @ e / vector_length(P @ e)
    yield expect_equal(
        "second derivative along a great circle",
        neuron.bend(u, e),
        predicted=vector_length(w) ** 2 * float(e @ H @ e),
        rel=1e-8,
    )
    apart = [vector_length(eigvalsh(P @ h @ P) - eigvalsh(h)) / vector_length(h) for h in (solved, H)]
    yield expect_equal("change of the spectrum on the sphere, at a minimum", apart[0], predicted=0.0, scale=1.0)
    yield expect_fact("another spectrum elsewhere", apart[1] > 1e-6)


def unit_hessian(draw: RandomDraw) -> Found:
    neuron, start = random_unit(draw)
    n, s = len(start), neuron.covariance
    for w in (start, torch.linalg.eigh(s)[1][:, 1]):
        solved, probe, scale = neuron.solved(w), draw.normal(n, n), neuron.gamma**2 / float(w @ s @ w)
        H, right = loss_hessian(solved.loss, w), scale * s - scale**2 / neuron.gamma**2 * torch.outer(s @ w, s @ w)
        yield expect_equal("Hessian against a random matrix", H, predicted=right, along=probe, rel=1e-8)
        after, before = eigvalsh(H)[1:], scale * eigvalsh(s)
        yield expect_below(
            "an eigenvalue over the same one without batch norm", (after / before[1:]).max(), predicted=1.0
        )
        yield expect_below(
            "an eigenvalue without it over the next one with it", (before[:-1] / after).max(), predicted=1.0
        )
    yield expect_equal("κ, w along an inner axis", after[-1] / after[0], predicted=before[-1] / before[0], rel=1e-7)
    one = loss_hessian(lambda v: 0.5 * (solved.outputs(v)[0] - solved.target[0]).square(), w)
    few = loss_hessian(losses.Unit(neuron.x[:n], neuron.target[:n]).solved(start).loss, start)
    for matrix, name, rank in ((one, "one sample", 1), (few, f"a batch of {n}", n - 2), (H, "a large batch", n - 1)):
        values = eigvalsh(matrix)
        yield expect_equal(f"positive eigenvalues, {name}", int((values > 1e-9 * values[-1]).sum()), predicted=rank)


def scale_moves(draw: RandomDraw) -> Found:
    neuron, w = random_unit(draw)
    w, c, neuron = w / vector_length(w), draw.decade(2.0, 3.0), neuron.solved(w)
    yield expect_equal(
        "outputs at c·w", vector_length(neuron.outputs(c * w)), predicted=vector_length(neuron.outputs(w))
    )
    spectra = [eigvalsh(h) for h in (neuron.covariance, *(loss_hessian(neuron.loss, k * w) for k in (1.0, c, 1 / c)))]
    tops, traces = ([float(v) for v in vs] for vs in zip(*((s[-1], s.sum()) for s in spectra), strict=True))
    for name, (plain, here, long, short) in (("largest eigenvalue", tops), ("trace", traces)):
        yield expect_change(name, here, long)
        yield expect_equal(f"{name} at c·w", long, predicted=here / c**2, rel=1e-8)
        yield expect_fact(f"{name}: under that without batch norm at c·w, over it at w/c", long < plain < short)


def singular(draw: RandomDraw) -> Found:
    neuron, w = random_unit(draw)
    neuron, decay, c = neuron.solved(w), 1e-4 * draw.number(0.5, 2.0), draw.number(0.05, 0.5)
    values = eigvalsh(loss_hessian(neuron.loss, w))
    yield expect_equal("zero eigenvalues", int((values.abs() < 1e-9 * values[-1]).sum()), predicted=1)
    yield expect_equal("outputs along it", vector_length(neuron.outputs(c * w)), predicted=vector_length(neuron.target))
    decayed = neuron.decayed(decay)
    yield expect_equal(
        "curvature with decay", w @ loss_hessian(decayed, w) @ w / vector_length(w) ** 2, predicted=decay, rel=1e-6
    )
    yield expect_equal(
        "objective at shorter weights", decayed(c * w), predicted=decay / 2 * c**2 * vector_length(w) ** 2
    )


def saddle_at_zero(draw: RandomDraw) -> Found:
    n, k, eps = draw.integer(2, 5), draw.integer(1, 4), draw.number(1e-4, 1e-1)
    x, y, zero = draw.normal(12, n), draw.normal(12, k), torch.zeros(n + k, dtype=torch.float64)

    def loss(flat: Tensor) -> Tensor:
        return 0.5 * (standardize_values(x @ flat[:n], eps)[:, None] * flat[n:] - y).square().sum(1).mean()

    cross = float(torch.linalg.matrix_norm((x - x.mean(0)).T @ y / 12, 2))  # −λ_min without batch norm
    yield expect_equal("smallest eigenvalue", eigvalsh(loss_hessian(loss, zero))[0], predicted=-cross / math.sqrt(eps))
    yield expect_equal("gradient", vector_length(loss_gradient(loss, zero)), predicted=0.0, scale=1.0)


def whitening(draw: RandomDraw) -> Found:
    rho, m = draw.number(0.3, 0.995), draw.integer(10, 40)
    basis = torch.linalg.qr(torch.cat([torch.ones(m, 1, dtype=torch.float64), draw.normal(m, 2)], 1))[0][:, 1:]
    tilted = torch.stack([basis[:, 0], rho * basis[:, 0] + math.sqrt(1 - rho**2) * basis[:, 1]], 1)
    scales = torch.tensor([100.0, 0.1], dtype=torch.float64)
    even, plain, skew = standardize_values(basis * scales + 1), basis * scales, standardize_values(tilted * scales + 1)
    behind, before, correlated = (float(torch.linalg.cond(f)) ** 2 for f in (even, plain, skew))
    yield expect_equal("κ before batch norm, uncorrelated", before, predicted=1e6, rel=1e-6)
    yield expect_equal("κ behind it, uncorrelated", behind, predicted=1.0)
    yield expect_equal("κ behind it, correlation ρ", correlated, predicted=(1 + rho) / (1 - rho), rel=1e-7)


def zero_modes(draw: RandomDraw) -> Found:
    h, d, k = draw.integer(2, 4), draw.integer(3, 5), draw.integer(3, 5)
    x, start = draw.normal(4 * d, d), [draw.normal(h, d), draw.normal(k, h), draw.uniform(h, low=0.5, high=2.0)]

    def outputs(flat: Tensor, norm: bool) -> Tensor:
        first, second, *gamma = split_vector(flat, start if len(flat) > h * (d + k) else start[:2])
        hidden = standardize_values(x @ first.T) if norm else (x - x.mean(0)) @ first.T
        return (hidden * gamma[0] if gamma else hidden) @ second.T

    alpha = draw.number(2.0, 10.0)
    pair = [outputs(flatten_tensors(c * start[0], start[1] / c), True) for c in (1.0, alpha)]
    one, both = (vector_length(b - a) / vector_length(a) for a, b in (pair, [standardize_values(out) for out in pair]))
    yield expect_refuted("change under (αW_1, W_2/α), batch norm behind both", both, published=one)
    yield expect_equal("the same", both, predicted=0.0, scale=1.0)
    yield expect_equal("change, batch norm behind the first alone", one, predicted=1 - 1 / alpha)
    plain, batch = (nullity(lambda f, b=b: outputs(f, b), flatten_tensors(*start[:2])) for b in (False, True))  # type: ignore[misc]
    yield expect_equal("idle directions without", plain, predicted=h**2)
    yield expect_equal("idle directions with batch norm", batch, predicted=h**2)
    gain = nullity(lambda f: outputs(f, True), flatten_tensors(*start))
    yield expect_equal("idle directions with batch norm and gain", gain, predicted=h**2 + h)


def plain_pairs(draw: RandomDraw) -> Found:
    first, second, probe, mix = draw.normal(3, 4), draw.normal(5, 3), draw.normal(5, 4), draw.normal(3, 3)
    alpha, truth = draw.number(0.1, 10.0), probe_product(second @ first, probe)
    yield expect_equal(
        "product with α and 1/α", probe_product((second / alpha) @ (alpha * first), probe), predicted=truth
    )
    mixed = probe_product(second @ torch.linalg.inv(mix) @ (mix @ first), probe)
    yield expect_equal("product with a matrix and its inverse", mixed, predicted=truth, rel=1e-8)


def not_convex(draw: RandomDraw) -> Found:
    neuron, w = random_unit(draw)
    neuron, share, top = neuron.solved(w), draw.number(0.55, 0.95), 2 * neuron.gamma**2
    yield expect_equal("loss at −w, 0 at w", neuron.loss(-w), predicted=top)
    yield expect_exceeded(
        "loss between w and −w, against the chord", neuron.loss((1 - 2 * share) * w), published=top * share
    )


def margin_length(draw: RandomDraw) -> Found:
    w, x = draw.normal(4), draw.normal(20, 4)
    w, nearest = w / (x @ w).abs().min(), x[int((x @ w).abs().argmin())]  # functional margin 1
    foot = nearest - w * (w @ nearest) / (w @ w)
    yield expect_equal("distance to the boundary", vector_length(nearest - foot), predicted=1 / vector_length(w))
    yield expect_equal("the foot is on the boundary", w @ foot, predicted=0.0, scale=1.0)


def margin_of_batch_norm(draw: RandomDraw) -> Found:
    far, sign = draw.number(6.0, 9.0), torch.tensor([[1.0]] * 20 + [[-1.0]] * 20, dtype=torch.float64)
    clusters = sign * torch.tensor([[1.0, 0.0], [far, 3.0]] * 20, dtype=torch.float64)
    turns = torch.linspace(-math.pi, math.pi, 2001, dtype=torch.float64)
    values = (clusters + 0.05 * draw.normal(40, 2)) @ torch.stack([turns.cos(), turns.sin()])  # (samples, directions)
    best = int(torch.nn.functional.softplus(-sign * standardize_values(values)).mean(0).argmin())
    margins = (values[:20].min(0).values - values[20:].max(0).values) / 2
    yield expect_exceeded("widest margin, against batch norm's", margins.max(), published=float(margins[best]), by=0.1)
    tilt = math.atan2(1 - far, 3.0)  # where (1, 0) and (far, 3) project alike
    yield expect_equal("batch norm's direction", turns[best], predicted=tilt, rel=3e-2)


def normalized_derivative(draw: RandomDraw) -> Found:
    m, probe = draw.integer(3, 9), draw.normal(9, 9)
    z = 2 * draw.normal(m)
    truth, y, sigma = jacobian(standardize_values, z), z - z.mean(), float(z.std(unbiased=False))
    first, last = torch.eye(m, dtype=torch.float64) / sigma - 1 / (m * sigma), torch.outer(y, y) / sigma**3
    k = int(y.abs().argmax())
    yield expect_refuted("∂ẑ_k/∂z_k, k the farthest sample", truth[k, k], published=(first - last)[k, k])
    yield expect_equal("Jacobian", truth, predicted=first - last / m, along=probe[:m, :m])


def backward(draw: RandomDraw) -> Found:
    m, n, gamma = draw.integer(5, 10), draw.integer(2, 5), draw.number(1.3, 3.0)
    x, w, slope = draw.normal(m, n) + 1, draw.normal(n), draw.normal(m)

    def behind(z: Tensor) -> Tensor:
        return (slope * torch.sin(gamma * standardize_values(z))).sum()

    z, in_z, in_w = x @ w, loss_gradient(behind, x @ w), loss_gradient(lambda w: behind(x @ w), w)
    hat, delta, scale = (
        standardize_values(z),
        slope * torch.cos(gamma * standardize_values(z)),
        gamma / float(z.std(unbiased=False)),
    )
    right = scale * (delta - delta.mean() - hat * (delta * hat).mean())
    yield expect_equal("gradient in z", in_z, predicted=right, along=slope)
    right = scale * (delta @ x - delta.mean() * x.sum(0) - (delta * hat).mean() * (hat @ x))
    yield expect_equal("gradient in w", in_w, predicted=right, along=x[0])
    yield expect_equal("product with w", in_w @ w, predicted=0.0, scale=vector_length(in_w) * vector_length(w))


def in_z(draw: RandomDraw, eps: float) -> tuple[Tensor, Tensor, float, float]:
    """ẑ of one unit, the Hessian in z of ½Σ(a − t)² where a = t, γ²/(σ²+ε), and ε/(σ²+ε)."""
    gamma, z = draw.number(0.5, 2.0), draw.normal(draw.integer(4, 12))
    target, sigma2 = gamma * standardize_values(z, eps), float(z.var(unbiased=False)) + eps
    H = loss_hessian(lambda z: 0.5 * (gamma * standardize_values(z, eps) - target).square().sum(), z)
    return standardize_values(z), H, gamma**2 / sigma2, eps / sigma2


def solution_spectrum(draw: RandomDraw) -> Found:
    for eps in (0.0, draw.number(0.05, 0.5)):
        hat, H, scale, share = in_z(draw, eps)
        along, values = hat @ H @ hat / len(hat), eigvalsh(H)
        yield expect_equal("curvature along ẑ", along, predicted=scale * share**2, scale=scale)
        yield expect_equal("smallest eigenvalue", values[0], predicted=0.0, scale=scale)
        yield expect_equal("third smallest eigenvalue", values[2], predicted=scale)
        yield expect_equal("largest eigenvalue", values[-1], predicted=scale)


def gain_fixed(draw: RandomDraw) -> Found:
    hat, H, scale, _ = in_z(draw, 0.0)
    along, (neuron, w) = float(hat @ H @ hat / (hat @ hat)), random_unit(draw)
    yield expect_refuted("curvature along ẑ, γ fixed", along, published=scale * (1 - len(hat)))
    yield expect_equal("curvature along ẑ, γ fixed", along, predicted=0.0, scale=scale)
    yield expect_equal("loss at c·z, γ fixed", neuron.loss(draw.number(1.5, 3.0) * w), predicted=neuron.loss(w))


def stationary(draw: RandomDraw) -> Found:
    m, gamma = draw.integer(4, 12), draw.number(0.5, 2.0)
    z, probe, delta = draw.normal(m), draw.normal(m), draw.normal(m)
    delta = delta - delta.mean() - standardize_values(z) * (standardize_values(z) @ delta) / m
    truth = loss_gradient(lambda z: (delta * gamma * standardize_values(z)).sum(), z)
    yield expect_refuted("gradient of one sample", truth[0], published=0.0)
    sigma = float(z.std(unbiased=False))
    yield expect_equal("gradient", probe_product(truth, probe), predicted=gamma / sigma * probe_product(delta, probe))
