"""Checks: flow."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.claim import Curve
from normgauge.ledger.claim import Found, below, equal, exceeds, moves, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import (
    Layer,
    Step,
    Unit,
    angle,
    descend,
    flatten,
    flow,
    gradient,
    hessian,
    layer,
    project,
    size,
    split,
    standardize,
    unit,
    wander,
)


def _flat_loss(net: Layer, flat: Tensor) -> Tensor:
    return net.vary(flat).loss()


def flow_keeps_length(draw: Draw) -> Found:
    net = layer(draw)
    end = net.vary(flow(lambda flat: _flat_loss(net, flat), flatten(net.weight, net.bias), 0.5, 40))
    i = draw.integer(0, len(net.bias))
    yield equal("length of one unit's weights", size(end.weight[i]), predicted=size(net.weight[i]), rel=1e-6)
    yield shown("the weights did move", size(end.weight - net.weight) > 1e-6)


def flow_layer_norm(draw: Draw) -> Found:
    net = layer(draw, dim=1)
    # a sample whose units are almost equal makes the flow stiff
    while float((net.x @ net.weight.T + 2 * net.bias).std(1, unbiased=False).min()) < 0.4:
        net = layer(draw, dim=1)
    net = net.using(bias=2 * net.bias)
    start = flatten(net.weight, net.bias)
    end = flow(lambda flat: _flat_loss(net, flat), start, 1.0, 60)
    yield refutes("‖W‖ after the flow", size(net.vary(end).weight), published=size(net.weight), by=1e-6)
    yield equal("‖W‖² + ‖b‖² after the flow", size(end) ** 2, predicted=size(start) ** 2, rel=1e-6)


def flow_weight_norm(draw: Draw) -> Found:
    neuron, v = unit(draw)
    start = flatten(v / v.norm() * float(draw.uniform(1, low=1.0, high=2.0)), torch.ones(1, dtype=torch.float64))

    def loss(flat: Tensor) -> Tensor:
        v, g = flat[:-1], flat[-1]
        return 0.5 * (neuron.x @ (g * v / v.norm()) - 3 * neuron.target).square().mean()

    end = flow(loss, start, 1.0, 60)
    before, after = (float(p[:-1].square().sum() - p[-1] ** 2) for p in (start, end))
    yield refutes("‖v‖² − g² after the flow", after, published=before, by=1e-6)
    yield equal("‖v‖ after the flow", size(end[:-1]), predicted=size(start[:-1]), rel=1e-5)


def component(draw: Draw) -> Found:
    neuron, w = unit(draw)
    w = w / w.norm()
    end = flow(neuron.loss, w, 1.0, 50)
    yield refutes("component along the start", end @ w, published=1.0, by=1e-6)
    yield equal("length", size(end), predicted=1.0, rel=1e-6)
    yield equal("component along the start", end @ w, predicted=math.cos(angle(end, w)), rel=1e-6)


def offsets(draw: Draw) -> Found:
    for dim, name in ((0, "batch norm"), (1, "layer norm")):
        net = layer(draw, dim=dim)
        start = flatten(net.weight, net.bias)
        end = net.vary(flow(lambda flat, net=net: _flat_loss(net, flat), start, 1.0, 40))  # type: ignore[misc]
        probe = draw.normal(len(net.bias)) if dim == 0 else torch.ones(len(net.bias), dtype=torch.float64)
        yield equal(f"{name}: biases", project(end.bias, probe), predicted=project(net.bias, probe), rel=1e-7)
        if dim:
            yield equal(
                "layer norm: a column sum", end.weight[:, 0].sum(), predicted=float(net.weight[:, 0].sum()), rel=1e-7
            )


def endpoint(draw: Draw) -> Found:
    n = draw.integer(2, 5)
    x = draw.normal(40, n)
    neuron = Unit(x, standardize(x @ draw.normal(n)) + 0.3 * draw.normal(40))
    best = torch.linalg.solve(neuron.covariance, (x - x.mean(0)).T @ neuron.target)
    start = best + best.norm() * draw.orthogonal(n)[0]  # at most a right angle away
    start = start / start.norm() * float(draw.uniform(1, low=0.5, high=1.5))
    end = flow(neuron.loss, start, 16 * size(start) ** 2, 160)
    yield equal("component of the end on the best ray", end @ best / best.norm(), predicted=size(start), rel=1e-4)


def initial_scale(draw: Draw) -> Found:
    neuron, w = unit(draw)
    u, rate, steps = w / w.norm(), 0.05, 20
    c, probe = float(draw.uniform(1, low=3.0, high=6.0)), draw.normal(len(w))
    near, far = (angle(descend(neuron.loss, k * u, rate, 1)[-1], u) for k in (1.0, c))
    yield refutes("turn of the first step from c·w", far, published=near)
    yield equal("turn of the first step from c·w", math.tan(far), predicted=math.tan(near) / c**2, rel=1e-7)
    one, other = descend(neuron.loss, u, rate, steps)[-1], descend(neuron.loss, c * u, c**2 * rate, steps)[-1]
    yield equal("end from c·w at rate c²η", project(other, probe), predicted=c * project(one, probe))


def sphere_descent(draw: Draw) -> Found:
    neuron, w = unit(draw)
    rate, probe = float(draw.uniform(1, low=0.1, high=1.0)), draw.normal(len(w))
    path = descend(neuron.loss, w, rate, 15)
    u, length2 = w / w.norm(), float(w @ w)
    for _ in range(15):
        grad = gradient(neuron.loss, u)  # orthogonal to u, so that lengths add in squares
        u, length2 = u - rate / length2 * grad, length2 + rate**2 / length2 * size(grad) ** 2
        u = u / u.norm()
    yield equal("direction after 15 steps", project(path[-1] / path[-1].norm(), probe), predicted=project(u, probe))
    yield equal("length after 15 steps", size(path[-1]), predicted=math.sqrt(length2))


def discrete_growth(draw: Draw) -> Found:
    neuron, w = unit(draw)
    w, rate, steps = w / w.norm(), float(draw.uniform(1, low=0.2, high=3.0)), 40
    path = descend(neuron.loss, w, rate, steps)
    moved = sum(size(gradient(neuron.loss, p)) ** 2 for p in path[:-1])
    yield equal("‖w‖² after many steps", size(path[-1]) ** 2, predicted=1.0 + rate**2 * moved)
    rates = tuple(10.0 ** (-2 + k / 3) for k in range(10))
    grown = tuple(size(descend(neuron.loss, w, r, steps)[-1]) for r in rates)
    yield shown("longer with every larger rate tried, from 0.01 to 10", grown[-1] > grown[0])
    yield Curve(
        "Length of batch-norm weights after 40 steps of descent",
        "learning rate",
        "length, 1 at the start",
        rates,
        (("measured", grown), ("gradient flow", (1.0,) * len(rates))),
        log_x=True,
        log_y=True,
    )


def decay_step(draw: Draw) -> Found:
    neuron, w = unit(draw)
    rate, decay = float(draw.uniform(1, low=0.1, high=1.0)), float(draw.uniform(1, low=0.05, high=0.5))
    after = descend(lambda w: neuron.loss(w) + decay / 2 * w.square().sum(), w, rate, 1)[-1]
    step = size(gradient(neuron.loss, w))
    yield equal(
        "‖w‖² after a step", size(after) ** 2, predicted=(1 - rate * decay) ** 2 * size(w) ** 2 + rate**2 * step**2
    )


def batches_keep_it(draw: Draw) -> Found:
    net, worst, plain = layer(draw), 0.0, 0.0
    for _ in range(6):
        rows = torch.randperm(len(net.x), generator=draw.generator)[: draw.integer(3, 8)]
        batch = net.using(x=net.x[rows], target=net.target[rows])
        (weight,) = batch.gradients("weight")
        worst = max(worst, abs(float((weight * net.weight).sum())) / size(weight) / size(net.weight))

        def unnormalized(w: Tensor, batch: Layer = batch) -> Tensor:
            return (torch.tanh(batch.x @ w.T + batch.bias) @ batch.head.T - batch.target).square().mean()

        bare = gradient(unnormalized, net.weight)
        plain = max(plain, abs(float((bare * net.weight).sum())) / size(bare) / size(net.weight))
    yield refutes("largest |cosine|, against that without batch norm", worst, published=plain)
    yield equal("largest |cosine|", worst, predicted=0.0, scale=1.0)


def never_shrinks(draw: Draw) -> Found:
    rate, strength, steps = float(draw.uniform(1, low=0.02, high=0.06)), float(draw.uniform(1, low=0.5, high=2.0)), 800
    start = draw.normal(8)
    start = start / start.norm()
    end = size(wander(draw, start, Step(rate, 0.0), strength, steps)[-1])
    yield refutes("length after 800 steps", end, published=1.0)
    yield equal("length after 800 steps", end, predicted=(1 + 2 * (rate * strength) ** 2 * steps) ** 0.25, rel=5e-3)


def weight_decay(draw: Draw) -> Found:
    neuron, w = unit(draw)
    decay, time = float(draw.uniform(1, low=0.1, high=0.5)), 0.8
    ratio = size(flow(lambda w: neuron.loss(w) + decay / 2 * w.square().sum(), 3 * w, time, 20)) ** 2 / size(3 * w) ** 2
    yield refutes("‖w‖² after the flow, over the start", ratio, published=math.exp(-decay * time))
    yield equal("‖w‖² after the flow, over the start", ratio, predicted=math.exp(-2 * decay * time), rel=1e-6)
    rate, strength = float(draw.uniform(1, low=0.05, high=0.3)), float(draw.uniform(1, low=0.5, high=2.0))
    path = wander(draw, draw.normal(6), Step(rate, decay), strength, 800)
    norms = path.norm(dim=1)
    yield equal(
        "‖w‖⁴ at equilibrium", norms[-1] ** 4, predicted=rate * strength**2 / (2 * decay - rate * decay**2), rel=1e-5
    )
    yield equal(
        "turn a step at equilibrium", angle(path[-1], path[-2]), predicted=math.acos(1 - rate * decay), rel=1e-5
    )
    shown_steps = tuple(float(k) for k in range(0, 800, 20))
    yield Curve(
        "Length of batch-norm weights under weight decay",
        "step",
        "‖w‖",
        shown_steps,
        (
            ("measured", tuple(float(norms[int(k)]) for k in shown_steps)),
            ("published", tuple(float(norms[0]) * math.exp(-rate * decay * k / 2) for k in shown_steps)),
            ("equilibrium", ((rate * strength**2 / (2 * decay - rate * decay**2)) ** 0.25,) * len(shown_steps)),
        ),
        log_y=True,
    )


def effective_rate(draw: Draw) -> Found:
    neuron, w = unit(draw)
    u, rate = w / w.norm(), float(draw.uniform(1, low=0.1, high=2.0))
    slope = size(gradient(neuron.loss, u))
    for c in (1.0, float(draw.uniform(1, low=2.0, high=5.0))):
        turned = angle(descend(neuron.loss, c * u, rate, 1)[-1], u)
        yield equal(f"turn of one step at length {c:.2f}", turned, predicted=math.atan(rate * slope / c**2), rel=1e-7)


def not_smooth(draw: Draw) -> Found:
    neuron, w = unit(draw)
    c = float(draw.uniform(1, low=1e-3, high=1e-2))
    w = w / w.norm()
    here, there = (float(torch.linalg.eigvalsh(hessian(neuron.loss, k * w))[-1]) for k in (1.0, c))
    plain = float(torch.linalg.eigvalsh(neuron.covariance)[-1])
    yield equal("largest eigenvalue at c·w", there, predicted=here / c**2)
    yield exceeds("largest eigenvalue with batch norm, short weights, against without", there, published=plain)


def gradient_order(draw: Draw) -> Found:
    neuron, w = unit(draw)
    c = float(draw.uniform(1, low=5.0, high=50.0))
    ratio = size(gradient(neuron.loss, c * w)) / size(gradient(neuron.loss, w))
    yield refutes("gradient at c·w over that at w", ratio, published=1.0)
    yield equal("gradient at c·w over that at w", ratio, predicted=1 / c)


def output_variance(draw: Draw) -> Found:
    gamma, eps, c = float(draw.uniform(1, low=0.5, high=2.0)), 1e-3, 10.0 ** float(draw.uniform(1, low=-2.0, high=6.0))
    z = draw.normal(draw.integer(5, 20))
    variance = float((gamma * standardize(c * z, eps)).square().mean())
    sigma2 = c**2 * float(z.var(unbiased=False))
    yield equal("variance behind batch norm", variance, predicted=gamma**2 * sigma2 / (sigma2 + eps))
    yield below("variance behind batch norm", variance, predicted=gamma**2)


def saddle_noise(draw: Draw) -> Found:
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


def saddle_stays(draw: Draw) -> Found:
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


def dead_units(draw: Draw) -> Found:
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


def largest_rate(draw: Draw) -> Found:
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


def slope_at_origin(draw: Draw) -> Found:
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


def no_critical_point(draw: Draw) -> Found:
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


def convex_rate(draw: Draw) -> Found:
    n, kappa, steps = draw.integer(3, 7), float(draw.uniform(1, low=5.0, high=50.0)), 20
    values = torch.cat([torch.tensor([1.0, kappa]).double(), draw.uniform(n - 2, low=1.0, high=kappa)])
    basis = draw.orthogonal(n)

    def loss(w: Tensor) -> Tensor:
        return 0.5 * (values * (basis @ w).square()).sum()

    slow, start = descend(loss, basis[0], 1 / kappa, steps), draw.normal(n)
    yield equal("error after 20 steps, worst start", size(slow[-1]), predicted=(1 - 1 / kappa) ** steps)
    anywhere = size(descend(loss, start, 1 / kappa, steps)[-1])
    yield below("error after 20 steps, any start", anywhere, predicted=(1 - 1 / kappa) ** steps * size(start))


def linear_anyway(draw: Draw) -> Found:
    n, kappa = draw.integer(3, 6), float(draw.uniform(1, low=20.0, high=100.0))
    values = torch.cat([torch.tensor([1.0, kappa]).double(), draw.uniform(n - 2, low=kappa / 3, high=kappa)])
    path = descend(lambda w: 0.5 * (values * w.square()).sum(), draw.normal(n), 1 / kappa, 150)
    ratio = size(path[-1]) / size(path[-2])
    yield refutes("error over the error before, late", ratio, published=1.0)
    yield equal("error over the error before, late", ratio, predicted=1 - 1 / kappa, rel=1e-6)


def strict_saddle(draw: Draw) -> Found:
    down, rate = float(draw.uniform(1, low=0.2, high=1.0)), 0.3
    start = 1e-6 * draw.normal(2)
    path = descend(lambda w: 0.5 * (w[0] ** 2 - down * w[1] ** 2), start, rate, 60)
    yield equal("distance along the downward direction", path[-1, 1] / start[1], predicted=(1 + rate * down) ** 60)
    yield shown("it leaves the saddle", abs(float(path[-1, 1])) > 10 * abs(float(start[1])))


def deep_saddle(draw: Draw) -> Found:
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


def saturation(draw: Draw) -> Found:
    m, gamma = 40_001, float(draw.uniform(1, low=20.0, high=40.0))
    z = torch.erfinv(torch.linspace(-1, 1, m + 2, dtype=torch.float64)[1:-1])

    def slope(gamma: float) -> float:
        return float((1 - torch.tanh(gamma * standardize(z)) ** 2).mean())

    yield equal("mean slope at gain γ", slope(gamma), predicted=2 / (math.sqrt(2 * math.pi) * gamma), rel=1e-2)
    yield below("mean slope at gain 10γ", slope(10 * gamma), predicted=slope(gamma) / 5)


EDGE = 4  # layers at either end that are not counted: there the batch is not yet, or the gradient no longer, typical


def slopes(draw: Draw, shape: tuple[int, int, int], *, relu: bool, norm: bool, skip: bool = False) -> list[float]:
    """Squared sizes of the gradient in front of each layer of a random network; shape is (width, batch, depth)."""
    width, batch, depth = shape
    scale = math.sqrt((2.0 if relu else 1.0) / width)
    h, found = draw.normal(batch, width), list[Tensor]()
    for _ in range(depth):
        z = h @ (scale * draw.normal(width, width)).T
        z = z if z.requires_grad else z.requires_grad_()
        z.retain_grad()
        found.append(z)
        y = standardize(z) if norm else z
        y = torch.relu(y) if relu else y
        h = h + y if skip else y
    (h * draw.normal(batch, width)).sum().backward()
    return [float(z.grad.square().sum()) for z in found if z.grad is not None]


def factor(squares: list[float]) -> float:
    """By how much the squared gradient grows a layer, going back, away from both ends."""
    first, last = EDGE, len(squares) - 1 - EDGE
    return float((squares[first] / squares[last]) ** (1 / (last - first)))


def explosion(draw: Draw) -> Found:
    batch = draw.integer(7, 10)
    logs = [math.log(factor(slopes(draw, (192, batch, 24), relu=False, norm=True))) for _ in range(6)]
    linear = math.exp(sum(logs) / len(logs))
    relu = factor(slopes(draw, (192, 192, 20), relu=True, norm=True))
    yield exceeds("growth with ReLU, against linear", relu, published=linear)
    yield equal("growth of the squared gradient a layer, linear", linear, predicted=(batch - 2) / (batch - 3), rel=5e-2)
    yield equal("growth of the squared gradient a layer, ReLU", relu, predicted=math.pi / (math.pi - 1), rel=3e-2)


def with_skips(draw: Draw) -> Found:
    shape = (128, 96, 20)
    plain = factor(slopes(draw, shape, relu=True, norm=True))
    skips = slopes(draw, shape, relu=True, norm=True, skip=True)
    yield below("growth a layer with skips", factor(skips), predicted=plain - 0.2)
    late, early = (skips[k] / skips[k + 4] for k in (12, 2))
    yield below("growth in deep layers, against shallow ones", late, predicted=early)


def exponentially_less(draw: Draw) -> Found:
    with_norm = factor(slopes(draw, (160, 128, 20), relu=True, norm=True))
    without = factor(slopes(draw, (160, 128, 20), relu=True, norm=False))
    yield exceeds("growth with batch norm, against without", with_norm, published=without, by=0.1)
    yield equal("growth without", without, predicted=1.0, rel=0.1)


def depth_limit(draw: Draw) -> Found:
    shape = (128, 128, 32)
    with_norm = slopes(draw, shape, relu=True, norm=True)
    without = slopes(draw, shape, relu=True, norm=False)
    grown = math.sqrt(factor(with_norm))
    yield refutes("growth of the gradient a layer", grown, published=1.0)
    yield equal("growth of the gradient a layer", grown, predicted=math.sqrt(math.pi / (math.pi - 1)), rel=2e-2)
    layers = tuple(float(k) for k in range(len(with_norm)))
    yield Curve(
        "Gradients of random ReLU networks",
        "layers below the output",
        "gradient, 1 at the last layer",
        layers,
        (
            ("batch norm", tuple(math.sqrt(v / with_norm[-1]) for v in reversed(with_norm))),
            ("none, He initialization", tuple(math.sqrt(v / without[-1]) for v in reversed(without))),
            ("1.211 a layer", tuple((math.pi / (math.pi - 1)) ** (k / 2) for k in layers)),
        ),
        log_y=True,
    )


def without_normalizers(draw: Draw) -> Found:
    logs = [math.log(factor(slopes(draw, (160, 64, 20), relu=True, norm=False))) for _ in range(4)]
    without = math.exp(sum(logs) / len(logs))
    yield equal("growth of the squared gradient a layer, mean of four", without, predicted=1.0, rel=5e-2)
