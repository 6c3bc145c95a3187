"""Checks: gradient flow and descent behind a normalizer, convergence, saddles, gradients in deep networks."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.claim import Curve
from normgauge.theory import losses
from normgauge.theory.claim import Found, below, equals, moves, refutes, shown
from normgauge.theory.draw import Draw
from normgauge.theory.losses import (
    extent,
    flattened,
    grad_of,
    gradient_descent,
    gradient_flow,
    hessian_of,
    probed,
    random_unit,
    standardized,
    vector_angle,
)


def conserved(draw: Draw) -> Found:
    for dim, name in ((0, "batch norm"), (1, "layer norm")):
        net = losses.random_layer(draw, dim=dim)
        # a sample whose units are almost equal makes the flow of layer norm stiff
        while dim and float((net.x @ net.weight.T + net.bias).std(1, unbiased=False).min()) < 0.5:
            net = losses.random_layer(draw, dim=dim)
        flat = gradient_flow(
            lambda flat, net=net: net.vary(flat).loss(),  # type: ignore[misc]
            flattened(net.weight, net.bias),
            0.3,
            20,
        )
        end, probe = net.vary(flat), torch.ones_like(net.bias) if dim else draw.normal(len(net.bias))
        after, before = (extent(flattened(v.weight, v.bias) if dim else v.weight[0]) ** 2 for v in (end, net))
        yield equals(f"{name}: {'‖W‖² + ‖b‖²' if dim else '‖w‖² of a unit'}", after, predicted=before, rel=1e-6)
        yield equals(f"{name}: biases", end.bias, predicted=net.bias, along=probe, rel=1e-7)
        yield shown(f"{name}: the weights did move", extent(end.weight - net.weight) > 1e-3)
    bare = probed(net.using(bias=0 * net.bias).gradients("weight")[0], net.weight)
    yield equals("layer norm without biases: W·∂L/∂W", bare, predicted=0.0, scale=extent(net.weight))
    neuron, w = random_unit(draw)
    w, time = w / w.norm(), 1e-3 / extent(grad_of(neuron.loss, w / w.norm()))
    fallen = 1 - float(gradient_flow(neuron.loss, w, time, 4) @ w)
    yield equals("early fall of the component along the start", fallen, predicted=1e-6 / 2, rel=2e-2)


def flow_weight_norm(draw: Draw) -> Found:
    neuron, v = random_unit(draw)
    start = flattened(v / v.norm() * draw.number(1.0, 2.0), torch.ones(1, dtype=torch.float64))

    def loss(flat: Tensor) -> Tensor:
        return 0.5 * (neuron.x @ losses.weight_norm(flat) - 3 * neuron.target).square().mean()

    end = gradient_flow(loss, start, 1.0, 60)
    before, after = (float(p[:-1].square().sum() - p[-1] ** 2) for p in (start, end))
    yield refutes("‖v‖² − g² after the flow", after, published=before, by=1e-6)
    yield equals("‖v‖ after the flow", extent(end[:-1]), predicted=extent(start[:-1]), rel=1e-5)


def endpoint(draw: Draw) -> Found:
    x = draw.normal(40, 4)
    neuron = losses.Unit(x, standardized(x @ draw.normal(4)) + 0.3 * draw.normal(40))
    best = torch.linalg.solve(neuron.covariance, (x - x.mean(0)).T @ neuron.target)
    start = best / best.norm() + draw.orthogonal(4)[0]  # at most a right angle away
    start = start / start.norm() * draw.number(0.5, 1.5)
    end = gradient_flow(neuron.loss, start, 16 * extent(start) ** 2, 160)
    yield equals("component of the end on the best ray", end @ best / best.norm(), predicted=extent(start), rel=1e-4)


def initial_scale(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    u, c, probe = w / w.norm(), draw.number(0.005, 0.05), draw.normal(len(w))
    ratio = extent(grad_of(neuron.loss, c * u)) / extent(grad_of(neuron.loss, u))
    yield refutes("gradient at a small start, over that at length 1", ratio, published=1.0)
    yield equals("gradient at a small start, over that at length 1", ratio, predicted=1 / c)
    one, other = (gradient_descent(neuron.loss, k * u, k**2 * 0.05, 20)[-1] for k in (1.0, c))
    yield equals("end from c·w at rate c²η", probed(other, probe), predicted=c * probed(one, probe))


def sphere_descent(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    rate, probe = draw.number(0.1, 1.0), draw.normal(len(w))
    for decay in (0.0, draw.number(0.05, 0.5)):
        end = gradient_descent(neuron.decayed(decay), w, rate, 15)[-1]
        u, length2, keep = w / w.norm(), float(w @ w), 1 - rate * decay
        for _ in range(15):
            grad = grad_of(neuron.loss, u)  # orthogonal to u, so that lengths add in squares
            u, length2 = (keep * u - rate / length2 * grad, keep**2 * length2 + rate**2 / length2 * extent(grad) ** 2)
            u = u / u.norm()
        yield equals(f"direction, decay {decay:.2f}", end / end.norm(), predicted=u, along=probe)
        yield equals(f"length, decay {decay:.2f}", extent(end), predicted=math.sqrt(length2))
    slope = extent(grad_of(neuron.loss, end / end.norm()))
    yield equals("gradient, against that at length 1", extent(grad_of(neuron.loss, end)), predicted=slope / extent(end))


def discrete_growth(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    w, rate, strength, steps = w / w.norm(), draw.number(0.2, 3.0), draw.number(0.5, 2.0), 800
    path = gradient_descent(neuron.loss, w, rate, 40)
    moved = sum(extent(grad_of(neuron.loss, p)) ** 2 for p in path[:-1])
    yield equals("‖w‖² after many steps", extent(path[-1]) ** 2, predicted=1.0 + rate**2 * moved)
    yield shown(
        "less at a smaller rate", extent(gradient_descent(neuron.loss, w, rate / 20, 40)[-1]) < extent(path[-1])
    )
    end = extent(losses.noise_walk(draw, w, strength, steps, rate=rate / 50)[-1])
    yield equals("‖w‖ under noise", end, predicted=(1 + 2 * (rate / 50 * strength) ** 2 * steps) ** 0.25, rel=5e-3)


def batches_keep_it(draw: Draw) -> Found:
    net, parts = losses.random_layer(draw), list[float]()
    for _ in range(6):
        rows = torch.randperm(len(net.x), generator=draw.generator)[: draw.integer(3, 8)]
        (grad,) = net.batch(rows).gradients("weight")
        parts.append(abs(probed(grad, net.weight)) / extent(grad) / extent(net.weight))
    some = sum(p > 1e-9 for p in parts)
    yield refutes("mini-batches, of 6, with a part along w; by the sentence 1 or more", some, published=1)
    yield equals("largest |cosine| of gradient and weights", max(parts), predicted=0.0, scale=1.0)
    eps, i = draw.decade(-3, -1), draw.integer(0, len(net.bias))
    for what, rows in (("two samples", torch.arange(2)), ("the full batch", torch.arange(len(net.x)))):
        part = net.batch(rows).using(eps=eps)
        weight, gamma = part.gradients("weight", "gamma")
        left = eps / (float((part.x @ part.weight[i]).var(unbiased=False)) + eps) * float(part.gamma[i] * gamma[i])
        radial, size = float(part.weight[i] @ weight[i]), extent(weight[i]) * extent(part.weight[i])
        yield equals(f"w·∇L of a unit, {what}, ε = {eps:.1g}: by ε", radial, predicted=left, scale=size)


def weight_decay(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    decay, time = draw.number(0.1, 0.5), 0.8
    ratio = extent(gradient_flow(neuron.decayed(decay), 3 * w, time, 20)) ** 2 / extent(3 * w) ** 2
    yield refutes("‖w‖² after the flow, over the start", ratio, published=math.exp(-decay * time))
    yield equals("‖w‖² after the flow, over the start", ratio, predicted=math.exp(-2 * decay * time), rel=1e-6)
    rate, strength = draw.number(0.05, 0.3), draw.number(0.5, 2.0)
    path = losses.noise_walk(draw, draw.normal(6), strength, 800, rate=rate, decay=decay)
    norms, rest, turn = (
        path.norm(dim=1),
        rate * strength**2 / (2 * decay - rate * decay**2),
        vector_angle(path[-1], path[-2]),
    )
    yield equals("‖w‖⁴ at equilibrium", norms[-1] ** 4, predicted=rest, rel=1e-5)
    yield equals("turn a step at equilibrium", turn, predicted=math.acos(1 - rate * decay), rel=1e-5)
    steps = tuple(float(k) for k in range(0, 800, 20))
    printed = tuple(float(norms[0]) * math.exp(-rate * decay * k / 2) for k in steps)
    measured = tuple(float(norms[int(k)]) for k in steps)
    lines = (("measured", measured), ("published", printed), ("equilibrium", (rest**0.25,) * len(steps)))
    yield Curve("Length of batch-norm weights under weight decay", "step", "‖w‖", steps, lines, log_y=True)


def saddle_noise(draw: Draw) -> Found:
    start = net = losses.random_layer(draw).twinned()
    for _ in range(20):
        weight, head = net.batch(torch.randperm(len(net.x), generator=draw.generator)[:6]).gradients("weight", "head")
        net = net.using(weight=net.weight - 0.05 * weight, head=net.head - 0.05 * head)
    walked, apart = extent(net.weight - start.weight), extent(net.weight[1] - net.weight[0])
    yield equals("distance of the twin units after 20 steps", apart, predicted=0.0, scale=walked)


def saddle_stays(draw: Draw) -> Found:
    n, c = draw.integer(4, 7), draw.number(2.0, 6.0)
    values = (torch.linspace(1, 2, n, dtype=torch.float64) * draw.uniform(n, low=0.98, high=1.02)).sort().values
    basis, k = draw.orthogonal(n), draw.integer(1, n - 1)

    def loss(w: Tensor) -> Tensor:
        return -(values * (basis @ w).square()).sum() / (w @ w)

    yield equals("gradient", extent(grad_of(loss, basis[k])), predicted=0.0, scale=1.0)
    curvature = torch.linalg.eigvalsh(hessian_of(loss, c * basis[k]))
    yield equals("downward directions", int((curvature < -1e-9).sum()), predicted=n - 1 - k)
    yield equals("lowest curvature at c·w", curvature[0], predicted=-2 * (values[-1] - values[k]) / c**2, rel=1e-8)


def output_variance(draw: Draw) -> Found:
    gamma, eps, z = draw.number(0.5, 2.0), 1e-3, 10.0 ** draw.number(-2.0, 6.0) * draw.normal(draw.integer(5, 20))
    variance, sigma2 = (gamma * standardized(z, eps)).square().mean(), z.var(unbiased=False)
    yield equals("variance behind batch norm", variance, predicted=gamma**2 * sigma2 / (sigma2 + eps))


def alive(draw: Draw) -> Found:
    m, n, gamma = draw.integer(5, 20), 30, draw.number(0.5, 2.0)
    z = draw.normal(m, n) ** 3
    z[:, :2] = torch.eye(m)[:, :1] * torch.tensor([1.0, -1.0])
    hat, even = standardized(z), torch.erfinv(torch.linspace(-1, 1, 40_003, dtype=torch.float64)[1:-1])
    top, count = hat.max(0).values, int(((gamma * hat - 0.99 * gamma / math.sqrt(m - 1)).max(0).values > 0).sum())
    yield equals("units alive at β = −0.99 γ/√(m−1)", count, predicted=n)
    yield equals("largest normalized value, at most", top.max(), predicted=math.sqrt(m - 1))
    yield equals("largest normalized value of a unit, at least", top.min(), predicted=1 / math.sqrt(m - 1))
    yield below("share beyond 2, of any unit", (hat.abs() >= 2).double().mean(0).max(), predicted=1 / 4)
    slope, right = float((1 - torch.tanh(30 * standardized(even)) ** 2).mean()), 2 / (math.sqrt(2 * math.pi) * 30)
    yield equals("mean slope of tanh at γ = 30", slope, predicted=right, rel=1e-2)


def largest_rate(draw: Draw) -> Found:
    neuron, w = random_unit(draw)
    u, c, neuron = w / w.norm(), 3.0, neuron.solved(w)
    values, vectors = torch.linalg.eigh(hessian_of(neuron.loss, u))
    limits = []
    for length in (1.0, c):
        low, high = 0.0, 20 * length**2 / float(values[-1])
        for _ in range(12):
            path = gradient_descent(neuron.loss, length * (u + 1e-5 * vectors[:, -1]), (low + high) / 2, 4)
            back = max(vector_angle(p, u) for p in path[1:]) < vector_angle(path[0], u)
            low, high = ((low + high) / 2, high) if back else (low, (low + high) / 2)
        limits.append(low)
    yield moves("largest rate that settles", limits[0], limits[1])
    yield equals("outputs at c·w", extent(neuron.outputs(c * u)), predicted=extent(neuron.outputs(u)))
    yield equals("largest rate that settles at c·w", limits[1], predicted=2 * c**2 / float(values[-1]), rel=5e-3)


def near_zero(draw: Draw) -> Found:
    x, y, w, head = draw.normal(30, 4), draw.normal(30), draw.normal(4), draw.uniform(1, low=0.5, high=2.0)
    small, cross = 1e-5, x.T @ y / 30

    def loss(flat: Tensor) -> Tensor:
        return 0.5 * (flat[-1] * torch.tanh(x @ flat[:-1]) - y).square().mean()

    first, both = (extent(grad_of(loss, flattened(small * w, k * head))) for k in (1.0, small))
    slope = float(head) * extent(cross)
    yield equals("gradient where the first layer is small", first, predicted=slope, rel=1e-3)
    yield equals("where both are", both, predicted=small * math.hypot(slope, float(cross @ w)), rel=1e-3)


def no_critical_point(draw: Draw) -> Found:
    path, slopes = [draw.number(-1.0, 1.0)], list[float]()
    for _ in range(4000):
        slopes.append(1 / (1 + math.exp(path[-1])))
        path.append(path[-1] + 4.0 * slopes[-1])
    yield equals("walked between step 1000 and 4000", path[4000] - path[1000], predicted=math.log(4.0), rel=5e-3)
    bound = 2 * 0.25 * math.log1p(math.exp(-path[0])) / 1000
    yield below("smallest squared gradient in 1000 steps", min(slopes[:1000]) ** 2, predicted=bound)


def convex_rate(draw: Draw) -> Found:
    n, kappa = draw.integer(3, 7), draw.number(5.0, 100.0)
    values = torch.cat([torch.tensor([1.0, kappa]).double(), draw.uniform(n - 2, low=1.0, high=kappa)])
    basis, start, worst = draw.orthogonal(n), draw.normal(n), (1 - 1 / kappa) ** 20
    ends = [
        gradient_descent(lambda w: 0.5 * (values * (basis @ w) ** 2).sum(), s, 1 / kappa, 20)[-1]
        for s in (basis[0], start)
    ]
    yield equals("error after 20 steps, worst start", extent(ends[0]), predicted=worst)
    yield below("error after 20 steps, any start", extent(ends[1]), predicted=worst * extent(start))


def strict_saddle(draw: Draw) -> Found:
    down, rate, start = draw.number(0.2, 1.0), 0.3, 1e-6 * draw.normal(2)
    path = gradient_descent(lambda w: 0.5 * (w[0] ** 2 - down * w[1] ** 2), start, rate, 60)
    yield equals("distance along the downward direction", path[-1, 1] / start[1], predicted=(1 + rate * down) ** 60)


def deep_saddle(draw: Draw) -> Found:
    n, m = draw.integer(3, 6), 30
    x, y = (v - v.mean(0) for v in (draw.normal(m, n), draw.normal(m, 2)))
    root, cross = torch.linalg.cholesky(x.T @ x / m), x.T @ y / m
    values, vectors = torch.linalg.eigh(torch.linalg.solve(root, cross) @ torch.linalg.solve(root, cross).T)

    def loss(flat: Tensor) -> Tensor:
        return 0.5 * (standardized(x @ flat[:n])[:, None] * flat[n:] - y).square().sum(1).mean()

    # wᵀΣw = 1, so that the best head is Cᵀw
    best, second = (flattened(w, cross.T @ w) for w in torch.linalg.solve(root.T, vectors[:, [-1, -2]]).T)
    gap = float(loss(second) - loss(best))
    yield equals("loss at a critical point above the best", gap, predicted=float(values[-1] - values[-2]) / 2, rel=1e-7)
    yield equals("gradient there", extent(grad_of(loss, second)), predicted=0.0, scale=1.0)
    yield shown("it is a saddle", float(torch.linalg.eigvalsh(hessian_of(loss, second))[0]) < -1e-9)


def slopes(draw: Draw, shape: tuple[int, int, int], parts: str = "relu norm", weights: float = 1.0) -> list[float]:
    """Squared gradients in front of each layer of a random network of (width, batch, depth), weights times He's."""
    width, batch, depth = shape
    scale = weights * math.sqrt((2.0 if "relu" in parts else 1.0) / width)
    h, found = draw.normal(batch, width).requires_grad_(), list[Tensor]()
    for _ in range(depth):
        found.append(h @ (scale * draw.normal(width, width)).T)
        found[-1].retain_grad()
        y = standardized(found[-1]) if "norm" in parts else found[-1]
        y = torch.relu(y) if "relu" in parts else y
        h = h + y if "skip" in parts else y
    (h * draw.normal(batch, width)).sum().backward()
    return [float(z.grad.square().sum()) for z in found if z.grad is not None]


def factor(*runs: list[float]) -> float:
    """By how much squared gradients grow a layer, going back, but for four layers at either end; mean over runs."""
    return math.exp(sum(math.log(run[4] / run[-5]) / (len(run) - 9) for run in runs) / len(runs))


def explosion(draw: Draw) -> Found:
    batch = draw.integer(8, 11)
    z, g = (v - v.mean(0) for v in (draw.normal(batch, 200_000), draw.normal(batch, 200_000)))
    back = grad_of(lambda z: (g * standardized(z)).sum(), z * math.sqrt(batch / (batch - 1)))
    grown, right = extent(back) ** 2 / extent(g) ** 2, (batch - 2) / (batch - 3)
    yield equals("growth of the squared gradient in one wide linear layer", grown, predicted=right, rel=1e-2)
    linear = factor(*(slopes(draw, (160, batch, 20), "norm") for _ in range(3)))
    yield equals("growth a layer, linear", linear, predicted=right, rel=5e-2)
    relu, skips = factor(slopes(draw, (192, 192, 20))), slopes(draw, (128, 96, 20), "relu norm skip")
    yield equals("growth a layer, ReLU", relu, predicted=math.pi / (math.pi - 1), rel=3e-2)
    yield below("growth a layer with skips", factor(skips), predicted=relu - 0.2)
    yield below("growth with skips, deep against shallow", skips[12] / skips[16], predicted=skips[2] / skips[6])


def depth(draw: Draw) -> Found:
    shape, times, rate = (128, 128, 32), draw.number(2.0, 4.0), math.sqrt(math.pi / (math.pi - 1))
    normed, bare = slopes(draw, shape), slopes(draw, shape, "relu")
    yield equals("growth of the gradient a layer", math.sqrt(factor(normed)), predicted=rate, rel=2e-2)
    plain = math.sqrt(factor(bare, *(slopes(draw, (160, 64, 20), "relu") for _ in range(3))))
    yield equals("growth without batch norm", plain, predicted=1.0, rel=2.5e-2)
    longer = [math.sqrt(factor(slopes(draw, shape, parts, times))) for parts in ("relu norm", "relu")]
    yield equals("growth, longer weights", longer[0], predicted=rate, rel=2e-2)
    yield equals("growth without batch norm, longer weights", longer[1], predicted=times, rel=5e-2)
    layers, names = tuple(float(k) for k in range(32)), ("batch norm", "none, He weights", "1.211 a layer")
    measured = (tuple(math.sqrt(v / run[-1]) for v in reversed(run)) for run in (normed, bare))
    lines = tuple(zip(names, (*measured, tuple(rate**k for k in layers)), strict=True))
    yield Curve("Gradients of random ReLU networks", "layers from the end", "gradient", layers, lines, log_y=True)
