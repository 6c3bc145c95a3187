"""Checks: rates."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.core.claim import Curve, Finding
from normgauge.generalization.bounds.cells import tau_published
from normgauge.ledger.claim import Found, below, equal, exceeds, moves, refutes
from normgauge.ledger.draw import Draw, draw_counts, variation
from normgauge.ledger.jacobians import jacobian, norm


def convex_steps(n: int, slope: float, radius: float) -> int:
    """Steps a subgradient method takes on slope·max(w_i) over the ball until it is below the starting gap.

    The oracle answers with a coordinate it has not named yet, as it may: all of them are largest.
    """
    w = torch.zeros(n, dtype=torch.float64)
    best = -slope * radius / math.sqrt(n)
    for step in range(1, 2 * n):
        w[int(w.argmax())] -= radius / math.sqrt(n)  # argmax names the first of several
        if slope * float(w.max()) < 1e-9 * best:  # below where it started, at 0
            return step
    return 2 * n


def rate_convex(draw: Draw) -> Found:
    n, slope = draw.integer(5, 40), float(draw.uniform(1, low=0.5, high=3.0))
    radius = float(draw.uniform(1, low=2.0, high=5.0))
    alpha = slope * radius / math.sqrt(n)
    steps = convex_steps(n, slope, radius)
    yield equal("steps on slope·max(w) until the gap is below α", steps, predicted=(slope * radius / alpha) ** 2)
    yield refutes("the same, against (L/α)²", steps, published=(slope / alpha) ** 2)
    t = draw.integer(20, 60)
    rows, target = draw.normal(8, 6), draw.normal(6)
    lipschitz = float(rows.norm(dim=1).max())
    away, gaps = draw.normal(6), []
    w = target + radius * away / away.norm()
    for _ in range(t):
        values = rows @ (w - target)
        worst = int(values.abs().argmax())
        gaps.append(float(values.abs().max()))
        w = w - radius / (lipschitz * math.sqrt(t)) * rows[worst] * values[worst].sign()
    yield below("best gap of T subgradient steps on max|aᵢ·(w−w*)|", min(gaps), predicted=lipschitz * radius / t**0.5)


def strong_steps(n: int, slope: float, mu: float) -> int:
    """Steps of dual averaging on slope·max(w_i) + (μ/2)‖w‖² until it is below the starting gap."""
    w = torch.zeros(n, dtype=torch.float64)
    best = -(slope**2) / (2 * mu * n)
    for step in range(1, 2 * n):
        w[int(w.argmax())] -= slope / (mu * n)
        if slope * float(w.max()) + mu / 2 * float(w @ w) < 1e-9 * best:
            return step
    return 2 * n


def brute_minimum(n: int, slope: float, mu: float) -> float:
    """The minimum of slope·max(w_i) + (μ/2)‖w‖², over a fine grid of w = −t·1: by symmetry it lies there."""
    grid = torch.linspace(0, 3 * slope / (mu * n), 30001, dtype=torch.float64)
    return float((-slope * grid + mu / 2 * n * grid**2).min())


def rate_strong(draw: Draw) -> Found:
    n, slope = draw.integer(5, 40), float(draw.uniform(1, low=0.5, high=3.0))
    mu, unit = float(draw.uniform(1, low=0.3, high=2.0)), float(draw.uniform(1, low=2.0, high=5.0))
    alpha = -brute_minimum(n, slope, mu)
    steps = strong_steps(n, slope, mu)
    reach = slope / mu  # the ball that holds the minimum; the largest subgradient there is slope + μ·reach
    lipschitz = slope + mu * reach
    yield equal("steps until the gap is below α", steps, predicted=lipschitz**2 / (8 * mu * alpha), rel=1e-6)
    again = strong_steps(n, slope / unit, mu / unit**2)
    ratio = ((lipschitz / unit) ** 2 / (mu / unit**2 * alpha)) / (lipschitz**2 / (mu * alpha))
    yield equal("steps with weights in another unit, over steps before", again / steps, predicted=ratio)
    yield refutes("the same, against L/α", again / steps, published=(lipschitz / unit / alpha) / (lipschitz / alpha))


def rate_stationary(draw: Draw) -> Found:
    slope, theta = float(draw.uniform(1, low=0.5, high=3.0)), float(draw.uniform(1, low=0.1, high=0.9))
    alpha, doublings = slope / float(draw.uniform(1, low=2.0, high=5.0)), draw.integer(5, 20)
    delta = 2.0**-doublings
    low, high, needed, smallest = 0.0, 1.0, 0, math.inf
    for step in range(1, 41):
        middle = (low + high) / 2
        gradient = slope if middle > theta else -slope
        low, high = (low, middle) if gradient > 0 else (middle, high)
        smallest = min(smallest, abs(gradient))
        needed = needed or (step if high - low <= delta else 0)
    yield below("L/α, against the steps that did not suffice", slope / alpha, predicted=40)
    yield equal("smallest gradient met in 40 steps", smallest, predicted=slope)
    yield exceeds("the same, against the α asked for", smallest, published=alpha)
    yield equal("steps until gradients of both signs lie within δ", needed, predicted=math.log2(1 / delta))


def goldstein_steps(slope: float, start: float, delta: float) -> int:
    """Steps of length δ down slope·|w| until gradients of both signs lie within δ."""
    w, steps = start, 0
    while slope * (w - delta) > 0:
        w, steps = w - delta, steps + 1
    return steps


def goldstein_rate(lipschitz: float, gap: float, delta: float, alpha: float) -> float:
    """L²Δ/(δα³), without its constant."""
    return lipschitz**2 * gap / (delta * alpha**3)


def rate_nonconvex(draw: Draw) -> Found:
    slope, delta = float(draw.uniform(1, low=0.5, high=3.0)), float(draw.uniform(1, low=0.01, high=0.1))
    start = (draw.integer(5, 60) + 0.5) * delta
    c, unit = (float(draw.uniform(1, low=2.0, high=5.0)) for _ in range(2))
    steps = goldstein_steps(slope, start, delta)
    rate = goldstein_rate(slope, slope * start, delta, slope)
    yield equal("steps on slope·|w|, α = L", steps, predicted=math.floor(rate))
    for what, (a, b) in (("loss × c", (c, 1.0)), ("weights × c", (1 / unit, unit))):
        again = goldstein_steps(slope * a, start * b, delta * b)
        same = goldstein_rate(slope * a, slope * start * a * b, delta * b, slope * a / 3)
        base = goldstein_rate(slope, slope * start, delta, slope / 3)
        yield equal(f"steps over steps before, {what}", again / steps, predicted=same / base)
        printed = (slope * a / (slope * a / 3) ** 2) / (slope / (slope / 3) ** 2)
        yield refutes(f"the same, {what}, against L/α²", again / steps, published=printed)


def _net(weights: list[Tensor], x: Tensor) -> Tensor:
    for w in weights:
        x = torch.relu(w @ x)
    return x


def c18(draw: Draw) -> Found:
    k, n, alpha = draw.integer(3, 6), draw.integer(3, 7), 1e-3
    x = draw.normal(n).abs()
    weights = [draw.normal(n, n) for _ in range(k)]
    weights[0] = -weights[0].abs()
    tensors = [w.clone().requires_grad_() for w in weights]
    grads = torch.autograd.grad((_net(tensors, x) - 1).abs().sum(), tensors)
    size = math.sqrt(sum(float(g.square().sum()) for g in grads))
    product = math.prod(norm(w) for w in weights[1:])
    yield equal("gradient at a dead start", size, predicted=0.0, scale=1.0)
    yield refutes(
        "steps taken: the start is α-stationary for every layer", float(size > alpha), published=product / alpha
    )
    yield from _one_step([w.abs() for w in weights[:-1]], draw.normal(n), x)


def _one_step(features: list[Tensor], target: Tensor, x: Tensor) -> Iterator[Finding]:
    """½‖V h − t‖² with h from layers of any norm: one gradient step in V of size 1/‖h‖² ends training."""
    h = _net(features, x)
    tensors = [torch.zeros(len(target), len(h), dtype=torch.float64).requires_grad_()]
    (grad,) = torch.autograd.grad(0.5 * (tensors[0] @ h - target).square().sum(), tensors)
    head = (tensors[0] - grad / (h @ h)).detach().requires_grad_()
    layers = [w.clone().requires_grad_() for w in features]
    after = torch.autograd.grad(0.5 * (head @ _net(layers, x) - target).square().sum(), [head, *layers])
    left = max(float(g.abs().max()) for g in after)
    yield equal("gradient of all layers after one step in the head", left, predicted=0.0, scale=float(grad.norm()))


def c18_depth(draw: Draw) -> Found:
    k, n = draw.integer(3, 6), draw.integer(2, 5)
    s, x = draw.uniform(k, low=1.5, high=3.0), draw.uniform(n, low=0.5, high=2.0)
    weights = [float(a) * torch.eye(n, dtype=torch.float64) for a in s]
    found = []
    for i in range(k):

        def in_layer(w: Tensor, i: int = i) -> Tensor:
            return _net([*weights[:i], w, *weights[i + 1 :]], x)

        found.append(norm(jacobian(in_layer, weights[i])))
        predicted = float(x.norm()) * math.prod(float(a) for j, a in enumerate(s) if j != i)
        yield equal(f"constant in W_{i + 1}", found[-1], predicted=predicted)
    yield refutes(
        "constant in the first layer over that in the last", found[0] / found[-1], published=float(s[1:].prod())
    )
    tail = [float(s[i + 1 :].prod()) for i in range(k)]
    yield Curve(
        "Constant of the output in each layer's weights",
        "layer",
        "constant",
        tuple(range(1, k + 1)),
        (("measured", tuple(found)), ("s_{i+1}…s_K", tuple(tail))),
        log_y=True,
    )


def _scale_free_loss(w: Tensor, x: Tensor, target: Tensor) -> Tensor:
    z = x @ w
    return ((z - z.mean()) / z.var(correction=0).sqrt() - target).square().mean()


def c18_gauge(draw: Draw) -> Found:
    m, n = draw.integer(8, 20), draw.integer(3, 7)
    x, w, target = draw.normal(m, n), draw.normal(n), draw.normal(m)
    c = float(draw.uniform(1, low=3.0, high=100.0))
    loss, after = (_scale_free_loss(v, x, target) for v in (w, c * w))
    grad, scaled = (jacobian(lambda v: _scale_free_loss(v, x, target), v) for v in (w, c * w))
    yield equal("loss after w → c·w", float(after), predicted=float(loss))
    yield moves("‖∇L‖ after w → c·w", float(grad.norm()), float(scaled.norm()))
    yield equal("the same, times c", c * float(scaled.norm()), predicted=float(grad.norm()))
    yield equal("‖w‖·‖∇L‖", float((c * w).norm() * scaled.norm()), predicted=float(w.norm() * grad.norm()))


def _normalized(weights: list[Tensor], sigmas: list[Tensor], y: Tensor) -> Tensor:
    """From y_i to the output: eval-mode normalizers with the σ given, then the layers behind."""
    y = torch.relu(y / sigmas[0])
    for w, sigma in zip(weights, sigmas[1:], strict=True):
        y = torch.relu(w @ y / sigma)
    return y


def c19_exponent(draw: Draw) -> Found:
    k, n = draw.integer(3, 7), draw.integer(2, 5)
    i, sigma = draw.integer(1, k), float(draw.uniform(1, low=0.3, high=3.0))
    weights = [float(a) * torch.eye(n, dtype=torch.float64) for a in draw.uniform(k - i, low=0.5, high=2.0)]
    y, ones = draw.uniform(n, low=0.5, high=2.0), torch.ones(n, dtype=torch.float64)
    plain = norm(jacobian(lambda v: _normalized(weights, [ones] * (k - i + 1), v), y))
    found = norm(jacobian(lambda v: _normalized(weights, [sigma * ones] * (k - i + 1), v), y))
    yield equal("constant behind y_i, with over without normalizers", found / plain, predicted=sigma ** (-k + i - 1))


def c19_sigma(draw: Draw) -> Found:
    k, n = draw.integer(3, 6), draw.integer(3, 7)
    i = draw.integer(1, k)
    count = k - i + 1
    y = draw.uniform(n, low=0.5, high=2.0)
    weights = [torch.eye(n, dtype=torch.float64)] * (count - 1)
    sigmas = [draw.uniform(n, low=0.5, high=2.0) for _ in range(count)]
    found = norm(jacobian(lambda v: _normalized(weights, sigmas, v), y))
    printed = max(float((1 / s).norm()) for s in sigmas) ** count
    yield below("constant behind y_i", found, predicted=max(float((1 / s).max()) for s in sigmas) ** count)
    yield below("the same, against the printed factor", found, predicted=printed, published=printed)
    even = [torch.full((n,), float(sigmas[0][0]), dtype=torch.float64)] * count
    tight = norm(jacobian(lambda v: _normalized(weights, even, v), y))
    loose = float((1 / even[0]).norm()) ** count
    yield equal("printed over true, equal channels", loose / tight, predicted=n ** (count / 2))


def c19(draw: Draw) -> Found:
    slope, sigma = float(draw.uniform(1, low=0.5, high=2.0)), float(draw.uniform(1, low=1.3, high=2.0))
    count, delta = draw.integer(2, 4), float(draw.uniform(1, low=0.001, high=0.002))
    other = slope * sigma**-count
    alpha = other / 2
    plain, flat = (goldstein_steps(a, 1 / a, delta) for a in (slope, other))
    yield refutes("steps down the same Δ to the same α, with over without", flat / plain, published=other / slope)
    yield equal("the same: the flatter slope takes more steps", flat / plain, predicted=slope / other, rel=0.02)
    law, flat_law = (goldstein_rate(a, 1.0, delta, alpha) for a in (slope, other))
    yield below("steps, against the law of the class", plain, predicted=law)
    yield below("steps with normalizers, against the law of the class", flat, predicted=flat_law)
    yield equal(
        "worst cases, with over without: the ratio to the power 2", flat_law / law, predicted=sigma ** (-2 * count)
    )


DELTA = 0.1


def t1(draw: Draw) -> Found:
    n, m, slope, trials = draw.integer(4, 12), draw.integer(80, 200), float(draw.uniform(1, low=0.2, high=2.0)), 300
    x = draw.uniform(trials, m)
    loss = slope * (x * n - (x * n).floor()) / n
    gaps = (slope / (2 * n) - loss.mean(1)).abs()
    met = torch.stack([((x * n).floor() == i).any(1) for i in range(n)]).sum(0)
    top = slope / n  # C, the largest loss
    limits = torch.tensor([slope / n + top * tau_published(int(t), n, m, DELTA) for t in met])
    yield below("share of draws that break (6)", float((gaps > limits).double().mean()), predicted=DELTA)
    p = torch.full((n,), 1 / n, dtype=torch.float64)
    sides = variation(p, draw_counts(draw, p, m, trials))
    yield below(
        "largest gap of any model constant on cells, either sign",
        float(sides.max()),
        predicted=tau_published(n, n, m, DELTA),
    )
    line = torch.linspace(0, 1, 201, dtype=torch.float64)[:, None]
    mean = float(torch.cdist(line, line).mean())
    yield equal("mean distance in a cell over its diameter, on a line", mean, predicted=1 / 3, rel=0.01)


def t1_smaller(draw: Draw) -> Found:
    m, slope = draw.integer(10, 40), float(draw.uniform(1, low=2.0, high=9.0))
    x = draw.uniform(m)
    steep = abs(0.0 - float((slope * x - slope * x).abs().mean()))
    flat = abs(slope / 2 - float((slope * x).abs().mean()))
    yield equal("gap of the steep model", steep, predicted=0.0, scale=1.0)
    yield exceeds("gap of the constant model, against that of the steep one", flat, published=steep)
    yield equal(
        "the same: the spread of the samples, times a", flat, predicted=slope * abs(0.5 - float(x.mean())), rel=1e-6
    )


def t1_rate(draw: Draw) -> Found:
    met, cells = draw.integer(5, 50), draw.integer(50, 500)
    m = 1e14
    constant = (math.sqrt(2) + 1) * math.sqrt(met * math.log(2 * cells / DELTA))
    yield equal("√m·g, m large", math.sqrt(m) * tau_published(met, cells, m, DELTA), predicted=constant, rel=1e-4)
    few, many = (tau_published(k, k, k, DELTA) for k in (1e3, 4e3))
    yield refutes("g at |T| = N = m, four times the samples, over before", many / few, published=1 / math.sqrt(4))
    yield exceeds("g there", many, published=1.0)


def rate_lower(draw: Draw) -> Found:
    slope, delta, n = (
        float(draw.uniform(1, low=0.5, high=3.0)),
        float(draw.uniform(1, low=0.01, high=0.1)),
        draw.integer(20, 90),
    )
    start, alpha = (n + 0.5) * delta, slope / 2
    steps = goldstein_steps(slope, start, delta)
    yield below("L/α, against the steps counted", slope / alpha, predicted=steps)
    yield equal("steps counted", steps, predicted=math.floor(slope * start / (delta * slope)))
    yield equal(
        "steps with a third of δ, over before",
        (goldstein_steps(slope, start, delta / 3) + 1) / (steps + 0.5),
        predicted=3.0,
        rel=0.05,
    )


def rate_nonconvex_rates(draw: Draw) -> Found:
    slope, gap, delta = (float(draw.uniform(1, low=0.5, high=3.0)) for _ in range(3))
    t = float(draw.integer(10, 1000))
    low, high = 1e-6, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if goldstein_rate(slope, gap, delta, middle) > t else (low, middle)
    yield equal("error after T steps, by the law", low, predicted=(slope**2 * gap / (delta * t)) ** (1 / 3))
    c = float(draw.uniform(1, low=2.0, high=5.0))
    scaled = goldstein_rate(c * slope, c * gap, delta, c * low) / goldstein_rate(slope, gap, delta, low)
    yield equal("the law with the loss times c, over before", scaled, predicted=1.0)
    short = 0.01 * gap
    yield below(
        "steps on a slope",
        goldstein_steps(slope, gap / slope, short),
        predicted=goldstein_rate(slope, gap, short, slope),
    )


def rate_convex_rates(draw: Draw) -> Found:
    n, slope, radius = draw.integer(5, 40), *(float(v) for v in draw.uniform(2, low=0.5, high=3.0))
    corner = torch.full((n,), -radius / math.sqrt(n), dtype=torch.float64)
    gap = -slope * _largest(corner)
    yield equal("gap after T−1 steps", gap, predicted=slope * radius / math.sqrt(convex_steps(n, slope, radius)))


def _largest(w: Tensor) -> float:
    return float(w.max())
