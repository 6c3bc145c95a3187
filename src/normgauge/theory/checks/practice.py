"""Checks: margins, noise, decay and advice."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.theory import losses
from normgauge.theory.claim import Found, below, equals, moves, refutes, shown
from normgauge.theory.draw import Draw
from normgauge.theory.jacobians import jacobian, spectral_norm
from normgauge.theory.losses import (
    extent,
    flattened,
    grad_of,
    gradient_flow,
    hessian_of,
    probed,
    random_layer,
    random_unit,
    split_vector,
    standardized,
    vector_angle,
)


def moments(draw: Draw) -> Found:
    m, eps = draw.integer(3, 9), draw.number(1e-5, 0.3)
    z, probe, gain, shift = 3 * draw.normal(m, 1), draw.normal(m, 1), draw.uniform(1, low=2.0), draw.normal(1)
    sigma2 = z.var(unbiased=False)
    same = F.batch_norm(z, None, None, (sigma2 + eps).sqrt()[None], z.mean()[None], training=True, eps=eps)
    yield equals("output with γ = √(σ²+ε), β = mean", same, predicted=z, along=probe)
    out = F.batch_norm(z, None, None, gain, shift, training=True, eps=eps)
    yield equals("mean of the output", out.mean(), predicted=shift)
    yield equals("variance of the output", out.var(unbiased=False), predicted=gain**2 * sigma2 / (sigma2 + eps))


def gain_too(draw: Draw) -> Found:
    z, c, gamma = draw.normal(8), draw.number(1.5, 5.0), 1.3
    printed = extent(gamma / c * standardized(c * z))
    yield refutes("size of the output", printed, published=extent(gamma * standardized(z)))
    yield equals("size of the output", printed, predicted=gamma / c * math.sqrt(8.0))
    yield equals("size with the gain kept", extent(gamma * standardized(c * z)), predicted=gamma * math.sqrt(8.0))


def at_lengths(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    c, u, probe = draw.number(0.01, 0.5), w / w.norm(), draw.normal(len(w))
    yield equals("outputs at c·w", extent(neuron.outputs(c * w) - neuron.outputs(w)), predicted=0.0, scale=1.0)
    here, there = (extent(grad_of(neuron.loss, k * w)) for k in (1.0, c))
    yield equals("gradient at c·w over that at w", there / here, predicted=1 / c)
    yield equals("relative step at c·w over that at w", there / extent(c * w) / (here / extent(w)), predicted=1 / c**2)
    ends = (w - c * grad_of(neuron.loss, w), u - c / float(w @ w) * grad_of(neuron.loss, u))  # c as the rate
    turned, sphere = (probed(end / end.norm(), probe) for end in ends)
    yield equals("direction after a step, against one on the sphere", turned, predicted=sphere)
    solved = neuron.solved(w)
    one, other = (hessian_of(solved.loss, k * w) for k in (1.0, c))
    bent, straight = (float(probe @ matrix @ probe) for matrix in (other, one))
    yield equals("curvature at c·w over that at w", bent / straight, predicted=1 / c**2, rel=1e-7)
    yield equals("loss on the ray of a minimum", solved.loss(c * w), predicted=0.0, scale=1.0)
    yield equals("curvature along the ray", extent(other @ w), predicted=0.0, scale=extent(other) * extent(w))


def weight_norm(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    g = draw.number(0.5, 3.0)

    def loss(flat: Tensor) -> Tensor:
        return 0.5 * ((neuron.x @ (losses.weight_norm(flat) - w)) ** 2).mean()

    def kappa(c: float) -> float:
        values = torch.linalg.eigvalsh(hessian_of(loss, flattened(c * w, w.norm()[None])))
        return float(values[-1] / values[1])  # one zero, along v

    yield moves("condition number in (v, g)", kappa(1.0), kappa(12.0))
    yield equals("loss at (c·v, g)", loss(flattened(12.0 * w, w.norm()[None])), predicted=0.0, scale=1.0)
    variance = (neuron.x @ (g * w / w.norm())).var(unbiased=False)
    yield equals("variance of an activation", variance, predicted=g**2 * (w @ neuron.covariance @ w) / (w @ w))


def group_norm(draw: Draw) -> Found:
    groups, each, d = draw.integer(1, 4), draw.integer(3, 5), draw.integer(2, 4)
    x, start = draw.normal(25, d), draw.normal(groups * each, d + 1)

    def normalized(flat: Tensor) -> Tensor:
        p = flat.reshape(start.shape)
        return standardized((x @ p[:, :-1].T + p[:, -1]).reshape(len(x) * groups, each), dim=1)

    yield equals("idle directions", losses.nullity(normalized, start.reshape(-1)), predicted=groups * (1 + d + 1))
    z, probe = x @ start[:, :-1].T, draw.normal(25, groups * each)
    ours = standardized(z.reshape(-1, each), 1e-5, dim=1).reshape(z.shape)
    yield equals("torch's group norm", F.group_norm(z, groups), predicted=ours, along=probe)


def instance_norm(draw: Draw) -> Found:
    x = draw.normal(2, draw.integer(2, 5), draw.integer(2, 5), 3)
    probe, scale, shift = draw.normal(*x.shape), draw.uniform(2, 1, 1, 1, low=1.0, high=5.0), draw.normal(2, 1, 1, 1)
    out, by_channel, moved = F.instance_norm(x), F.layer_norm(x, x.shape[2:]), scale * x + shift
    yield equals("output", out, predicted=by_channel, along=probe)
    same = (probed(F.instance_norm(images, eps=1e-12), probe) for images in (moved, x))
    yield equals("output for images of another contrast", next(same), predicted=next(same))


def renormalization(draw: Draw) -> Found:
    z, mean, sigma = draw.normal(draw.integer(3, 9)), float(draw.normal(1)), draw.number(0.5, 2.0)
    probe, r, d = draw.normal(len(z)), float(z.std(unbiased=False)) / sigma, (float(z.mean()) - mean) / sigma
    yield equals("output", standardized(z) * r + d, predicted=(z - mean) / sigma, along=probe)


def smoother(draw: Draw) -> Found:
    m, gamma = draw.integer(8, 14), draw.number(0.5, 2.0)
    sigma, delta = gamma * draw.number(1.0, 3.0), draw.normal(m)
    z = sigma * standardized(draw.normal(m))
    squared = extent(grad_of(lambda z: (delta * gamma * standardized(z)).sum(), z)) ** 2
    law = delta @ delta - delta.sum() ** 2 / m - (delta @ z / sigma) ** 2 / m
    yield equals("squared gradient", squared, predicted=gamma**2 / sigma**2 * law)
    yield below("squared gradient at σ ≥ γ", squared, predicted=delta @ delta)


def any_rate(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    w, centred = w / w.norm(), neuron.x - neuron.x.mean(0)
    rate = 200 / float(torch.linalg.eigvalsh(neuron.covariance)[-1])
    plain = losses.gradient_descent(lambda w: 0.5 * (centred @ w - neuron.target).square().mean(), w, rate, 12)
    path = losses.gradient_descent(neuron.loss, w, rate, 200)
    yield shown("without batch norm it diverges", extent(plain[-1]) > 1e6)
    worst = 0.5 * (neuron.gamma + neuron.target.square().mean().sqrt()) ** 2
    yield below("largest loss with batch norm", max(float(neuron.loss(p)) for p in path), predicted=worst)
    first, last = vector_angle(path[1], path[0]), vector_angle(path[-1], path[-2])
    yield below("turn of the last step, against the first", last, predicted=first / 2)
    grown = math.sqrt(1 + rate**2 * extent(grad_of(neuron.loss, w)) ** 2)
    yield equals("length after the first step", extent(path[1]), predicted=grown)


def reparametrization(draw: Draw) -> Found:
    n = draw.integer(2, 5)
    x, y, w, probe = draw.normal(20, n), draw.normal(20), draw.normal(n), draw.normal(n)
    mix = draw.normal(n, n) + 2 * torch.eye(n).double()
    fisher, grad = x.T @ x / 20, x.T @ (x @ w - y) / 20
    step, mapped = torch.linalg.solve(fisher, grad), mix @ torch.linalg.solve(mix.T @ fisher @ mix, mix.T @ grad)
    yield equals("natural step in other coordinates", mapped, predicted=step, along=probe, rel=1e-7)
    yield shown("a plain step differs", extent(mix @ mix.T @ grad - grad) > 1e-3 * extent(grad))


def partition(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    z, shift = neuron.x @ w, draw.number(0.1, 3.0)
    least, more = (float(((z - z.mean() - s) / w.norm()).square().sum()) for s in (0.0, shift))
    yield equals("distances at another offset", more, predicted=least + len(z) * shift**2 / float(w @ w))


def initialization(draw: Draw) -> Found:
    net, alpha, c, tiny = random_layer(draw), draw.number(10.0, 100.0), 7.0, 1e-6
    z, scaled = net.x @ net.weight.T, net.scaled(c)
    yield equals("outputs with longer weights", extent(scaled.outputs()), predicted=extent(net.outputs()))
    longer = extent(net.using(head=alpha * net.head).outputs())
    yield equals("outputs with the head times α", longer, predicted=alpha * extent(net.outputs()))
    silent, predicted = (extent(standardized(tiny * z, 1e-5)), tiny * extent(z - z.mean(0)) / math.sqrt(1e-5))
    yield equals("normalized values at weights times 1e-6", silent, predicted=predicted, rel=1e-4)


def symmetric_units(draw: Draw) -> Found:
    (weight,) = random_layer(draw).twinned().gradients("weight")
    probe = draw.normal(weight.shape[1])
    yield equals("gradient of the second unit", weight[1], predicted=weight[0], along=probe)


def no_capacity(draw: Draw) -> Found:
    net = random_layer(draw)
    net = net.using(x=draw.normal(30, net.x.shape[1]))
    every = flattened(net.weight, net.bias)
    with_bias = len(every) - losses.nullity(lambda flat: net.vary(flat).outputs(), every)
    alone = net.weight.numel() - losses.nullity(lambda weight: net.using(weight=weight).outputs(), net.weight)
    yield refutes("directions lost without the biases", with_bias - alone, published=len(net.bias))
    yield equals("directions left without the biases", alone, predicted=with_bias)
    other = net.using(bias=draw.normal(len(net.bias))).outputs()
    yield equals("change of the outputs with other biases", extent(other - net.outputs()), predicted=0.0, scale=1.0)


def adam_steps(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    u, c, rate = w / w.norm(), draw.number(2.0, 5.0), 1e-4

    def walk(adam: bool, length: float) -> Tensor:
        point, mean, square = length * u, torch.zeros_like(u), torch.zeros_like(u)
        for t in (1, 2, 3):
            grad = grad_of(neuron.loss, point)
            mean, square = 0.9 * mean + 0.1 * grad, 0.999 * square + 0.001 * grad.square()
            point = point - rate * (mean / (1 - 0.9**t) / (square / (1 - 0.999**t)).sqrt() if adam else grad)
        return point

    adam, plain = (vector_angle(walk(rule, c), u) / vector_angle(walk(rule, 1.0), u) for rule in (True, False))
    yield equals("Adam: turn at c over turn at 1", adam, predicted=1 / c, rel=5e-3)
    yield equals("plain: turn at c over turn at 1", plain, predicted=1 / c**2, rel=5e-3)
    yield shown("Adam's step has a part along the weights", abs(float((walk(True, 1.0) - u) @ u)) > 1e-9 * rate)


def growth_without_decay(draw: Draw) -> Found:
    start, rate, strength = draw.normal(6), 0.05, draw.number(0.5, 1.5)
    path = losses.noise_walk(draw, start / start.norm(), strength, 900, rate=rate).norm(dim=1)
    for t in (300, 900):
        yield equals(f"‖w‖⁴ after {t} steps", path[t] ** 4, predicted=1 + 2 * (rate * strength) ** 2 * t, rel=1e-2)
    yield shown("it never gets shorter", bool((path[1:] >= path[:-1]).all()))


def convolution(draw: Draw) -> Found:
    channels, c = draw.integer(2, 4), draw.number(0.1, 10.0)
    x, weight, slope = draw.normal(3, 2, 5, 5), draw.normal(channels, 2, 3, 3), draw.normal(channels, 27)

    def loss(weight: Tensor) -> Tensor:
        return (
            slope * torch.tanh(standardized(F.conv2d(x, weight).transpose(0, 1).reshape(channels, -1), dim=1))
        ).sum()

    scaled, grad = weight.clone(), grad_of(loss, weight)
    scaled[0] *= c
    yield equals("loss with one filter scaled", loss(scaled), predicted=loss(weight))
    yield equals("filter · gradient", (grad[0] * weight[0]).sum(), predicted=0.0, scale=extent(grad) * extent(weight))


def other_normalizers(draw: Draw) -> Found:
    m, n = draw.integer(10, 20), draw.integer(2, 5)
    z, probe = draw.normal(m, n), draw.normal(m, m)

    def whitened(z: Tensor) -> float:
        values, vectors = torch.linalg.eigh((z - z.mean(0)).T @ (z - z.mean(0)) / m)
        hat = (z - z.mean(0)) @ vectors / values.sqrt()
        return probed(hat @ hat.T, probe)

    def ranked(z: Tensor) -> float:
        return probed(torch.special.ndtri((z.argsort(0).argsort(0) + 0.5) / m), probe[:, :n])

    for name, mix in (("a rotation", draw.orthogonal(n)), ("any matrix", draw.normal(n, n) + 2 * draw.orthogonal(n))):
        yield equals(f"whitening: products of samples after {name}", whitened(z @ mix), predicted=whitened(z), rel=1e-7)
    bent = torch.exp(2 * z)  # increasing, not affine
    yield equals("quantiles behind an increasing map", ranked(bent), predicted=ranked(z))
    yield shown("batch norm's output moves there", extent(standardized(bent) - standardized(z)) > 1e-2)
    yield equals("quantiles after a small step", ranked(z + 1e-9 * probe[:, :n]), predicted=ranked(z))


def worst_feature(draw: Draw) -> Found:
    n = draw.integer(2, 6)
    module = nn.BatchNorm1d(n, dtype=torch.float64).eval()
    gamma, variance = draw.normal(n), draw.uniform(n, low=0.01, high=2.0)
    module.load_state_dict({"weight": gamma, "running_var": variance}, strict=False)
    slopes, predicted = jacobian(lambda x: module(x[None])[0], draw.normal(n)), gamma.abs() / (variance + 1e-5).sqrt()
    yield equals("largest stretch", spectral_norm(slopes), predicted=predicted.max())
    yield equals("stretch along that feature", extent(slopes[:, predicted.argmax()]), predicted=spectral_norm(slopes))


def momentum(draw: Draw) -> Found:
    rate, decay, alpha, start = 0.1, 0.02, draw.number(0.4, 0.7), draw.normal(400)
    start = 0.9 * start / start.norm()
    free, held = (losses.noise_walk(draw, start, 0.5, 1500, rate=rate, decay=d, momentum=alpha) for d in (0.0, decay))
    cosines = F.cosine_similarity(free[1:] - free[:-1], free[:-1]).abs()
    yield below("|cosine| of weights and step, late", cosines[-200:].mean(), predicted=cosines[1:20].mean() / 4)
    turn = sum(vector_angle(a, b) for a, b in itertools.pairwise(held[-200:])) / 199
    yield equals("turn a step with decay, late", turn, predicted=math.sqrt(2 * rate * decay / (1 + alpha)), rel=3e-2)


def linear_ends(draw: Draw) -> Found:
    m, n = draw.integer(4, 6), draw.integer(8, 11)
    x, y = draw.orthogonal(n)[:m] * draw.uniform(m, 1, low=0.7), draw.normal(m)
    w, probe = draw.normal(n), draw.normal(n)
    plain, centred = torch.zeros(n, dtype=torch.float64), x - x.mean(0)
    for _ in range(150):
        plain = plain - 0.8 * x.T @ (x @ plain - y)
    normed = losses.gradient_descent(losses.Unit(x, y).loss, w, 0.3, 150)[-1]
    least, outside = torch.linalg.pinv(x) @ y, probe - torch.linalg.pinv(centred) @ centred @ probe
    yield equals("end of descent from 0", plain, predicted=least, along=probe, rel=1e-7)
    yield equals("part outside the samples, batch norm", normed @ outside, predicted=w @ outside, rel=1e-8)


def separable(draw: Draw) -> Found:
    a, b = draw.uniform(2, low=0.6, high=1.4)
    points = torch.stack([torch.stack([a, b]), torch.stack([b, -a])]) + torch.tensor([[0.3, 0.0], [0.0, 0.2]]).double()
    widest = torch.linalg.solve(points, torch.ones(2, dtype=torch.float64))  # both samples at margin 1

    def loss(w: Tensor) -> Tensor:
        return torch.logsumexp(-(points @ w), 0)  # the log only changes the speed of the flow

    early = gradient_flow(loss, draw.normal(2), 20.0, 30)
    late = gradient_flow(loss, early, 280.0, 160)
    reached = float((points @ late).min()) / extent(late)
    yield equals("margin of the direction reached", reached, predicted=1 / extent(widest), rel=1e-2)
    yield below(
        "angle to the widest direction, late",
        vector_angle(late, widest),
        predicted=0.3 * vector_angle(early, widest) + 1e-3,
    )
    yield shown("its length doubles meanwhile", extent(late) > 2 * extent(early))


def indifferent(draw: Draw) -> Found:
    net = random_layer(draw)
    factor, probe = draw.uniform(len(net.bias), low=1.0, high=20.0), draw.normal(*net.target.shape)
    moved = net.scaled(factor)
    yield equals("outputs with other lengths", moved.outputs(), predicted=net.outputs(), along=probe)
    end = moved.vary(gradient_flow(lambda flat: moved.vary(flat).loss(), flattened(moved.weight, moved.bias), 0.5, 30))
    for i, name in enumerate(("first", "second")):
        after, before = extent(end.weight[i]), extent(moved.weight[i])
        yield equals(f"length of the {name} unit after flow", after, predicted=before, rel=1e-5)


def gain_balance(draw: Draw) -> Found:
    h, m = draw.integer(2, 5), 20
    hat, target, i = standardized(draw.normal(m, h)), draw.normal(m, 2), 0
    start = [draw.uniform(h, low=0.5, high=1.5), 0.3 * draw.normal(h), draw.normal(2, h)]

    def loss(flat: Tensor) -> Tensor:
        gamma, beta, head = split_vector(flat, start)
        return 0.5 * (torch.relu(gamma * hat + beta) @ head.T - target).square().sum(1).mean()

    def balance(parts: list[Tensor]) -> Tensor:
        return parts[0][i] ** 2 + parts[1][i] ** 2 - parts[2][:, i].square().sum()

    end = split_vector(gradient_flow(loss, flattened(*start), 0.4, 80), start)
    yield equals("γ² + β² − ‖column‖² after the flow", balance(end), predicted=balance(start), rel=1e-3, scale=1.0)
    yield shown("the gain itself moved", abs(float(end[0][i] - start[0][i])) > 1e-6)


def last_layer(draw: Draw) -> Found:
    net, alpha, z = random_layer(draw), draw.number(3.0, 30.0), draw.normal(draw.integer(5, 15), 3)
    labels = z.argmax(1)
    slope = grad_of(lambda a: F.cross_entropy(a * z, labels), torch.ones((), dtype=torch.float64))
    right = (z * (z.softmax(1) - F.one_hot(labels, 3))).sum(1).mean()
    yield equals("slope of the loss along the ray", slope, predicted=right)
    yield below("loss with a longer head", F.cross_entropy(alpha * z, labels), predicted=F.cross_entropy(z, labels))
    yield equals("loss far out", F.cross_entropy(1e6 * z, labels), predicted=0.0, scale=1.0)
    batches = [net.batch(torch.randperm(len(net.x), generator=draw.generator)[:6]) for _ in range(20)]
    one, other = (torch.cat([b.using(head=k * b.head).outputs()[:, 0] for b in batches]) for k in (1.0, alpha))
    yield equals("outputs with the head times α over those before", extent(other) / extent(one), predicted=alpha)
    yield equals("samples that change sign over batches", int(((other > 0) ^ (one > 0)).sum()), predicted=0, scale=1.0)
    noise, before = (float(o.std() / o.abs().mean()) for o in (other, one))
    yield equals("noise over margin with the longer head", noise, predicted=before)


def decay_speed(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    short = draw.number(0.01, 0.5)
    yield equals("loss of a shorter solution", neuron.solved(w).loss(short * w), predicted=0.0, scale=1.0)
    rate, decay = draw.number(0.1, 0.2), draw.number(0.1, 0.2)

    def end(rate: float, decay: float) -> tuple[float, float]:
        path = losses.noise_walk(draw, draw.normal(5), 1.0, 600, rate=rate, decay=decay)
        return vector_angle(path[-1], path[-2]), extent(path[-1])

    turn, length = end(rate, decay)
    yield refutes("length at equilibrium, against the shortest", length, published=0.0)
    yield equals("turn a step at equilibrium", turn, predicted=math.acos(1 - rate * decay), rel=1e-4)
    yield equals("turn a step with (3η, λ/3)", end(3 * rate, decay / 3)[0], predicted=turn, rel=1e-4)
    yield equals("turn a step with 4λ", end(rate, 4 * decay)[0], predicted=math.acos(1 - 4 * rate * decay), rel=1e-4)


def raw_norms(draw: Draw) -> Found:
    net, c = random_layer(draw), draw.number(3.0, 10.0)
    scaled = net.scaled(c)

    def printed(weights: tuple[Tensor, Tensor]) -> float:
        (a, b), (most_a, most_b) = ([float(f(w.norm(dim=1))) ** 2 for w in weights] for f in (torch.sum, torch.max))
        return (a * most_b + b * most_a) / len(net.x)

    def folded(weight: Tensor) -> Tensor:
        return (net.gamma / (net.x @ weight.T).std(0, unbiased=False))[:, None] * weight

    def product(weight: Tensor) -> float:
        return float(torch.linalg.matrix_norm(net.head, 2) * torch.linalg.matrix_norm(weight, 2))

    yield moves("the printed expression", printed((net.weight, net.head)), printed((scaled.weight, net.head)))
    yield equals("outputs", extent(scaled.outputs()), predicted=extent(net.outputs()))
    yield moves("product of the norms", product(net.weight), product(scaled.weight))
    yield equals("product after folding", product(folded(scaled.weight)), predicted=product(folded(net.weight)))


def weight_noise(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    neuron, c, noise = neuron.solved(w), draw.number(4.0, 10.0), 0.2 * draw.normal(60, len(w))

    def shaken(w: Tensor, level: float = 1.0) -> float:
        return sum(float(neuron.loss(w + level * e)) for e in noise) / len(noise)

    yield moves("loss under noise of a fixed size", shaken(w), shaken(c * w))
    yield equals("loss under noise in proportion to ‖w‖", shaken(c * w, extent(c * w)), predicted=shaken(w, extent(w)))


def raw_margin(draw: Draw) -> Found:
    net, alpha = random_layer(draw), draw.number(2.0, 5.0)
    z = net.x @ net.weight.T + net.bias
    sigma, mean = z.std(0, unbiased=False), z.mean(0)

    def logit(x: Tensor, k: float) -> Tensor:
        hidden = torch.tanh(net.gamma * ((net.weight @ x + net.bias) - mean) / sigma + net.beta)
        return (k * net.head @ hidden)[:1]

    margins = [float(logit(net.x[0], k).abs()) for k in (1.0, alpha)]
    slopes = [extent(jacobian(lambda x, k=k: logit(x, k), net.x[0])) for k in (1.0, alpha)]  # type: ignore[misc]
    yield moves("raw margin", margins[0], margins[1])
    yield equals("raw margin with the head times α over that before", margins[1] / margins[0], predicted=alpha)
    yield equals("margin over slope", margins[1] / slopes[1], predicted=margins[0] / slopes[0])
    flips = sum(int((logit(x, 1.0) > 0) ^ (logit(x, alpha) > 0)) for x in net.x)
    yield equals("decisions that change", flips, predicted=0, scale=1.0)


def in_company(draw: Draw) -> Found:
    m = draw.integer(4, 12)
    z, k, own, others = draw.normal(m), draw.integer(1, m), draw.normal(1, 3), draw.uniform(5, 3, low=1.0, high=3.0)
    slope, hat, sigma = jacobian(standardized, z), standardized(z), float(z.std(unbiased=False))
    yield equals("how sample k moves the first", slope[0, k], predicted=-(1 + hat[0] * hat[k]) / (m * sigma))
    yield equals("how a sample moves itself", slope[0, 0], predicted=(1 - 1 / m - hat[0] ** 2 / m) / sigma)
    for side in (-1, 1):  # all others below, or all above
        batch = torch.cat([own, own + side * others])
        yield shown("sign of a sample turned by its companions", bool((standardized(batch)[0] * side < 0).all()))
        first, alone = F.layer_norm(batch, (3,))[:1], F.layer_norm(own, (3,))
        yield equals("layer norm in company", first, predicted=alone, along=others[:1])


def scale_cue(draw: Draw) -> Found:
    m, said = draw.integer(10, 30), "correlation of label and feature behind batch norm"
    label = torch.cat([torch.ones(m), -torch.ones(m)]).double()
    feature = 500 + 400 * label + 50 * draw.normal(2 * m)
    behind = nn.BatchNorm1d(1, dtype=torch.float64)(feature[:, None]).detach()[:, 0]
    after, before = (torch.corrcoef(torch.stack([label, f]))[0, 1] for f in (behind, feature))
    yield refutes(said, after, published=0.0)
    yield equals(said, after, predicted=before)


def shifted_inputs(draw: Draw) -> Found:
    n, m = draw.integer(2, 5), 30
    x, scale, offset = draw.normal(m, n), draw.uniform(n, low=1.5, high=3.0), draw.normal(n)
    moved, probe, turn = scale * x + offset, draw.normal(m, n), draw.orthogonal(n)
    module = nn.BatchNorm1d(n, eps=1e-12, momentum=1.0, dtype=torch.float64)
    module.load_state_dict({"weight": draw.uniform(n, low=0.5, high=2.0)}, strict=False)

    def deployed(seen: Tensor, x: Tensor) -> Tensor:
        module.train()(seen)
        return module.eval()(x).detach()

    before, change = deployed(x, x), deployed(x, moved) - deployed(x, x)
    gain = module.weight.detach() / x.var(0, unbiased=True).sqrt()
    yield equals("outputs with new statistics", deployed(moved, moved), predicted=before, along=probe)
    yield equals("change with stored ones", change, predicted=gain * (moved - x), along=probe)
    yield shown("rotated data: other outputs", extent(standardized(scale * x @ turn) - standardized(x) @ turn) > 1e-3)


def statistics(draw: Draw) -> Found:
    total, m, eps = draw.integer(8, 11), draw.integer(2, 5), draw.number(1e-6, 0.2)
    z, module = draw.normal(total), nn.BatchNorm1d(1, eps=eps, momentum=1.0, dtype=torch.float64)
    means = torch.stack([z[list(rows)].mean() for rows in itertools.combinations(range(total), m)])
    sigma2, train = float(z.var(unbiased=False)), module(z[:, None]).detach()
    noise = sigma2 / m * (total - m) / (total - 1)
    yield equals("variance of the batch mean", means.var(unbiased=False), predicted=noise)
    yield equals("first of two outputs", standardized(z[:2])[0], predicted=1.0 if z[0] > z[1] else -1.0)
    yield equals("output of one sample alone, ε > 0", extent(standardized(z[:1], 1e-5)), predicted=0.0, scale=1.0)
    shrink = math.sqrt((sigma2 + eps) / (sigma2 * total / (total - 1) + eps))
    yield equals("eval output over train output", extent(module.eval()(z[:, None])) / extent(train), predicted=shrink)
