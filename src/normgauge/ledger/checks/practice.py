"""Checks: practice."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.ledger.claim import Found, below, equal, exceeds, moves, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.losses import (
    Step,
    angle,
    descend,
    flatten,
    gradient,
    hessian,
    layer,
    nullity,
    project,
    size,
    split,
    standardize,
    unit,
    wander,
)


def identity(draw: Draw) -> Found:
    m, eps = draw.integer(3, 9), float(draw.uniform(1, low=1e-5, high=0.3))
    z, probe = draw.normal(m, 1) * 3, draw.normal(m, 1)
    gain, shift = (z.var(unbiased=False) + eps).sqrt(), z.mean()
    out = F.batch_norm(z, None, None, gain[None], shift[None], training=True, eps=eps)
    yield equal("output", project(out, probe), predicted=project(z, probe))


def gain_too(draw: Draw) -> Found:
    z, c, gamma = draw.normal(8), float(draw.uniform(1, low=1.5, high=5.0)), 1.3
    printed = size(gamma / c * standardize(c * z))
    yield refutes("size of the output", printed, published=size(gamma * standardize(z)))
    yield equal("size of the output", printed, predicted=gamma / c * math.sqrt(8.0))
    yield equal("size with the gain kept", size(gamma * standardize(c * z)), predicted=gamma * math.sqrt(8.0))


def ambiguous(draw: Draw) -> Found:
    neuron, w = unit(draw)
    c = float(draw.uniform(1, low=0.1, high=10.0))
    yield equal("outputs", size(neuron.outputs(c * w) - neuron.outputs(w)), predicted=0.0, scale=1.0)
    here, there = (size(gradient(neuron.loss, k * w)) / size(k * w) for k in (1.0, c))
    yield equal("relative step at c·w", there, predicted=here / c**2)


def weight_norm_conditioning(draw: Draw) -> Found:
    neuron, w = unit(draw)

    def loss(flat: Tensor) -> Tensor:
        weight = flat[-1] * flat[:-1] / flat[:-1].norm()
        return 0.5 * ((neuron.x @ (weight - w)) ** 2).mean()

    def kappa(c: float) -> float:
        values = torch.linalg.eigvalsh(hessian(loss, flatten(c * w, w.norm()[None])))
        return float(values[-1] / values[1])  # one zero, along v

    yield moves("condition number in (v, g)", kappa(1.0), kappa(12.0))
    yield equal("loss at (c·v, g)", loss(flatten(12.0 * w, w.norm()[None])), predicted=0.0, scale=1.0)


def no_unit_variance(draw: Draw) -> Found:
    neuron, v = unit(draw)
    g = float(draw.uniform(1, low=0.5, high=3.0))
    variance = float((neuron.x @ (g * v / v.norm())).var(unbiased=False))
    yield equal("variance", variance, predicted=g**2 * float(v @ neuron.covariance @ v) / float(v @ v))


def group_norm(draw: Draw) -> Found:
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


def instance_norm(draw: Draw) -> Found:
    x = draw.normal(2, draw.integer(2, 5), draw.integer(2, 5), 3)
    probe = draw.normal(*x.shape)
    yield equal("output", project(F.instance_norm(x), probe), predicted=project(F.layer_norm(x, x.shape[2:]), probe))


def renormalization(draw: Draw) -> Found:
    z, probe = draw.normal(draw.integer(3, 9)), draw.normal(9)
    probe, mean, sigma = probe[: len(z)], float(draw.normal(1)), float(draw.uniform(1, low=0.5, high=2.0))
    r, d = float(z.std(unbiased=False)) / sigma, (float(z.mean()) - mean) / sigma
    yield equal("output", project(standardize(z) * r + d, probe), predicted=project((z - mean) / sigma, probe))


def smoother(draw: Draw) -> Found:
    m, sigma = draw.integer(8, 14), float(draw.uniform(1, low=0.005, high=0.05))
    gamma = float(draw.uniform(1, low=0.5, high=2.0))
    z, delta = sigma * standardize(draw.normal(m)), draw.normal(m)
    hat = standardize(z)
    squared = size(gradient(lambda z: (delta * gamma * standardize(z)).sum(), z)) ** 2
    law = float(delta @ delta - delta.sum() ** 2 / m - (delta @ hat) ** 2 / m)
    yield equal("squared gradient", squared, predicted=gamma**2 / sigma**2 * law)
    yield exceeds("squared gradient, against that without batch norm", squared, published=size(delta) ** 2)


def no_limit(draw: Draw) -> Found:
    neuron, w = unit(draw)
    neuron, u = neuron.solved(w), draw.normal(len(w))
    c = float(draw.uniform(1, low=1e-3, high=1e-2))
    here, there = (float(u @ hessian(neuron.loss, k * w) @ u) for k in (1.0, c))
    yield refutes("curvature at c·w over that at w", there / here, published=1.0)
    yield equal("curvature at c·w over that at w", there / here, predicted=1 / c**2, rel=1e-7)


def any_rate(draw: Draw) -> Found:
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


def valley(draw: Draw) -> Found:
    neuron, w = unit(draw)
    neuron, c = neuron.solved(w), float(draw.uniform(1, low=0.2, high=5.0))
    yield equal("loss on the ray", neuron.loss(c * w), predicted=0.0, scale=1.0)
    H = hessian(neuron.loss, c * w)
    yield equal("curvature along the ray", size(H @ w), predicted=0.0, scale=size(H) * size(w))
    yield shown("curvature across it", float(torch.linalg.eigvalsh(H)[-1]) > 1e-6)


def sphere_step(draw: Draw) -> Found:
    neuron, w = unit(draw)
    rate, probe, u = float(draw.uniform(1, low=0.2, high=2.0)), draw.normal(len(w)), w / w.norm()
    after = w - rate * gradient(neuron.loss, w)
    sphere = u - rate / float(w @ w) * gradient(neuron.loss, u)
    yield equal(
        "direction after a step", project(after / after.norm(), probe), predicted=project(sphere / sphere.norm(), probe)
    )


def reparametrization(draw: Draw) -> Found:
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


def kohler(draw: Draw) -> Found:
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


def partition(draw: Draw) -> Found:
    neuron, w = unit(draw)
    z, shift = neuron.x @ w, float(draw.uniform(1, low=0.1, high=3.0))
    m = len(z)

    def distances(offset: float) -> float:
        return float(((z - offset) / w.norm()).square().sum())

    mean = float(z.mean())
    extra = m * shift**2 / float(w @ w)
    yield equal("distances at another offset", distances(mean + shift), predicted=distances(mean) + extra)
    yield below("distances at the batch mean", distances(mean), predicted=distances(mean + shift))


def initialization(draw: Draw) -> Found:
    net, alpha, tiny = layer(draw, eps=1e-5), float(draw.uniform(1, low=10.0, high=100.0)), 1e-6
    yield equal(
        "outputs with the head times α",
        size(net.using(head=alpha * net.head).outputs()),
        predicted=alpha * size(net.outputs()),
    )
    z = net.x @ net.weight.T
    silent = standardize(tiny * z, 1e-5)
    yield equal(
        "normalized values at weights times 1e-6",
        size(silent),
        predicted=tiny * size(z - z.mean(0)) / math.sqrt(1e-5),
        rel=1e-4,
    )


def symmetric_units(draw: Draw) -> Found:
    net, probe = layer(draw), draw.normal(5)
    twin = torch.arange(len(net.bias))
    twin[1] = 0
    net = net.using(
        weight=net.weight[twin], gamma=net.gamma[twin], beta=net.beta[twin], bias=net.bias[twin], head=net.head[:, twin]
    )
    (weight,) = net.gradients("weight")
    probe = probe[: weight.shape[1]]
    yield equal("gradient of the second unit", project(weight[1], probe), predicted=project(weight[0], probe))


def no_capacity(draw: Draw) -> Found:
    net = layer(draw)
    net = net.using(x=draw.normal(30, net.x.shape[1]))

    def rank(*parts: Tensor) -> int:
        def outputs(flat: Tensor) -> Tensor:
            given = split(flat, parts)
            return net.using(weight=given[0], **({"bias": given[1]} if len(given) > 1 else {})).outputs()

        start = flatten(*parts)
        return len(start) - nullity(outputs, start)

    with_bias, without = rank(net.weight, net.bias), rank(net.weight)
    yield refutes("directions lost without the biases", with_bias - without, published=len(net.bias))
    yield equal("directions left without the biases", without, predicted=with_bias)


def unbounded(draw: Draw) -> Found:
    neuron, w = unit(draw)
    c = float(draw.uniform(1, low=1e-6, high=1e-4))
    here, there = (size(gradient(neuron.loss, k * w)) for k in (1.0, c))
    yield refutes("gradient at c·w over that at w", there / here, published=1.0)
    yield equal("gradient at c·w over that at w", there / here, predicted=1 / c)


def adam_steps(draw: Draw) -> Found:
    neuron, w = unit(draw)
    u, c, rate = w / w.norm(), float(draw.uniform(1, low=2.0, high=5.0)), 1e-4

    def walk(kind: str, length: float) -> Tensor:
        point, mean, square = length * u, torch.zeros_like(u), torch.zeros_like(u)
        for t in (1, 2, 3):
            grad = gradient(neuron.loss, point)
            mean, square = 0.9 * mean + 0.1 * grad, 0.999 * square + 0.001 * grad.square()
            step = mean / (1 - 0.9**t) / (square / (1 - 0.999**t)).sqrt()
            point = point - rate * (step if kind == "adam" else grad)
        return point

    def turn(kind: str, length: float) -> float:
        return angle(walk(kind, length), u)

    yield equal("Adam: turn at c over turn at 1", turn("adam", c) / turn("adam", 1.0), predicted=1 / c, rel=5e-3)
    yield equal("plain: turn at c over turn at 1", turn("sgd", c) / turn("sgd", 1.0), predicted=1 / c**2, rel=5e-3)
    yield shown("Adam's step has a part along the weights", abs(float((walk("adam", 1.0) - u) @ u)) > 1e-9 * rate)


def decay_strength(draw: Draw) -> Found:
    rate, decay, k = 0.2, float(draw.uniform(1, low=0.1, high=0.2)), 4.0
    turns = []
    for strength in (decay, k * decay):
        path = wander(draw, draw.normal(5), Step(rate, strength), 1.0, 500)
        turns.append(angle(path[-1], path[-2]))
    yield refutes("turn with 4λ over turn with λ", turns[1] / turns[0], published=1.0)
    yield equal("turn with 4λ", turns[1], predicted=math.acos(1 - k * rate * decay), rel=1e-4)


def growth_without_decay(draw: Draw) -> Found:
    start, rate, strength = draw.normal(6), 0.05, float(draw.uniform(1, low=0.5, high=1.5))
    start = start / start.norm()
    path = wander(draw, start, Step(rate, 0.0), strength, 900).norm(dim=1)
    for t in (300, 900):
        yield equal(f"‖w‖⁴ after {t} steps", path[t] ** 4, predicted=1 + 2 * (rate * strength) ** 2 * t, rel=1e-2)
    yield shown("it never gets shorter", bool((path[1:] >= path[:-1]).all()))


def tiny_batches(draw: Draw) -> Found:
    z = draw.normal(2) * float(draw.uniform(1, low=0.1, high=100.0))
    out = standardize(z)
    yield equal("first of two outputs", out[0], predicted=1.0 if z[0] > z[1] else -1.0)
    yield equal("output of one sample alone, ε > 0", size(standardize(z[:1], 1e-5)), predicted=0.0, scale=1.0)


def layer_norm_alone(draw: Draw) -> Found:
    z = draw.normal(4, draw.integer(3, 7))
    probe = draw.normal(z.shape[1])
    together, alone = F.layer_norm(z, z.shape[1:])[0], F.layer_norm(z[:1], z.shape[1:])[0]
    yield equal("output alone", project(alone, probe), predicted=project(together, probe))


def adapting(draw: Draw) -> Found:
    n = draw.integer(2, 5)
    x, scale, shift = (
        draw.normal(30, n) * torch.arange(1, n + 1).double(),
        draw.uniform(n, low=0.3, high=3.0),
        draw.normal(n),
    )
    probe, turn = draw.normal(30, n), draw.orthogonal(n)
    yield equal(
        "outputs on scaled and shifted data",
        project(standardize(scale * x + shift), probe),
        predicted=project(standardize(x), probe),
    )
    yield shown("rotated data: other outputs", size(standardize(x @ turn) - standardize(x) @ turn) > 1e-3)


def exact_per_batch(draw: Draw) -> Found:
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


def learned_moments(draw: Draw) -> Found:
    gamma, beta, eps = float(draw.uniform(1, low=1.2, high=3.0)), float(draw.uniform(1, low=0.5, high=2.0)), 1e-3
    z = draw.normal(draw.integer(5, 20), 1)
    gain, shift = torch.full((1,), gamma, dtype=torch.float64), torch.full((1,), beta, dtype=torch.float64)
    out = F.batch_norm(z, None, None, gain, shift, training=True, eps=eps)
    sigma2 = float(z.var(unbiased=False))
    yield refutes("mean", out.mean(), published=0.0)
    yield refutes("variance", out.var(unbiased=False), published=1.0)
    yield equal("mean", out.mean(), predicted=beta)
    yield equal("variance", out.var(unbiased=False), predicted=gamma**2 * sigma2 / (sigma2 + eps))


def tangent_step(draw: Draw) -> Found:
    neuron, w = unit(draw)
    rate, probe, grad = float(draw.uniform(1, low=0.2, high=2.0)), draw.normal(len(w)), gradient(neuron.loss, w)
    tangent = grad - w * (w @ grad) / (w @ w)
    yield equal(
        "step without the radial part", project(w - rate * tangent, probe), predicted=project(w - rate * grad, probe)
    )
    yield equal("‖w‖² after it", size(w - rate * tangent) ** 2, predicted=size(w) ** 2 + rate**2 * size(grad) ** 2)


def convolution(draw: Draw) -> Found:
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


def contrast(draw: Draw) -> Found:
    x, probe = draw.normal(2, 3, 4, 4), draw.normal(2, 3, 4, 4)
    scale, shift = draw.uniform(2, 1, 1, 1, low=1.0, high=5.0), draw.normal(2, 1, 1, 1)
    yield equal(
        "output",
        project(F.instance_norm(scale * x + shift, eps=1e-12), probe),
        predicted=project(F.instance_norm(x, eps=1e-12), probe),
    )


def dropout_variance(draw: Draw) -> Found:
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


def full_whitening(draw: Draw) -> Found:
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


def worst_feature(draw: Draw) -> Found:
    n = draw.integer(2, 6)
    module = nn.BatchNorm1d(n, dtype=torch.float64).eval()
    gamma, variance = draw.normal(n), draw.uniform(n, low=0.01, high=2.0)
    module.load_state_dict({"weight": gamma, "running_var": variance}, strict=False)
    stretch = norm(jacobian(lambda x: module(x[None])[0], draw.normal(n)))
    yield equal("largest stretch", stretch, predicted=float((gamma.abs() / (variance + module.eps).sqrt()).max()))


def momentum(draw: Draw) -> Found:
    rate, decay, alpha = 0.1, 0.02, float(draw.uniform(1, low=0.4, high=0.7))
    start = draw.normal(400)
    path = wander(draw, 0.9 * start / start.norm(), Step(rate, decay, alpha), 0.5, 1500)
    steps = path[1:] - path[:-1]
    radial = ((steps * path[:-1]).sum(1) / steps.norm(dim=1) / path[:-1].norm(dim=1))[-200:].abs().mean()
    yield refutes("|cosine| of weights and step, late", radial, published=0.0)
    turn = sum(angle(a, b) for a, b in itertools.pairwise(path[-200:])) / 199
    yield equal("turn a step, late", turn, predicted=math.sqrt(2 * rate * decay / (1 + alpha)), rel=3e-2)
