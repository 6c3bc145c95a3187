"""Checks: hessian."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.claim import Curve
from normgauge.ledger.claim import Found, below, equal, exceeds, moves, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian
from normgauge.ledger.losses import (
    Unit,
    batch_backward,
    flatten,
    gradient,
    hessian,
    nullity,
    project,
    size,
    split,
    standardize,
    unit,
)


def _inner(draw: Draw) -> tuple[Unit, Tensor, Tensor, Tensor]:
    """A unit away from its optimum: weights, gradient and Hessian there."""
    neuron, w = unit(draw)
    return neuron, w, gradient(neuron.loss, w), hessian(neuron.loss, w)


def radial_eigenvalue(draw: Draw) -> Found:
    _, w, grad, H = _inner(draw)
    probe = draw.normal(len(w))
    yield refutes("size of H·w", size(H @ w), published=0.0)
    yield equal("H·w", project(H @ w, probe), predicted=-project(grad, probe))
    yield equal("wᵀHw", w @ H @ w, predicted=0.0, scale=size(H) * size(w) ** 2)
    a, b = (float(v) for v in draw.uniform(2, low=0.3, high=1.0))
    r, theta = float(draw.uniform(1, low=0.5, high=2.0)), float(draw.uniform(1, low=0.3, high=1.2))

    def eigenvalues(theta: float) -> Tensor:
        point = r * torch.tensor([math.cos(theta), math.sin(theta)], dtype=torch.float64)
        return torch.linalg.eigvalsh(hessian(lambda w: a * _tilt(w).cos() + b * (2 * _tilt(w)).cos(), point))

    slope, bend = -a * math.sin(theta) - 2 * b * math.sin(2 * theta), -a * math.cos(theta) - 4 * b * math.cos(2 * theta)
    low = (bend - math.sqrt(bend**2 + 4 * slope**2)) / (2 * r**2)
    yield equal("smaller eigenvalue in two dimensions", eigenvalues(theta)[0], predicted=low)
    turns = tuple(2 * math.pi * k / 36 for k in range(37))
    both = [eigenvalues(t) for t in turns]
    yield Curve(
        "Hessian eigenvalues of a loss that depends on the angle alone",
        "angle",
        "eigenvalue",
        turns,
        (
            ("smaller", tuple(float(v[0]) for v in both)),
            ("larger", tuple(float(v[1]) for v in both)),
            ("published for the radius", (0.0,) * len(turns)),
        ),
    )


def _tilt(w: Tensor) -> Tensor:
    return torch.atan2(w[1], w[0])


def cross_terms(draw: Draw) -> Found:
    _, w, grad, H = _inner(draw)
    u = grad / size(grad)
    yield refutes("uᵀHw, u along the gradient", u @ H @ w, published=0.0)
    yield equal("uᵀHw, u along the gradient", u @ H @ w, predicted=-size(grad))


def forced_negative(draw: Draw) -> Found:
    for n, name in ((0, "any dimension"), (2, "two dimensions")):
        neuron, w = unit(draw, n=n)
        grad, H = gradient(neuron.loss, w), hessian(neuron.loss, w)
        u = grad / size(grad)
        h, pull = float(u @ H @ u), size(grad) / size(w)
        bound, lowest = (h - math.sqrt(h**2 + 4 * pull**2)) / 2, float(torch.linalg.eigvalsh(H)[0])
        if n == 2:
            yield equal(f"smallest eigenvalue, {name}", lowest, predicted=bound)
        else:
            yield below(f"smallest eigenvalue, {name}", lowest, predicted=bound)
    yield shown("it is negative", bound < 0)


def unit_hessian(draw: Draw) -> Found:
    neuron, w = unit(draw)
    H, probe = hessian(neuron.solved(w).loss, w), draw.normal(len(w), len(w))
    s, q = neuron.covariance, float(w @ neuron.covariance @ w)
    frozen = neuron.gamma**2 / q * s
    yield refutes("curvature along w", w @ H @ w / size(w) ** 2, published=float(w @ frozen @ w) / size(w) ** 2)
    right = neuron.gamma**2 / q * (s - torch.outer(s @ w, s @ w) / q)
    yield equal("Hessian against a random matrix", project(H, probe), predicted=project(right, probe), rel=1e-8)


def unit_rank(draw: Draw) -> Found:
    neuron, w = unit(draw, n=draw.integer(3, 7))
    values = torch.linalg.eigvalsh(hessian(neuron.solved(w).loss, w))
    rank = int((values.abs() > 1e-9 * values[-1]).sum())
    yield refutes("rank of the Hessian", rank, published=1)
    yield equal("rank of the Hessian", rank, predicted=len(w) - 1)


def interlacing(draw: Draw) -> Found:
    neuron, w = unit(draw, n=draw.integer(3, 7))

    def spectra(w: Tensor) -> tuple[Tensor, Tensor]:
        scale = neuron.gamma**2 / float(w @ neuron.covariance @ w)
        return torch.linalg.eigvalsh(hessian(neuron.solved(w).loss, w))[1:], scale * torch.linalg.eigvalsh(
            neuron.covariance
        )

    after, before = spectra(w)
    yield below("condition number with batch norm", after[-1] / after[0], predicted=float(before[-1] / before[0]))
    yield below("largest shortfall below the next eigenvalue without", (before[:-1] - after).max(), predicted=0.0)
    yield below("largest excess over the same eigenvalue without", (after - before[1:]).max(), predicted=0.0)
    after, before = spectra(torch.linalg.eigh(neuron.covariance)[1][:, 1])
    yield equal(
        "condition number, w along an inner axis",
        after[-1] / after[0],
        predicted=float(before[-1] / before[0]),
        rel=1e-7,
    )


def largest_eigenvalue(draw: Draw) -> Found:
    neuron, w = unit(draw)
    c = float(draw.uniform(1, low=3.0, high=10.0))
    here, there = (float(torch.linalg.eigvalsh(hessian(neuron.loss, k * w))[-1]) for k in (1.0, c))
    yield moves("largest eigenvalue", here, there)
    yield equal("outputs at c·w", size(neuron.outputs(c * w)), predicted=size(neuron.outputs(w)))
    yield equal("‖w‖² times the largest eigenvalue", size(c * w) ** 2 * there, predicted=size(w) ** 2 * here)


def trace_moves(draw: Draw) -> Found:
    neuron, w = unit(draw)
    neuron, c = neuron.solved(w), float(draw.uniform(1, low=3.0, high=10.0))
    here, there = (float(hessian(neuron.loss, k * w).trace()) for k in (1.0, c))
    yield moves("trace at the minimum", here, there)
    yield equal("loss there", neuron.loss(c * w), predicted=0.0, scale=1.0)
    yield equal("trace at c·w", there, predicted=here / c**2, rel=1e-8)


def decay_eigenvalue(draw: Draw) -> Found:
    neuron, w = unit(draw)
    neuron, decay = neuron.solved(w), 1e-4 * float(draw.uniform(1, low=0.5, high=2.0))

    def objective(w: Tensor) -> Tensor:
        return neuron.loss(w) + decay / 2 * w.square().sum()

    H = hessian(objective, w)
    yield equal("curvature along w", w @ H @ w / size(w) ** 2, predicted=decay, rel=1e-6)
    short = float(draw.uniform(1, low=0.05, high=0.5))
    yield equal("objective at a shorter w", objective(short * w), predicted=decay / 2 * short**2 * size(w) ** 2)


def sphere_hessian(draw: Draw) -> Found:
    neuron, w, _, H = _inner(draw)
    u, e = w / size(w), draw.normal(len(w))
    e = (e - u * (u @ e)) / size(e - u * (u @ e))
    turn = torch.zeros(1, dtype=torch.float64)
    bend = hessian(lambda t: neuron.loss(t.cos() * u + t.sin() * e), turn)
    yield equal(
        "second derivative along a great circle", float(bend), predicted=size(w) ** 2 * float(e @ H @ e), rel=1e-8
    )
    P = torch.eye(len(w), dtype=torch.float64) - torch.outer(u, u)
    solved = hessian(neuron.solved(w).loss, w)
    inside, space = torch.linalg.eigvalsh(P @ solved @ P), torch.linalg.eigvalsh(solved)
    yield equal("spectrum at a minimum", size(inside - space), predicted=0.0, scale=size(space))
    yield shown(
        "another spectrum elsewhere", size(torch.linalg.eigvalsh(P @ H @ P) - torch.linalg.eigvalsh(H)) > 1e-6 * size(H)
    )


def saddle_at_zero(draw: Draw) -> Found:
    n, k, m, eps = draw.integer(2, 5), draw.integer(1, 4), 12, float(draw.uniform(1, low=1e-4, high=1e-1))
    x, y = draw.normal(m, n), draw.normal(m, k)
    zero = torch.zeros(n + k, dtype=torch.float64)

    def loss(flat: Tensor) -> Tensor:
        w, head = split(flat, (x[0], y[0]))
        return 0.5 * (standardize(x @ w, eps)[:, None] * head - y).square().sum(1).mean()

    lowest = float(torch.linalg.eigvalsh(hessian(loss, zero))[0])
    cross = (x - x.mean(0)).T @ y / m
    yield refutes("smallest eigenvalue at zero weights", lowest, published=0.0)
    yield equal("gradient at zero weights", size(gradient(loss, zero)), predicted=0.0, scale=1.0)
    yield equal("smallest eigenvalue", lowest, predicted=-float(torch.linalg.matrix_norm(cross, 2)) / math.sqrt(eps))


def singular(draw: Draw) -> Found:
    n = draw.integer(2, 4)
    x, start = draw.normal(40, 2 * n), draw.normal(2 * n)

    def outputs(flat: Tensor) -> Tensor:
        return standardize(x[:, :n] @ flat[:n]) + standardize(x[:, n:] @ flat[n:])

    target = outputs(start)
    values = torch.linalg.eigvalsh(hessian(lambda p: (outputs(p) - target).square().mean(), start))
    yield equal("zero eigenvalues", int((values.abs() < 1e-9 * values[-1]).sum()), predicted=2)
    moved = flatten(3 * start[:n], start[n:] / 5)
    yield equal("outputs along them", size(outputs(moved)), predicted=size(target))


def whitening(draw: Draw) -> Found:
    rho = float(draw.uniform(1, low=0.3, high=0.995))
    m = draw.integer(10, 40)
    basis = torch.linalg.qr(torch.cat([torch.ones(m, 1, dtype=torch.float64), draw.normal(m, 2)], 1))[0][:, 1:]
    features = torch.stack([basis[:, 0], rho * basis[:, 0] + math.sqrt(1 - rho**2) * basis[:, 1]], 1)
    hat = standardize(features * torch.tensor([100.0, 0.1], dtype=torch.float64) + draw.normal(2))
    values = torch.linalg.eigvalsh(hat.T @ hat / m)
    kappa = float(values[-1] / values[0])
    yield refutes("condition number behind batch norm", kappa, published=1.0)
    yield equal("condition number behind batch norm", kappa, predicted=(1 + rho) / (1 - rho), rel=1e-7)


def scales_removed(draw: Draw) -> Found:
    m, n = draw.integer(10, 30), draw.integer(2, 6)
    basis = torch.linalg.qr(torch.cat([torch.ones(m, 1, dtype=torch.float64), draw.normal(m, n)], 1))[0][:, 1:]
    scales = torch.logspace(-2, 2, n, dtype=torch.float64)
    hat = standardize(basis * scales + 1)
    values = torch.linalg.eigvalsh(hat.T @ hat / m)
    yield equal("condition number behind batch norm", values[-1] / values[0], predicted=1.0)
    before = torch.linalg.eigvalsh((basis * scales).T @ (basis * scales))
    yield equal(
        "condition number before it", before[-1] / before[0], predicted=float(scales[-1] / scales[0]) ** 2, rel=1e-6
    )


def zero_modes(draw: Draw) -> Found:
    h = draw.integer(2, 4)
    d, k = h + draw.integer(0, 2), h + draw.integer(0, 2)
    x = draw.normal(4 * d, d)
    x = x - x.mean(0)
    start = [draw.normal(h, d), draw.normal(k, h), draw.uniform(h, low=0.5, high=2.0)]

    def outputs(flat: Tensor, kind: str) -> Tensor:
        first, second, gamma = split(flat, start if kind == "gain" else [*start[:2], start[2][:0]])
        z = x @ first.T
        hidden = z if kind == "plain" else standardize(z)
        return (hidden * gamma if kind == "gain" else hidden) @ second.T

    plain, batch = (nullity(lambda f, k=kind: outputs(f, k), flatten(*start[:2])) for kind in ("plain", "batch"))  # type: ignore[misc]
    gain = nullity(lambda f: outputs(f, "gain"), flatten(*start))
    yield refutes("idle directions with batch norm", batch, published=0)
    yield equal("idle directions without", plain, predicted=h**2)
    yield equal("idle directions with batch norm", batch, predicted=h**2)
    yield equal("idle directions with batch norm and gain", gain, predicted=h**2 + h)


def plain_pairs(draw: Draw) -> Found:
    d, h = draw.integer(2, 5), draw.integer(2, 5)
    first, second, probe = draw.normal(h, d), draw.normal(3, h), draw.normal(3, d)
    alpha, mix = float(draw.uniform(1, low=0.1, high=10.0)), draw.orthogonal(h) * 2
    truth = project(second @ first, probe)
    yield equal("product with α and 1/α", project((second / alpha) @ (alpha * first), probe), predicted=truth)
    yield equal(
        "product with a matrix and its inverse", project(second @ mix.T / 4 @ (mix @ first), probe), predicted=truth
    )


def not_convex(draw: Draw) -> Found:
    n = draw.integer(2, 5)
    x, w = draw.normal(30, n), draw.normal(n)
    target = standardize(x @ w)

    def loss(w: Tensor) -> float:
        return 0.5 * float((standardize(x @ w) - target).square().mean())

    yield equal("loss at w", loss(w), predicted=0.0, scale=1.0)
    yield equal("loss at −w", loss(-w), predicted=2.0)
    share = float(draw.uniform(1, low=0.55, high=0.95))  # of the way from w to −w
    middle = (1 - share) * w - share * w
    yield exceeds("loss on the way from w to −w, against the chord", loss(middle), published=2 * share)


def margin_length(draw: Draw) -> Found:
    n = draw.integer(2, 5)
    w = draw.normal(n)
    x = draw.normal(20, n)
    signed = (x @ w).abs()
    w = w / signed.min()  # functional margin 1
    nearest = x[int(signed.argmin())]
    foot = nearest - w * (w @ nearest) / (w @ w)
    yield equal("distance to the boundary", size(nearest - foot), predicted=1 / size(w))
    yield equal("the foot is on the boundary", w @ foot, predicted=0.0, scale=1.0)


def margin_of_batch_norm(draw: Draw) -> Found:
    far = float(draw.uniform(1, low=6.0, high=9.0))
    plus = torch.tensor([[1.0, 0.0]] * 10 + [[far, 3.0]] * 10, dtype=torch.float64)
    x = torch.cat([plus, -plus]) + 0.05 * draw.normal(40, 2)
    y = torch.tensor([1.0] * 20 + [-1.0] * 20, dtype=torch.float64)
    turns = torch.linspace(-math.pi, math.pi, 2001, dtype=torch.float64)
    values = x @ torch.stack([turns.cos(), turns.sin()])  # (samples, directions)
    losses = torch.nn.functional.softplus(-y[:, None] * standardize(values)).mean(0)
    margins = (values[:20].min(0).values - values[20:].max(0).values) / 2
    best = int(losses.argmin())
    yield exceeds(
        "widest margin, against that of batch norm's direction", margins.max(), published=float(margins[best]), by=0.1
    )
    tilt = math.atan2(1 - far, 3.0)  # where (1, 0) and (far, 3) project alike
    yield equal("batch norm's direction", turns[best], predicted=tilt, rel=3e-2)


def normalized_derivative(draw: Draw) -> Found:
    m, eps = draw.integer(3, 9), float(draw.uniform(1, high=0.3))
    z, probe = draw.normal(m) * 2, draw.normal(m, m)
    truth = jacobian(lambda z: standardize(z, eps), z)
    y, sigma = z - z.mean(), math.sqrt(float(z.var(unbiased=False)) + eps)
    first = torch.eye(m, dtype=torch.float64) / sigma - 1 / (m * sigma)
    printed, right = first - torch.outer(y, y) / sigma**3, first - torch.outer(y, y) / (m * sigma**3)
    yield refutes("Jacobian: relative error of the printed form", size(truth - printed) / size(truth), published=0.0)
    yield equal("Jacobian against a random matrix", project(truth, probe), predicted=project(right, probe))


def final_gradient(draw: Draw) -> Found:
    z, delta, truth, gamma, eps = batch_backward(draw)
    hat, probe = standardize(z, eps), draw.normal(len(z))
    sigma = math.sqrt(float(z.var(unbiased=False)) + eps)
    right = gamma / sigma * (delta - delta.mean() - hat * (delta * hat).mean())
    yield equal("gradient along a random direction", project(truth, probe), predicted=project(right, probe))


def weight_gradient(draw: Draw) -> Found:
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


def solution_spectrum(draw: Draw) -> Found:
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


def gain_fixed(draw: Draw) -> Found:
    z, H, gamma, sigma2 = _in_z(draw, 0.0)
    hat, m = standardize(z), len(z)
    along = float(hat @ H @ hat / (hat @ hat))
    yield refutes("curvature along ẑ, γ fixed", along, published=gamma**2 / sigma2 * (1 - m))
    yield equal("curvature along ẑ, γ fixed", along, predicted=0.0, scale=gamma**2 / sigma2)
    start = torch.full((1,), gamma, dtype=torch.float64)
    own = hessian(lambda g: 0.5 * (g * hat - gamma * hat).square().sum(), start)
    yield equal("curvature of the gain", float(own), predicted=m)


def positive_count(draw: Draw) -> Found:
    n = draw.integer(6, 9)
    for m, rank in ((draw.integer(4, 6), None), (4 * n, n)):
        x, w = draw.normal(m, n), draw.normal(n)
        values = torch.linalg.eigvalsh(hessian(Unit(x, x[:, 0]).solved(w).loss, w))
        count = int((values > 1e-8 * values[-1]).sum())
        if rank is None:
            yield refutes("positive eigenvalues, small batch", count, published=n - 1)
        yield equal(f"positive eigenvalues, {'large' if rank else 'small'} batch", count, predicted=(rank or m - 1) - 1)


def stationary(draw: Draw) -> Found:
    m, gamma = draw.integer(4, 12), float(draw.uniform(1, low=0.5, high=2.0))
    z, probe = draw.normal(m), draw.normal(m)
    hat = standardize(z)
    delta = draw.normal(m)
    delta = delta - delta.mean() - hat * (hat @ delta) / m
    truth = gradient(lambda z: (delta * gamma * standardize(z)).sum(), z)
    yield refutes("size of the gradient", size(truth), published=0.0)
    right = gamma / float(z.std(unbiased=False)) * delta
    yield equal("gradient along a random direction", project(truth, probe), predicted=project(right, probe))
